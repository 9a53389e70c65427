"""Copies of etcd, and putting one back: what ``causeway-etcd-restore`` on the masters does, from here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from infra.drive.ssh import Remote
from infra.errors import DriveError, UsageError

PROGRAM: Final = "causeway-etcd-restore"
"""Of the kubernetes cookbook. Its verbs: list, stop, restore NAME --yes, start."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of etcd in the bucket."""

    name: str
    taken: datetime
    bytes: int


def copies(remote: Remote) -> list[Copy]:
    """What a master finds in the bucket, the newest first."""
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
    """The copy of a name; the newest without one. ``UsageError`` where there is none."""
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
    """A master's API server and etcd end: nobody writes any more."""
    remote.run(f"exec {PROGRAM} stop")


def restore(remote: Remote, name: str, masters: Sequence[str]) -> str:
    """Put a copy back on a master; its last line. ``masters``: those of the new etcd."""
    script = f'exec {PROGRAM} restore "$1" --yes --force --masters "$2"'
    _, said = remote.run(script, name, ",".join(masters))
    return (said.strip().splitlines() or ["restored"])[-1]
