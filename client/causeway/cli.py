"""The command line. Commands import what they need when they run: ``--help`` must be fast."""

from __future__ import annotations

import difflib
import gc
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from causeway import __version__
from causeway.errors import CausewayError, InputError, UnreachableError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _AfterDashes(click.Command):
    """A command that takes another program's command line after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["after dashes"] = tuple(args[at + 1 :])
        given = args[:at]
        try:
            return super().parse_args(ctx, [*given])
        except click.UsageError as error:
            # An unknown option may be the other program's if that one's name stands before it.
            unknown = error.option_name if isinstance(error, click.NoSuchOption) else None
            within = given[: given.index(unknown)] if unknown in given else given
            begins = None if at < len(args) else self._command_at(within)
            if begins is None:
                raise
            meant = shlex.join([*given[:begins], "--", *given[begins:]])
            what = error.format_message().rstrip(".")
            raise click.UsageError(
                f"{what}; a command goes after `--`: {ctx.command_path} {meant}", ctx
            ) from None

    def _command_at(self, args: Sequence[str]) -> int | None:
        """Return where another program's command line seems to begin: at the first word that is neither an
        option, nor its value, nor the job file or run that comes first. None: nowhere."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        take = {name for each in options if not each.is_flag for name in each.opts}
        words = [at for at, word in enumerate(args)
                 if not word.startswith("-") and (at == 0 or args[at - 1] not in take)]  # fmt: skip
        if words and (self.name != "run" or args[words[0]].endswith((".yaml", ".yml"))):
            del words[0]
        return words[0] if words else None


class _Commands(click.Group):
    """A group whose help shows the whole first sentence of each command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(1_000)) for name, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="causeway")
def cli() -> None:
    """Run code from this folder on GPUs.

    \b
    causeway run --local -- python train.py     on this machine
    causeway run --gpus 4 -- python train.py    on four GPUs of the cluster
    causeway run job.yaml --on titan-01         on a machine over ssh
    causeway ps                                 running and waiting runs
    causeway why train-3                        why it waits, or why it failed
    causeway sweep job.yaml                     many trials, bad ones are stopped early
    """


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        found[name] = text
    return found


_MOST_RUNS = 1_000


def _each(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, list[str]]:
    """Parse the values of ``--each``: ``lr=0.1,0.2`` and ``seed=0..9``, both ends included."""
    found: dict[str, list[str]] = {}
    for name, text in _pairs(_, __, values).items():
        ends = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", text)
        if ends and int(ends[2]) - int(ends[1]) >= _MOST_RUNS:
            raise click.BadParameter(f"{name}={text} has more than {_MOST_RUNS} values")
        listed = (
            [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)] if ends else text.split(",")
        )
        if not listed or "" in listed:
            raise click.BadParameter(
                f"{name}={text} has an empty value; write NAME=V1,V2 or NAME=FIRST..LAST"
            )
        found[name] = listed
    if (runs := math.prod(map(len, found.values()))) > _MOST_RUNS:
        raise click.BadParameter(f"{runs} runs are more than {_MOST_RUNS}")
    return found


def _duration(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse a duration such as ``8h`` into seconds."""
    from causeway.units import parse_duration

    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _hosts(_: click.Context, __: click.Parameter, value: str | None) -> list[str]:
    return list(dict.fromkeys(filter(None, (value or "").split(","))))


def _known_runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
    """Shell completion: names of runs, and of searches of the cluster."""
    from causeway.commands.completing import run_names

    local = _is_local(bool(ctx.params.get("local")), ctx.params.get("group"), ctx.params.get("on") or ())
    return [*run_names(incomplete, ctx.params.get("group"), local=local)]


