"""The embedded AWS: start, stop, reset, status."""

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
    """Stop it. Its resources are lost, so the state that names them is set aside."""
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
    """Raise ``UsageError`` for an environment on real AWS, whose state must not be set aside."""
    if not environment.rehearsed and not _lives_there(environment):
        raise UsageError(
            f"{environment.name} is not on the embedded AWS; its rehearsal is, which --rehearse names"
        )


def _lives_there(environment: Environment) -> bool:
    """Whether the spec uses the embedded AWS. An invalid spec does not prevent stopping a server that was
    started for it."""
    try:
        return load(environment.spec_file).spec.aws.embedded
    except SpecError:
        if not embedded_folder(environment).is_dir():
            raise
        before = applied(environment)
        return before is None or bool(before["aws"]["embedded"])


def _put_aside(environment: Environment) -> None:
    """Stop it if it is running, and set aside the state of its resources."""
    from infra.drive import last_applied, localaws, saved_plan
    from infra.drive.build_folders import Folders

    folders = Folders(environment.build.absolute())
    aside = localaws.reset(embedded_folder(environment).absolute(), state_file(environment))
    saved_plan.discard(folders)
    last_applied.forget(folders)
    if aside is not None:
        note(f"The state of its resources is in {aside}.")


def status(environment: Environment, *, json: bool) -> int:
    """Whether it is running, its address, and its resources; 1 if it is not running."""
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
