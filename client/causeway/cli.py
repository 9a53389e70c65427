"""The command line. Commands import what they need when they run: ``--help`` has to answer at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from causeway import __version__
from causeway.errors import CausewayError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _AfterDashes(click.Command):
    """A command with another program's command line after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["after dashes"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="causeway")
def cli() -> None:
    """Run code from this folder on GPUs.

    \b
    causeway run --local -- python train.py     on this machine
    causeway run --gpus 4 -- python train.py    on four GPUs of the cluster
    causeway ps                                 what runs, and what waits
    causeway why train-3                        why it waits, or why it failed
    """


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        found[name] = text
    return found


_yes = click.option(
    "-y", "--yes", is_flag=True, envvar="CAUSEWAY_YES", help="Do not ask, whatever it may cost."
)


@cli.command(cls=_AfterDashes, context_settings=_CONTEXT, epilog="Fields of the file: docs/job.md.")
@click.argument("file", required=False, metavar="[JOB.yaml]")
@click.option("--name", help="What the run is called. Default: the file's, else the folder's name.")
@click.option("--gpus", type=click.IntRange(0), metavar="N", help="GPUs of each worker.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="How many workers.")
@click.option(
    "--launcher", type=click.Choice(["auto", "none", "torchrun", "tensorflow"]), help="What starts processes."
)
@click.option(
    "--python", metavar="FILE", help="Packages to install: requirements.txt, pyproject.toml or uv.lock."
)
@click.option("--time", metavar="24h", help="The longest that it may run.")
@click.option("--env", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="An environment variable.")
@click.option("--set", "parameters", multiple=True, callback=_pairs, metavar="NAME=VALUE",
              help="What takes the place of {NAME} in the command, or a field: time=2h.")  # fmt: skip
@click.option("--allow-secrets", is_flag=True, help="Ship files that look like secrets.")
@click.option("--image", help="A name of the cluster's images, or a reference.")
@click.option("--priority", help="A priority class of the cluster.")
@click.option("--group", help="The group whose queue and namespace are used. Default: your own.")
@click.option("--local", is_flag=True, help="Run on this machine, without a cluster.")
@click.option("--dry-run", is_flag=True, help="Print the object, and submit nothing.")
@click.option("-d", "--detach", is_flag=True, help="Submit it, and do not wait.")
@_yes
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object at the end; output of workers on stderr."
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: str | None,
    parameters: dict[str, str],
    allow_secrets: bool,
    local: bool,
    dry_run: bool,
    detach: bool,
    yes: bool,
    as_json: bool,
    env: dict[str, str],
    **fields: Any,
) -> None:
    """Run a job: the command after --, or that of JOB.yaml.

    \b
    causeway run -- python train.py --epochs 1             one GPU of the cluster
    causeway run --gpus 8 --nodes 4 -- python train.py     four machines of eight, under torchrun
    causeway run job.yaml --set lr=1e-3                    {lr} in the file's command
    causeway run --local --gpus 2 -- python train.py       two processes of this machine
    """
    options = {name: value for name, value in fields.items() if value is not None}
    options |= {f"env.{name}": value for name, value in env.items()}
    command: tuple[str, ...] = ctx.meta["after dashes"]
    if command:
        options["run"] = list(command)
    if local and (dry_run or detach):
        raise click.UsageError("--local runs at once and here: without --dry-run and --detach")
    if local:
        from causeway.commands.run import run_local

        sys.exit(run_local(file, options, parameters, allow_secrets=allow_secrets, as_json=as_json))
    from causeway.commands.submit import run_in_cluster

    sys.exit(
        run_in_cluster(
            file,
            options,
            parameters,
            allow_secrets=allow_secrets,
            as_json=as_json,
            dry_run=dry_run,
            detach=detach,
            yes=yes,
        )
    )


_group = click.option("--group", help="The group whose namespace is meant. Default: your own.")
_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