def _known_searches(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: names of searches that this machine conducts."""
    from causeway.commands.completing import search_names

    return [*search_names(incomplete)]


def _files(_: click.Context, __: click.Parameter, incomplete: str) -> list[Any]:
    """Shell completion of files, which the shell does itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


_on = click.option(
    "--on", callback=_hosts, metavar="HOST,…", help="Machines to run on over ssh, without a cluster."
)
_yes = click.option(
    "-y", "--yes", is_flag=True, envvar="CAUSEWAY_YES", help="Do not ask for confirmation of the cost."
)


@cli.command(cls=_AfterDashes, context_settings=_CONTEXT, epilog="Fields of the file: causeway help job.")
@click.argument("file", required=False, metavar="[JOB.yaml]", shell_complete=_files)
@click.option("--name", help="Name of the run. Default: the file's, else the folder's name.")
@click.option("--gpus", type=click.IntRange(0), metavar="N", help="GPUs of each worker.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of workers.")
@click.option(
    "--launcher",
    type=click.Choice(["auto", "none", "torchrun", "tensorflow"]),
    help="How to start the processes of a worker.",
)
@click.option(
    "--python", metavar="FILE", help="Packages to install: requirements.txt, pyproject.toml or uv.lock."
)
@click.option("--time", metavar="24h", help="Maximum run time.")
@click.option(
    "--env", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="Set an environment variable."
)
@click.option("--set", "parameters", multiple=True, callback=_pairs, metavar="NAME=VALUE",
              help="Value of {NAME} in the command, or of a field: time=2h.")  # fmt: skip
@click.option(
    "--each",
    multiple=True,
    callback=_each,
    metavar="NAME=V1,V2",
    help="Like --set, with a run for each value, or for FIRST..LAST; repeated: for each combination.",
)
@click.option("--array", metavar="1-16", help="Submit a run for each number, in $CAUSEWAY_ARRAY_TASK.")
@click.option("--allow-secrets", is_flag=True, help="Ship files that look like secrets.")
@click.option("--image", help="An image of the cluster by name, or a reference.")
@click.option("--priority", help="Priority class of the cluster.")
@click.option("--group", help="Use this group's queue and namespace. Default: your own.")
@click.option("--local", is_flag=True, help="Run on this machine, without a cluster.")
@_on
@click.option("--dry-run", is_flag=True, help="Print the object without submitting it.")
@click.option("-d", "--detach", is_flag=True, help="Submit the run and return.")
@click.option(
    "--wait", "waits", is_flag=True, help="Wait until it ends, without output, also across lost connections."
)
@click.option("--no-wait", is_flag=True, help="With --on: fail instead of waiting for GPUs.")
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
    each: dict[str, list[str]],
    allow_secrets: bool,
    local: bool,
    on: list[str],
    dry_run: bool,
    detach: bool,
    waits: bool,
    no_wait: bool,
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
    causeway run job.yaml --each lr=0.1,0.01 --each seed=0..4      ten runs
    causeway run --local --gpus 2 -- python train.py       two processes of this machine
    causeway run job.yaml --on titan-01,titan-02           machines over ssh, without a cluster
    """
    options = {name: value for name, value in fields.items() if value is not None}
    options |= {f"env.{name}": value for name, value in env.items()}
    command: tuple[str, ...] = ctx.meta["after dashes"]
    if command:
        options["run"] = list(command)
    if local and on:
        raise click.UsageError("--local and --on exclude each other")
    if on and each:
        raise click.UsageError("--each is for a cluster; on machines: causeway sweep FILE --on")
    if local and each:
        raise click.UsageError("--each is for a cluster; on this machine: causeway sweep --local FILE")
    if local and (dry_run or detach):
        given_here = "--detach" if detach else "--dry-run"
        raise click.UsageError(
            f"{given_here} is for a cluster or machines; --local runs immediately: leave it out"
        )
    options |= {"on": on} if on else {}
    given: dict[str, Any] = {"allow_secrets": allow_secrets, "as_json": as_json}
    loaded = None
    if not each:
        from causeway.jobfile import load

        loaded = load(Path(file) if file else None, options, parameters, alone=True)
    if waits and (local or detach or (loaded and loaded.job.on)):
        raise click.UsageError("--wait is for a cluster: it excludes --local, --on and --detach")
    if no_wait and (local or not (loaded and loaded.job.on)):
        raise click.UsageError("--no-wait requires --on")
    if loaded and local:
        from causeway.commands.run import run_local

        sys.exit(run_local(loaded, **given))
    if loaded and loaded.job.on:
        from causeway.commands.machines import run_on

        sys.exit(run_on(loaded, **given, detach=detach, dry_run=dry_run, waits=not no_wait))
    from causeway.commands.submit import run_each, run_in_cluster

    given |= {"dry_run": dry_run, "waits": waits, "yes": yes}
    try:
        if loaded is None or len(loaded.tasks) > 1:
            sys.exit(run_each(file, options, parameters, each, **given))
        sys.exit(run_in_cluster(loaded, **given, detach=detach))
    except UnreachableError as error:
        raise _or_here(error, "causeway run --local") from None


def _or_here(error: UnreachableError, command: str) -> UnreachableError:
    """Add the command for this machine, if there is no kubeconfig."""
    from causeway.cluster import kubeconfig

    if kubeconfig.exists():
        return error
    return UnreachableError(f"{error}; on this machine, without a cluster: {command}")


_group = click.option("--group", help="Use this group's namespace. Default: your own.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_local = click.option("--local", is_flag=True, help="Runs of this machine: those of causeway run --local.")


_here = click.option("--local", is_flag=True, help="Runs of this machine; the default without a kubeconfig.")


def _has_cluster() -> bool:
    """Whether this laptop has a kubeconfig, at the default path or from the environment."""
    return bool(os.environ.get("KUBECONFIG")) or Path("~/.kube/config").expanduser().exists()


def _is_local(local: bool, group: str | None, on: Sequence[str] = ()) -> bool:
    """Whether to use runs of this machine: with --local, or without a kubeconfig."""
    if local and (group or on):
        raise click.UsageError("--local excludes --group and --on")
    return local or not (group or on or _has_cluster())


def _where(runs: Sequence[str], local: bool, on: list[str], group: str | None) -> str:
    """Where runs of these names ran: ``machines``, ``here`` or ``cluster``."""
    if not local and _on_machines(runs, on, group):
        return "machines"
    return "here" if _is_local(local, group, on) else "cluster"


def _place(runs: Sequence[str], local: bool, on: list[str], group: str | None) -> dict[str, Any]:
    """Return ``local`` and ``on`` in the form that commands for all kinds of runs take."""
    where = _where(runs, local, on, group)
    return {"local": where == "here", "on": on if where == "machines" else None}


def _on_machines(runs: Sequence[str], on: list[str], group: str | None) -> bool:
    """Whether runs were started by ``run --on``, judging by the option or by this laptop's records."""
    from causeway.machines import records

    if on:
        return True
    known = [run for run in runs if group is None and records.hosts_of(run) is not None]
    if known and len(known) < len(runs):
        raise click.UsageError(
            f"{', '.join(known)} ran on machines, others in the cluster: use a command for each"
        )
    return bool(known)


def _is_here(search: str, group: str | None) -> bool:
    """Whether this laptop has the record of a search, which then runs on machines."""
    from causeway.machines import records

    return group is None and records.is_search(search)


class _Sweep(_Commands):
    """``sweep FILE`` submits a search: a word that is not a subcommand is a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [_SUBMIT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != _SUBMIT]


_SUBMIT = "submit"


@cli.group(cls=_Sweep, context_settings=_CONTEXT, epilog="Options of a search: causeway sweep submit --help.")
def sweep() -> None:
    """Search over parameters: sweep FILE starts the search that the job file's `sweep:` describes.

    \b
    causeway sweep job.yaml                      trials are runs of the cluster
    causeway sweep job.yaml --trials 20          a field of the file, set here
    causeway sweep --local job.yaml              trials are processes of this machine
    causeway sweep job.yaml --on titan-01        trials are runs on machines over ssh
    causeway sweep show resnet-s1                table, best trial, stopped trials and why
    """


@sweep.command(_SUBMIT, context_settings=_CONTEXT)
@click.argument("file", metavar="JOB.yaml", shell_complete=_files)
@click.option("--name", help="Name of the search. Default: the file's.")
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Maximum number of trials.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="Trials at once.")
@click.option("--set", "parameters", multiple=True, callback=_pairs, metavar="NAME=VALUE",
              help="Value of {NAME} in the command, or of a field: sweep.seed=1.")  # fmt: skip
@click.option("--allow-secrets", is_flag=True, help="Ship files that look like secrets.")
@click.option("--group", help="Use this group's queue and namespace. Default: your own.")
@click.option("--local", is_flag=True, help="On this machine, without a cluster.")
@_on
@click.option("--dry-run", is_flag=True, help="Print the conductor and a trial without submitting them.")
@_yes
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def sweep_submit(
    file: str,
    name: str | None,
    trials: int | None,
    parallel: int | None,
    parameters: dict[str, str],
    allow_secrets: bool,
    group: str | None,
    local: bool,
    on: list[str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Start a search.

    \b
    causeway sweep job.yaml --trials 20 --parallel 4
    """
    fields = {
        "name": name,
        "group": group,
        "on": on or None,
        "sweep.trials": trials,
        "sweep.parallel": parallel,
    }
    options = {field: value for field, value in fields.items() if value is not None}
    if local and on:
        raise click.UsageError("--local and --on exclude each other")
    from causeway.commands.sweep import loaded_search, sweep_in_cluster

    loaded = loaded_search(file, options, parameters)
    machines = () if local else loaded.job.on
    if (local or machines) and dry_run:
        raise click.UsageError("--dry-run is for searches in the cluster")
    if local or machines:
        from causeway.commands.sweep_local import sweep_local

        sys.exit(sweep_local(loaded, machines, allow_secrets=allow_secrets, as_json=as_json))
    given: dict[str, Any] = {"allow_secrets": allow_secrets, "as_json": as_json}
    try:
        sys.exit(sweep_in_cluster(loaded, **given, dry_run=dry_run, yes=yes))
    except UnreachableError as error:
        raise _or_here(error, "causeway sweep --local") from None


@sweep.command("show", context_settings=_CONTEXT)
@click.argument("name", required=False, shell_complete=_known_searches)
@click.option("--all", "everything", is_flag=True, help="All trials. Default: the best twenty.")
@click.option("-w", "--watch", is_flag=True, help="Refresh until the search is over.")
@click.option("--html", "page", metavar="FILE", help="Write a page with parallel coordinates and curves.")
@_here
@_group
@_json
def sweep_show(
    name: str | None,
    everything: bool,
    watch: bool,
    page: str | None,
    local: bool,
    group: str | None,
    as_json: bool,
) -> None:
    """Show a search: trials, the best one, where and why trials were stopped. Without NAME, list searches.

    \b
    causeway sweep show resnet-s1
    causeway sweep show resnet-s1 --html resnet.html
    """
    if name is None and (watch or page):
        raise click.UsageError("--watch and --html need the name of a search")
    if (name and _is_here(name, group)) or _is_local(local, group):
        from causeway.commands.sweep_local import show_local

        sys.exit(show_local(name, everything=everything, watch=watch, page=page, as_json=as_json))
    from causeway.commands.sweep import show_in_cluster

    sys.exit(show_in_cluster(name, group, everything=everything, watch=watch, page=page, as_json=as_json))


@sweep.command("stop", context_settings=_CONTEXT)
@click.argument("name", shell_complete=_known_searches)
@_here
@_group
@_json
def sweep_stop(name: str, local: bool, group: str | None, as_json: bool) -> None:
    """Stop a search with its trials. They keep their record and checkpoints.

    \b
    causeway sweep stop resnet-s1
    """
    from causeway.commands import sweep as sweeps
    from causeway.commands import sweep_local

    if _is_here(name, group) or _is_local(local, group):
        sys.exit(sweep_local.stop_local(name, as_json=as_json))
    sys.exit(sweeps.stop(name, group, as_json=as_json))


@sweep.command("resume", context_settings=_CONTEXT)
@click.argument("name", shell_complete=_known_searches)
@_here
@_group
@_json
def sweep_resume(name: str, local: bool, group: str | None, as_json: bool) -> None:
    """Resume a search that was stopped or has failed, with trials from their checkpoints.

    \b
    causeway sweep resume resnet-s1
    """
    from causeway.commands import sweep as sweeps
    from causeway.commands import sweep_local

    if _is_here(name, group) or _is_local(local, group):
        sys.exit(sweep_local.resume_local(name, None, as_json=as_json))
    sys.exit(sweeps.resume(name, group, as_json=as_json))


@sweep.command("extend", context_settings=_CONTEXT)
@click.argument("name", shell_complete=_known_searches)
@click.option("--trials", type=click.IntRange(1), required=True, metavar="N", help="Total number of trials.")
@_here
@_group
@_json
def sweep_extend(name: str, trials: int, local: bool, group: str | None, as_json: bool) -> None:
    """Add trials to a search, also after it is done.

    \b
    causeway sweep extend resnet-s1 --trials 200
    """
    from causeway.commands import sweep as sweeps
    from causeway.commands import sweep_local

    if _is_here(name, group) or _is_local(local, group):
        sys.exit(sweep_local.resume_local(name, trials, as_json=as_json))
    sys.exit(sweeps.extend(name, group, trials, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option("--sweep", "search", metavar="NAME", help="The trials of a search.")
@_here
@_group
@_on
@_json
def ps(watch: bool, search: str | None, local: bool, group: str | None, on: list[str], as_json: bool) -> None:
    """List runs, the newest first; a search is one line.

    \b
    causeway ps --group vision
    causeway ps --sweep resnet-s1          its trials
    causeway ps --watch
    causeway ps --local                    runs of this machine
    causeway ps --on titan-01,titan-02     runs of these machines, from all laptops
    """
    from causeway.machines import records

    here = search is not None and _is_here(search, group) and not local
    if watch and (as_json or on or here):
        raise click.UsageError("--watch is for a terminal and a cluster: it excludes --json and --on")
    used = bool(records.names()) and not local
    if on or used or here:  # most users have no runs there, and need not wait for these imports
        from causeway.commands import machines
    if on or here:
        sys.exit(machines.ps(on, search, as_json=as_json))
    if _is_local(local, group, on):
        from causeway.commands import here as runs_here

        own = runs_here.listed(search) if as_json else []
        if used and not (watch or search):
            if not as_json:
                runs_here.ps(search)
            sys.exit(machines.ps((), as_json=as_json, more=own))
        if as_json:
            click.echo(json.dumps(own))
            return
        sys.exit(runs_here.ps(search, watch=watch))
    from causeway.commands import watching

    try:
        code = watching.ps(group, search, watch=watch, as_json=as_json)
    finally:  # also without the VPN
        if used and not (as_json or group or watch or search):
            machines.ps((), as_json=False)
    sys.exit(code)


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@_here
@_group
@_on
@_json
def show(run: str, local: bool, group: str | None, on: list[str], as_json: bool) -> None:
    """Show details of a run: metrics, use of GPUs and memory, checkpoints, cost.

    \b
    causeway show resnet-3
    causeway show --local project-1
    """
    from causeway.commands.show import show as show_run

    sys.exit(show_run(run, group, **_place([run], local, on, group), as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, required=True, shell_complete=_known_runs)
@click.option("--diff", is_flag=True, help="Also show the lines of code that differ.")
@_here
@_group
@_on
@_json
def compare(
    runs: tuple[str, ...], diff: bool, local: bool, group: str | None, on: list[str], as_json: bool
) -> None:
    """Show how runs differ: parameters and fields, code, image, GPUs, final metrics.

    \b
    causeway compare resnet-3 resnet-4
    causeway compare resnet-3 resnet-4 --diff
    """
    from causeway.commands.compare import compare as compare_runs

    if len(runs) < 2:
        raise click.UsageError("name at least two runs")
    place = _place(runs, local, on, group)
    sys.exit(compare_runs(runs, group, **place, shows_code=diff, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, shell_complete=_known_runs)
@click.option("--experiment", metavar="NAME", help="Runs of this experiment of MLflow.")
@click.option("--sweep", "search", metavar="NAME", help="The trials of a search.")
@click.option("-o", "--output", "to", metavar="FILE", help="Write to this file instead of standard output.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, which is the default.")
@_here
@_group
@_json
def export(
    runs: tuple[str, ...],
    experiment: str | None,
    search: str | None,
    to: str | None,
    as_csv: bool,
    local: bool,
    group: str | None,
    as_json: bool,
) -> None:
    """Write a table of runs, by default of all: state, cost, code, image, parameters, last metrics.

    \b
    causeway export -o runs.csv
    causeway export 'resnet-*' --json
    causeway export --sweep resnet-s1             its trials
    causeway export --local
    """
    from causeway.commands.export import export as export_runs

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    local = _is_local(local, group)
    if local and search:
        raise click.UsageError(f"--sweep is for a cluster; on this machine: causeway export '{search}-*'")
    given = {"experiment": experiment, "search": search, "to": to}
    sys.exit(export_runs(runs, group, local=local, as_json=as_json, **given))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@_here
@_group
@_on
@_json
def why(run: str, local: bool, group: str | None, on: list[str], as_json: bool) -> None:
    """Explain why a run waits, or which worker failed first, with its error.

    \b
    causeway why resnet-3
    """
    where = "here" if not local and _is_here(run, group) else _where([run], local, on, group)
    if where == "here":
        from causeway.commands import here, sweep_local
        from causeway.sweep_files import is_recorded

        if is_recorded(run):
            sys.exit(sweep_local.show_local(run, everything=False, watch=False, page=None, as_json=as_json))
        sys.exit(here.why(run, as_json=as_json))
    from causeway.commands import machines, watching

    if where == "machines":
        sys.exit(machines.why(run, on, as_json=as_json))
    sys.exit(watching.why(run, group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends, through its restarts.")
@click.option("--worker", metavar="worker-3", help="Only this worker.")
@click.option(
    "--attempt", type=click.IntRange(0), metavar="N", help="Output of this attempt; 0 is the first."
)
@_here
@_group
@_on
@_json
def logs(
    run: str,
    follow: bool,
    worker: str | None,
    attempt: int | None,
    local: bool,
    group: str | None,
    on: list[str],
    as_json: bool,
) -> None:
    """Show the output of all workers of a run, also when its pods are gone.

    \b
    causeway logs -f resnet-3
    causeway logs resnet-3 --worker worker-1 --attempt 0
    """
    where = _where([run], local, on, group)
    if where == "here":
        from causeway.commands import here

        if attempt is not None:
            raise click.UsageError(
                "a run of this machine has one output for all attempts: --attempt does not apply"
            )
        sys.exit(here.logs(run, follows=follow, worker=worker, as_json=as_json))
    if where == "machines":
        from causeway.commands import machines

        sys.exit(machines.logs(run, on, follows=follow, worker=worker, start=attempt, as_json=as_json))
    from causeway.commands.logs import logs as show

    sys.exit(show(run, group, follows=follow, worker=worker, attempt=attempt, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, required=True, shell_complete=_known_runs)
@_here
@_group
@_on
@_json
def stop(runs: tuple[str, ...], local: bool, group: str | None, on: list[str], as_json: bool) -> None:
    """Stop runs: SIGTERM, `grace`, SIGKILL. They keep their record, and can be resumed.

    \b
    causeway stop resnet-3 resnet-4
    """
    where = _where(runs, local, on, group)
    if where == "here":
        from causeway.commands import here

        sys.exit(here.stop(runs, as_json=as_json))
    from causeway.commands import machines, watching

    if where == "machines":
        sys.exit(machines.stop(runs, on, as_json=as_json))
    sys.exit(watching.stop(runs, group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, required=True, shell_complete=_known_runs)
@_group
@_json
def wait(runs: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Wait until runs of the cluster end, also across lost connections; exit code 0 if all are done.

    \b
    causeway wait resnet-3 resnet-4 && causeway run evaluate.yaml
    """
    if _on_machines(runs, [], group):
        raise click.UsageError("to follow runs on machines: causeway logs -f RUN")
    from causeway.commands.wait import wait as until_all_end

    sys.exit(until_all_end(runs, group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, required=True, shell_complete=_known_runs)
@click.option("--local", is_flag=True, help="A run of this machine; it runs here again.")
@click.option("--time", "seconds", callback=_duration, metavar="8h", help="Maximum run time from now on.")
@_yes
@_group
@_on
@_json
def resume(
    runs: tuple[str, ...],
    local: bool,
    seconds: int | None,
    yes: bool,
    group: str | None,
    on: list[str],
    as_json: bool,
) -> None:
    """Resume runs from their last checkpoint, with the code that was submitted.

    \b
    causeway resume resnet-3             stopped: queued again. Failed or timed out: a new run resumes
    causeway resume resnet-3 --time 8h   a timed-out run, with eight more hours
    causeway resume --local project-1
    """
    where = _where(runs, local, on, group)
    if where == "here":
        from causeway.commands.run import resume_local

        if len(runs) > 1:
            raise click.UsageError("--local resumes one run")
        sys.exit(resume_local(runs[0], seconds, as_json=as_json))
    from causeway.commands import machines, watching

    if where == "machines":
        sys.exit(machines.resume(runs, on, seconds, as_json=as_json))
    sys.exit(watching.resume(runs, group, seconds, as_json=as_json, yes=yes))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@click.option("--exact", is_flag=True, help="Also use its image digest, packages and GPU model.")
@click.option("--local", is_flag=True, help="A run of this machine; it runs here again.")
@click.option("-d", "--detach", is_flag=True, help="Submit the run and return.")
@_yes
@_group
@_on
@_json
def rerun(
    run: str,
    exact: bool,
    local: bool,
    detach: bool,
    yes: bool,
    group: str | None,
    on: list[str],
    as_json: bool,
) -> None:
    """Submit a run again, from its beginning, with the same job and code.

    --exact lists what may differ.

    \b
    causeway rerun resnet-3
    causeway rerun resnet-3 --exact
    causeway rerun --local project-1
    """
    where = _where([run], local, on, group)
    if where == "machines":
        from causeway.commands import machines

        sys.exit(machines.rerun(run, on, exact=exact, detach=detach, as_json=as_json))
    if where == "here":
        from causeway.commands.run import rerun_local

        if detach:
            raise click.UsageError("--detach does not apply to --local, which runs here and immediately")
        sys.exit(rerun_local(run, exact=exact, as_json=as_json))
    from causeway.commands import submit

    sys.exit(submit.rerun(run, group, exact=exact, as_json=as_json, detach=detach, yes=yes))


@cli.command(cls=_AfterDashes, context_settings=_CONTEXT)
@click.argument("run", required=False, shell_complete=_known_runs)
@click.option("--worker", metavar="worker-3", help="Worker of that run. Default: the first that is running.")
@click.option("--node", metavar="NAME", help="Log in to an SSH node instead.")
@click.option("--stdio", is_flag=True, help="Serve one ssh connection, as the ProxyCommand of ssh-config.")
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="GPUs.")
@click.option("--time", default="8h", show_default=True, help="Maximum duration.")
@click.option("--idle", default="1h", show_default=True, help="End it after this time without use.")
@click.option("--image", help="An image of the cluster by name, or a reference.")
@click.option("--python", metavar="FILE", help="Packages to install, as for `run`.")
@click.option("--priority", help="Priority class of the cluster.")
@click.option("--allow-secrets", is_flag=True, help="Ship files that look like secrets.")
@_yes
@_group
@_on
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, for programs: how the command ended, its output on stderr; or where a new shell runs.",
)
@click.pass_context
def shell(
    ctx: click.Context,
    /,
    run: str | None,
    worker: str | None,
    node: str | None,
    stdio: bool,
    yes: bool,
    allow_secrets: bool,
    group: str | None,
    on: list[str],
    as_json: bool,
    **fields: Any,
) -> None:
    """Open a terminal on a GPU with this folder's code, in a worker of RUN, or on an SSH node.

    \b
    causeway shell --gpus 1 --time 8h                    ends when you leave, or when it is idle
    causeway shell resnet-3 --worker worker-1            next to the running program
    causeway shell resnet-3 -- nvidia-smi                one command
    causeway shell --on titan-01 --gpus 2                on a machine over ssh, with leased GPUs
    causeway shell --node login                          plain ssh
    """
    from causeway.commands import shell as shells

    command: tuple[str, ...] = ctx.meta["after dashes"]
    if as_json and (node is not None or stdio or on or (run is not None and not command)):
        raise click.UsageError("--json is for a command in a run of the cluster, or for a new shell there")
    if node is not None:
        sys.exit(shells.log_in(node, command))
    if stdio:
        from causeway.commands.ssh_config import serving

        if run is None or command:
            raise click.UsageError("--stdio needs the name of a run, and no command")
        command = serving()
    if run is not None and _on_machines([run], on, group):
        from causeway.commands import entering

        if as_json:
            raise click.UsageError("--json is for runs of the cluster")

        sys.exit(entering.enter(run, worker, on, command))
    if run is not None:
        sys.exit(shells.enter(run, worker, group, command, as_json=as_json))
    if command or worker:
        raise click.UsageError("a command and --worker need the name of a run; for a new one: causeway run")
    options = {name: value for name, value in fields.items() if value is not None}
    if on:
        from causeway.commands import entering

        sys.exit(entering.open_shell({**options, "on": on}, allow_secrets=allow_secrets))
    options |= {"group": group} if group else {}
    sys.exit(shells.open_shell(options, allow_secrets=allow_secrets, yes=yes, as_json=as_json))


@cli.command("ssh-config", context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@click.option("--worker", metavar="worker-3", help="Worker of that run. Default: the first that is running.")
@_group
@_on
def ssh_config(run: str, worker: str | None, group: str | None, on: list[str]) -> None:
    """Print a Host entry for ~/.ssh/config for a running worker: for VS Code, scp and sftp.

    \b
    causeway ssh-config shell-3 >> ~/.ssh/config
    """
    from causeway.commands.ssh_config import ssh_config as print_config

    sys.exit(print_config(run, worker, group, on))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", required=False, shell_complete=_known_runs)
@click.option("--gpus", type=click.IntRange(0), default=1, show_default=True, metavar="N", help="GPUs.")
@click.option("--time", default="8h", show_default=True, help="Maximum duration.")
@click.option("--idle", default="1h", show_default=True, help="End it after this time without activity.")
@click.option("--image", help="An image of the cluster by name, or a reference.")
@click.option("--python", metavar="FILE", help="Packages to install, as for `run`.")
@click.option("--priority", help="Priority class of the cluster.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8888, show_default=True, help="Of this machine."
)
@click.option("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@click.option("-d", "--detach", is_flag=True, help="Start it and return.")
@click.option("--allow-secrets", is_flag=True, help="Ship files that look like secrets.")
@click.option("--local", is_flag=True, help="On this machine, without a cluster.")
@_yes
@_group
@_on
def notebook(
    run: str | None,
    idle: str,
    port: int,
    no_browser: bool,
    detach: bool,
    allow_secrets: bool,
    local: bool,
    yes: bool,
    group: str | None,
    on: list[str],
    **fields: Any,
) -> None:
    """Open JupyterLab on a GPU, with this folder's code on its path; or reconnect to RUN.

    The image or --python must contain jupyterlab.

    \b
    causeway notebook --gpus 1
    causeway notebook notebook-3                  a running one
    causeway notebook --on titan-01 --gpus 2      on a machine over ssh
    causeway notebook --local                     on this one
    """
    from causeway.commands import notebook as notebooks

    shown: dict[str, Any] = {"port": port, "browser": not no_browser}
    if run is not None:
        where = _where([run], local, on, group)
        if where == "machines":
            sys.exit(notebooks.open_on(run, on, **shown))
        if where == "here":
            sys.exit(notebooks.open_here(run, **shown))
        sys.exit(notebooks.open_in_cluster(run, group, **shown))
    if local and (on or group):
        raise click.UsageError("--local excludes --group and --on")
    options = {name: value for name, value in fields.items() if value is not None}
    options |= {"group": group} if group else {}
    begun = {**shown, "detach": detach, "allow_secrets": allow_secrets}
    if local:
        sys.exit(notebooks.start_here(options, idle, **begun))
    if on:
        sys.exit(notebooks.start_on({**options, "on": on}, idle, **begun))
    sys.exit(notebooks.start_in_cluster(options, idle, **begun, yes=yes))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@click.argument("folder", required=False, default="")
@click.option("--diff", is_flag=True, help="Show the differences from FOLDER, by default the current one.")
@_here
@_group
@_on
@_json
def code(
    run: str, folder: str, diff: bool, local: bool, group: str | None, on: list[str], as_json: bool
) -> None:
    """Write the code of a run to a new folder, by default named after the run.

    \b
    causeway code resnet-3
    causeway code resnet-3 --diff
    """
    from causeway.commands import files

    place = _place([run], local, on, group)
    sys.exit((files.diff if diff else files.code)(run, group, folder, **place, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@click.argument("path", required=False, default="")
@click.option("--to", "folder", default="", metavar="FOLDER", help="Default: the run's name.")
@click.option(
    "--checkpoint", metavar="NAME", help="Download this checkpoint of `causeway checkpoints` instead."
)
@_here
@_group
@_on
@_json
def get(
    run: str,
    path: str,
    folder: str,
    checkpoint: str | None,
    local: bool,
    group: str | None,
    on: list[str],
    as_json: bool,
) -> None:
    """Fetch what a run wrote below $CAUSEWAY_RESULTS: all of it, or a file or folder of it.

    \b
    causeway get resnet-3
    causeway get resnet-3 plots --to today
    causeway get resnet-3 --checkpoint step-1200
    """
    where = _where([run], local, on, group)
    if checkpoint is not None:
        from causeway.commands import checkpoints as commands

        if path:
            raise click.UsageError("--checkpoint and PATH exclude each other")
        place = _place([run], local, on, group)
        sys.exit(commands.fetched(run, group, checkpoint, folder, **place, as_json=as_json))
    if where == "here":
        from causeway.commands import here

        sys.exit(here.get(run, path, folder, as_json=as_json))
    if where == "machines":
        from causeway.commands import machines

        sys.exit(machines.get(run, on, path, folder, as_json=as_json))
    from causeway.commands import files

    sys.exit(files.get(run, group, path, folder, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@_here
@_group
@_on
@_json
def checkpoints(run: str, group: str | None, on: list[str], local: bool, as_json: bool) -> None:
    """List a run's checkpoints: step, size, age, site, and which one it resumes from.

    \b
    causeway checkpoints resnet-3
    causeway get resnet-3 --checkpoint step-1200
    """
    from causeway.commands import checkpoints as commands

    sys.exit(commands.listed(run, group, **_place([run], local, on, group), as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", shell_complete=_known_runs)
@click.argument("paths", nargs=-1, required=True)
@_group
@_json
def put(run: str, paths: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Add files and folders to a run's results, for when it is resumed.

    \b
    causeway put resnet-3 best.pt
    """
    from causeway.commands import files

    sys.exit(files.put(run, group, paths, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@_group
@_json
def doctor(group: str | None, as_json: bool) -> None:
    """Check the connection to the cluster step by step, with a fix for each failure.

    \b
    causeway doctor
    """
    from causeway.commands.doctor import doctor as examine

    sys.exit(examine(group, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@_on
@_json
def gpus(on: list[str], as_json: bool) -> None:
    """List GPUs: models, free ones, prices; on machines, who uses them until when.

    \b
    causeway gpus
    causeway gpus --on titan-01,titan-02
    """
    if on:
        from causeway.commands.leases import gpus_on

        sys.exit(gpus_on(on, as_json=as_json))
    from causeway.commands.gpus import gpus as show

    sys.exit(show(as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("hosts", metavar="HOST,…", callback=_hosts)
@click.option("--for", "seconds", callback=_duration, metavar="8h", help="Duration of the reservation.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs of each machine. Default: all.")
@click.option("--end", is_flag=True, help="End your reservations there.")
@_json
def reserve(hosts: list[str], seconds: int | None, gpus: int | None, end: bool, as_json: bool) -> None:
    """Reserve GPUs of machines without a cluster: your runs use them, others wait.

    \b
    causeway reserve titan-01 --for 8h
    causeway reserve titan-01,titan-02 --for 1d --gpus 2
    causeway reserve titan-01 --end
    """
    from causeway.commands import leases

    if end:
        if seconds or gpus:
            raise click.UsageError("--end ends all your reservations there: it excludes --for and --gpus")
        sys.exit(leases.unreserve(hosts, as_json=as_json))
    if not seconds:
        raise click.UsageError("--for is missing: how long to reserve, for example --for 8h")
    sys.exit(leases.reserve(hosts, seconds, gpus, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Of this machine."
)
def dashboards(port: int) -> None:
    """Open Grafana: use of GPUs, queues, cost.

    \b
    causeway dashboards
    """
    from causeway.commands.dashboards import dashboards as show

    sys.exit(show(port))


@cli.command(context_settings=_CONTEXT)
@click.argument("runs", nargs=-1, shell_complete=_known_runs)
@click.option("--stop", is_flag=True, help="Stop the board.")
@_here
@click.option(
    "--here", is_flag=True, help="TensorBoard on this machine, with a live copy of the cluster's runs."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=6006, show_default=True, help="Of this machine."
)
@click.option("-d", "--detach", is_flag=True, help="Start it and return.")
@_group
@_json
def board(
    runs: tuple[str, ...],
    stop: bool,
    local: bool,
    here: bool,
    port: int,
    detach: bool,
    group: str | None,
    as_json: bool,
) -> None:
    """Open TensorBoard for RUNS, by default the last ten: event files below $CAUSEWAY_LOGS, and reported
    metrics.

    \b
    causeway board                        the last runs
    causeway board resnet-3 resnet-4      these, instead of those that it shows
    causeway board --stop                 it also stops after 8 hours, or 2 without a request
    causeway board --local project-1      of this machine
    """
    from causeway.commands import board as boards

    if local + here + stop > 1:
        raise click.UsageError("--stop, --local and --here exclude each other")
    if (local or here) and (detach or as_json):
        raise click.UsageError("--local and --here run until Ctrl-C: they exclude --detach and --json")
    if stop:
        sys.exit(boards.stop(group, as_json=as_json))
    if not (here or detach or as_json) and _is_local(local, group):
        sys.exit(boards.here(runs, port=port))
    if here:
        sys.exit(boards.copied(runs, group, port=port))
    sys.exit(boards.board(runs, group, port=port, detach=detach, as_json=as_json))


@cli.command(context_settings=_CONTEXT)
@click.argument("run", required=False, shell_complete=_known_runs)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=5000, show_default=True, help="Of this machine."
)
@click.option("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@_here
@_group
def ui(run: str | None, port: int, no_browser: bool, local: bool, group: str | None) -> None:
    """Open MLflow: parameters, metrics and files of all runs, or those of RUN.

    \b
    causeway ui
    causeway ui resnet-3
    causeway ui --local
    """
    from causeway.commands.ui import ui as show
    from causeway.commands.ui import ui_local

    if _is_local(local, group):
        sys.exit(ui_local(run, port))
    sys.exit(show(run, group, port, browser=not no_browser))


@cli.command(context_settings=_CONTEXT)
@_group
def env(group: str | None) -> None:
    """Print the environment variables of MLflow's client. The token is valid for an hour.

    \b
    eval "$(causeway env)"
    """
    from causeway.commands.ui import env as show

    sys.exit(show(group))


def _topics(_: click.Context, __: object, incomplete: str) -> list[str]:
    """Return what ``help`` knows, also for shell completion."""
    return [name for name in sorted([*cli.commands, "job"]) if name.startswith(incomplete)]


@cli.command("help", context_settings=_CONTEXT)
@click.argument("words", nargs=-1, metavar="[COMMAND]", shell_complete=_topics)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command; `job` shows all fields of a job file.

    \b
    causeway help run
    causeway help job
    """
    if words == ("job",):
        from causeway.commands.helping import job_fields

        click.echo_via_pager(job_fields()) if sys.stdout.isatty() else click.echo(job_fields())
        return
    assert ctx.parent is not None
    command, where = ctx.parent.command, ctx.parent
    for word in words:
        found = command.get_command(where, word) if isinstance(command, click.Group) else None
        if found is None:
            near = difflib.get_close_matches(word, _topics(ctx, command, ""), n=1)
            hint = f"did you mean {near[0]}?" if near else "causeway --help lists the commands"
            raise click.UsageError(f"unknown command {' '.join(words)}; {hint}")
        where = click.Context(found, info_name=word, parent=where)
        command = found
    click.echo(command.get_help(where))


def main() -> None:
    """Entry point. Errors are printed to stderr, and the exit code is their kind; with ``--json`` an error is
    also the last line on stdout."""
    # A list of runs consists of hundreds of thousands of long-lived objects: with the default thresholds,
    # garbage collection takes as long as reading them.
    gc.set_threshold(50_000)
    words = sys.argv[1:]
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        # Otherwise click ends the program itself on a usage error.
        sys.exit(cli(prog_name="causeway", standalone_mode=not as_json))
    except CausewayError as error:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        problems = [asdict(each) for each in error.problems] if isinstance(error, InputError) else []
        code, message = error.exit_code, str(error)
    except click.ClickException as error:
        error.show()
        problems, code, message = [], error.exit_code, error.format_message()
    except click.Abort:
        click.echo("Aborted!", err=True)
        problems, code, message = [], 1, "aborted"
    if as_json:
        click.echo(json.dumps({"error": {"code": code, "message": message, "problems": problems}}))
    sys.exit(code)
