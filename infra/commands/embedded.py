"""The embedded AWS: start, stop, reset."""

from __future__ import annotations

from infra.commands.environment import Environment, applied
from infra.commands.session import embedded_folder, started, state_file
from infra.commands.terminal import note, say, say_json
from infra.errors import SpecError, UsageError
from infra.load import load


def up(environment: Environment) -> int:
    """Start it, if it is not running."""
    _require(environment)
    server = started(environment)
    say(f"The embedded AWS of {environment.name} answers on {server.address} (process {server.pid}).")
    return 0


def down(environment: Environment) -> int:
    """Stop it; its resources go with it, so the state that names them is put aside."""
    from infra.drive import localaws, workspace

    _require(environment)
    with workspace.locked(environment.build):
        if not localaws.stop(embedded_folder(environment).absolute()):
            say(f"No embedded AWS of {environment.name} is running.")
            return 0
        say(f"Stopped the embedded AWS of {environment.name}.")
        _put_aside(environment)
    return 0


def reset(environment: Environment) -> int:
    """Stop it, and set aside the state of its resources."""
    from infra.drive import workspace

    _require(environment)
    with workspace.locked(environment.build):
        _put_aside(environment)
    say(f"{environment.name} is empty again: nothing is applied.")
    return 0


def _require(environment: Environment) -> None:
    """``UsageError`` for an environment on real AWS: its state must not be taken for the embedded one's."""
    if not environment.rehearsed and not _lives_there(environment):
        raise UsageError(
            f"{environment.name} is not on the embedded AWS; its rehearsal is, which --rehearse names"
        )


def _lives_there(environment: Environment) -> bool:
    """As its spec says. An invalid spec does not prevent stopping what was started for it before."""
    try:
        return load(environment.spec_file).spec.aws.embedded
    except SpecError:
        if not embedded_folder(environment).is_dir():
            raise
        before = applied(environment)
        return before is None or bool(before["aws"]["embedded"])


def _put_aside(environment: Environment) -> None:
    """Stop it, where it runs, and move away what speaks of its resources."""
    from infra.drive import last_applied, localaws, saved_plan
    from infra.drive.build_folders import Folders

    folders = Folders(environment.build.absolute())
    aside = localaws.reset(embedded_folder(environment).absolute(), state_file(environment))
    saved_plan.discard(folders)
    last_applied.forget(folders)
    if aside is not None:
        note(f"The state of its resources is in {aside}.")


def status(environment: Environment, *, json: bool) -> int:
    """Whether it runs, where, and what it holds; 1 when it does not run."""
    from infra.drive import localaws

    _require(environment)
    server = localaws.status(embedded_folder(environment).absolute())
    if server is None:
        if json:
            say_json({"running": False})
        else:
            say(f"No embedded AWS of {environment.name} is running.")
        return 1
    held = localaws.inventory(server)
    if json:
        say_json({"running": True, "address": server.address, "pid": server.pid, "inventory": held})
        return 0
    say(f"{server.address}, process {server.pid}, log {localaws.log(server.folder)}")
    for region, kinds in held.items():
        say(f"  {region}: {', '.join(f'{len(ids)} {kind}' for kind, ids in kinds.items())}")
    return 0