@cli.command(context_settings=_CONTEXT)
@_group
@_json
def ps(group: str | None, as_json: bool) -> None:
    """List runs, the newest first.

    \b
    causeway ps --group vision
    """
    from causeway.commands import watching

    sys.exit(watching.ps(group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run")
@_group
@_json
def why(run: str, group: str | None, as_json: bool) -> None:
    """Say why a run waits, or which worker failed first, and with which words.

    \b
    causeway why resnet-3
    """
    from causeway.commands import watching

    sys.exit(watching.why(run, group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends, through its restarts.")
@click.option("--worker", metavar="worker-3", help="Only this one.")
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Of an earlier start; 0 is the first.")
@_group
@_json
def logs(
    run: str, follow: bool, worker: str | None, attempt: int | None, group: str | None, as_json: bool
) -> None:
    """Show the output of all workers of a run, also when its pods are gone.

    \b
    causeway logs -f resnet-3
    causeway logs resnet-3 --worker worker-1 --attempt 0
    """
    from causeway.commands.logs import logs as show

    sys.exit(show(run, group, follows=follow, worker=worker, attempt=attempt, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, required=True)
@_group
@_json
def stop(runs: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Stop runs: SIGTERM, their grace, SIGKILL. They keep their record, and can be resumed.

    \b
    causeway stop resnet-3 resnet-4
    """
    from causeway.commands import watching

    sys.exit(watching.stop(runs, group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, required=True)
@_group
@_json
def resume(runs: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Queue stopped runs again, with the code that they were submitted with.

    \b
    causeway resume resnet-3
    """
    from causeway.commands import watching

    sys.exit(watching.resume(runs, group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Submit it, and do not wait.")
@_yes
@_group
@_json
def rerun(run: str, detach: bool, yes: bool, group: str | None, as_json: bool) -> None:
    """Submit a run once more, from its beginning, with the job and the code that it was submitted with.

    \b
    causeway rerun resnet-3
    """
    from causeway.commands import submit

    sys.exit(submit.rerun(run, group, as_json=as_json, detach=detach, yes=yes))


@cli.command(cls=_AfterDashes, context_settings=_CONTEXT)
@click.argument("run", required=False)
@click.option("--worker", metavar="worker-3", help="Of that run. Default: the first that runs.")
@click.option("--node", metavar="NAME", help="Log in to an SSH node instead.")
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="GPUs.")
@click.option("--time", default="8h", show_default=True, help="The longest that it may last.")
@click.option("--idle", default="1h", show_default=True, help="It ends after so long without use.")
@click.option("--image", help="A name of the cluster's images, or a reference.")
@click.option("--python", metavar="FILE", help="Packages to install, as for `run`.")
@click.option("--priority", help="A priority class of the cluster.")
@click.option("--allow-secrets", is_flag=True, help="Ship files that look like secrets.")
@_yes
@_group
@click.pass_context
def shell(
    ctx: click.Context,
    /,
    run: str | None,
    worker: str | None,
    node: str | None,
    yes: bool,
    allow_secrets: bool,
    group: str | None,
    **fields: Any,
) -> None:
    """Open a terminal on a GPU with this folder's code, in a worker of RUN, or on an SSH node.

    \b
    causeway shell --gpus 1 --time 8h                    ends when you leave, or when it is idle
    causeway shell resnet-3 --worker worker-1            beside what runs there
    causeway shell resnet-3 -- nvidia-smi                one command
    causeway shell --node login                          plain ssh
    """
    from causeway.commands import shell as shells

    command: tuple[str, ...] = ctx.meta["after dashes"]
    if node is not None:
        sys.exit(shells.log_in(node, command))
    if run is not None:
        sys.exit(shells.enter(run, worker, group, command))
    if command or worker:
        raise click.UsageError("a command and --worker need the name of a run; for a new one: causeway run")
    options = {name: value for name, value in fields.items() if value is not None}
    options |= {"group": group} if group else {}
    sys.exit(shells.open_shell(options, allow_secrets=allow_secrets, yes=yes))


@cli.command(context_settings=_CONTEXT)
@click.argument("run")
@click.argument("folder", required=False, default="")
@_group
@_json
def code(run: str, folder: str, group: str | None, as_json: bool) -> None:
    """Write the code of a run into a new folder, by default of the run's name.

    \b
    causeway code resnet-3
    """
    from causeway.commands import files

    sys.exit(files.code(run, group, folder, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run")
@click.argument("path", required=False, default="")
@click.option("--to", "folder", default="", metavar="FOLDER", help="Default: the run's name.")
@_group
@_json
def get(run: str, path: str, folder: str, group: str | None, as_json: bool) -> None:
    """Fetch what a run wrote below $CAUSEWAY_RESULTS: all of it, or a file or folder of it.

    \b
    causeway get resnet-3
    causeway get resnet-3 plots --to today
    """
    from causeway.commands import files

    sys.exit(files.get(run, group, path, folder, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run")
@click.argument("paths", nargs=-1, required=True)
@_group
@_json
def put(run: str, paths: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Send files and folders to a run's results. When it is resumed, they are there.

    \b
    causeway put resnet-3 best.pt
    """
    from causeway.commands import files

    sys.exit(files.put(run, group, paths, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@_group
@_json
def doctor(group: str | None, as_json: bool) -> None:
    """Check the way to the cluster, step by step, and say what cures each that fails.

    \b
    causeway doctor
    """
    from causeway.commands.doctor import doctor as examine

    sys.exit(examine(group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@_json
def gpus(as_json: bool) -> None:
    """List GPUs: what there is, what is free now, what it costs.

    \b
    causeway gpus
    """
    from causeway.commands.gpus import gpus as show

    sys.exit(show(as_json=as_json))


def main() -> None:
    """The program. Errors are one text on stderr, and the exit code says which kind."""
    try:
        cli(prog_name="causeway")
    except CausewayError as error:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        sys.exit(error.exit_code)
