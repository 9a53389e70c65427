"""Lists and restores etcd snapshots by running ``causeway-etcd-restore`` on the masters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from infra.drive.ssh import Remote
from infra.errors import DriveError, UsageError

PROGRAM: Final = "causeway-etcd-restore"
"""A program of the kubernetes cookbook. Its commands: list, stop, restore NAME --yes, start."""


@dataclass(frozen=True, slots=True)
class Copy:
    """An etcd snapshot in the bucket."""

    name: str
    taken: datetime
    bytes: int


def copies(remote: Remote) -> list[Copy]:
    """The snapshots that a master finds in the bucket, the newest first."""
    _, text = remote.run(f"exec {PROGRAM} list")
    found = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
            found.append(Copy(str(row["name"]), datetime.fromisoformat(row["taken"]), int(row["bytes"])))
        except (ValueError, KeyError, TypeError):
            raise DriveError(
                f"{remote.name}: {PROGRAM} list says {line[:80]!r}, which is not a copy of etcd"
            ) from None
    return sorted(found, key=lambda each: each.taken, reverse=True)


def chosen(found: Sequence[Copy], name: str) -> Copy:
    """The snapshot with this name; the newest if the name is empty. Raises ``UsageError`` if there is
    none."""
    if not found:
        raise UsageError("the bucket has no copy of etcd")
    if not name:
        return found[0]
    for each in found:
        if name in {each.name, each.name.rpartition("/")[2]}:
            return each
    from infra.nearest import meant_one_of

    raise UsageError(f"{name}: no such copy; {meant_one_of(name, [each.name for each in found])}")


def stop(remote: Remote) -> None:
    """Stop a master's API server and etcd, so that nothing is written."""
    remote.run(f"exec {PROGRAM} stop")


def restore(remote: Remote, name: str, masters: Sequence[str]) -> str:
    """Restore a snapshot on a master; returns the last line of output. ``masters``: the members of the new
    etcd."""
    script = f'exec {PROGRAM} restore "$1" --yes --force --masters "$2"'
    _, said = remote.run(script, name, ",".join(masters))
    return (said.strip().splitlines() or ["restored"])[-1]
