"""Moves a state, with its ledger, to the location in the spec.

The steps are ordered so that the state is always complete in at least one place, and each may be repeated: a
run that is killed loses nothing, and the next one finishes.

1. The old place is closed, so that nobody changes the state meanwhile (S3: by Terraform's own lock).
2. The state is copied and read back.
3. The ledger is copied.
4. The new place is opened, if the state was once moved away from it.
5. The old copy is set aside (a file), or stays behind its lock (S3).
6. Terraform forgets the old backend.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from typing import Any

from infra.drive import shared_last_applied
from infra.drive.build_folders import Folders
from infra.drive.state_backends import Place, forget_backend, parsed
from infra.errors import DriveError


def move(
    source: Place,
    destination: Place,
    folders: Folders,
    *,
    step: Callable[[str], Any] = lambda _done: None,
) -> None:
    """``step`` is called after each step, with its name. Raises `DriveError` if another state is in the way,
    or this one is being changed; then nothing has changed."""
    stored = source.read()
    present = destination.read()
    ahead = False
    if stored is not None and present is not None and present.data != stored.data:
        ahead = _ahead(stored.data, present.data, source, destination)
    source.close(destination, _who(folders))
    step("closed")
    stored = source.read()  # from here on nobody changes it
    if stored is not None and not ahead:
        if present is None or present.data != stored.data:
            destination.write(stored.data, present)
        step("copied")
        copy = destination.read()
        if copy is None or copy.data != stored.data:
            raise DriveError(f"{destination} does not hold what was written; {source} is as it was")
    shared_last_applied.fetch(folders, source)
    shared_last_applied.publish(folders, destination)
    step("ledger")
    destination.open()
    step("opened")
    if stored is not None:
        source.retire()
    step("retired")
    forget_backend(folders)
    step("forgotten")


def finish(destination: Place, folders: Folders) -> None:
    """Undo what an unfinished move has left, when the state is at the location in the spec, or does not
    exist.

    Raises `DriveError` if it was moved by another user, or from another folder.
    """
    lock = destination.closed()
    if lock is not None:
        if lock.get("Who") != _who(folders):
            raise DriveError(f"{lock.get('Info')}, by {lock.get('Who')}; move it back from there")
        destination.open()
    forget_backend(folders)


def _ahead(stored: bytes, present: bytes, source: Place, destination: Place) -> bool:
    """Whether the destination has a later version of the same state: an earlier move was not finished."""
    old, new = parsed(stored), parsed(present)
    if old["lineage"] == new["lineage"]:
        return bool(new["serial"] > old["serial"])
    if new.get("resources"):
        raise DriveError(
            f"{destination} holds another state, with {len(new['resources'])} resources, than {source}; "
            "name another place in `state`, or look which of them is yours"
        )
    return False


def _who(folders: Folders) -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}:{folders.build}"
