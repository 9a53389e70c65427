"""Records bakes in progress on disk, so that the next command cleans up after a killed one.

``state/bakes/<id>.json`` names the resources. While a bake runs, its process locks ``<id>.run``, and its
Packer ``<id>.packer``, both by flock(2): an entry with neither lock belongs to a dead bake.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from infra.drive import clock
from infra.drive.build_folders import private
from infra.drive.flock import Taken, held
from infra.drive.secret_files import write_file

_PATIENCE: Final = 600.0
"""Seconds that a Packer without a parent may take to clean up."""

_TIME: Final = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, slots=True)
class Entry:
    """A bake."""

    id: str
    """``20261121-140311-5f3a9c``: the start in UTC, and a random suffix."""
    image: str
    name: str
    """The name of the AMI in every region."""
    region: str
    """The region of the build instance."""
    regions: tuple[str, ...]


def new_id(now: datetime | None = None) -> str:
    """An id for a bake that begins now."""
    return f"{(now or clock.now()).strftime(_TIME)}-{secrets.token_hex(3)}"


def begun(bake: str) -> datetime | None:
    """When the bake with this id began; None if the text is not an id."""
    try:
        return datetime.strptime(bake.rpartition("-")[0], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


class Journal:
    """The records of an environment's bakes."""

    def __init__(self, state: Path) -> None:
        self.folder = private(private(state) / "bakes")

    def log(self, bake: str) -> Path:
        """The path of Packer's log; it is kept after the bake."""
        return self.folder / f"{bake}.log"

    def packer_lock(self, bake: str) -> Path:
        return self.folder / f"{bake}.packer"

    @contextmanager
    def running(self, entry: Entry) -> Iterator[None]:
        """Record that the bake runs in this process."""
        with held(self.folder / f"{entry.id}.run", mode=0o600):
            write_file(self.folder / f"{entry.id}.json", json.dumps(asdict(entry)) + "\n")
            yield

    def done(self, entry: Entry) -> None:
        """Remove the entry: everything is cleaned up."""
        for ending in ("json", "key", "run", "packer", "vars.json", "manifest.json", "tar.gz"):
            (self.folder / f"{entry.id}.{ending}").unlink(missing_ok=True)

    @contextmanager
    def dead(self, *, patience: float = _PATIENCE) -> Iterator[list[Entry]]:
        """Yield the entries of bakes whose process died. If a Packer among them still cleans up, wait for
        it."""
        from contextlib import ExitStack

        found: list[Entry] = []
        with ExitStack() as stack:
            for file in sorted(self.folder.glob("*.json")):
                entry = _read(file)
                if entry is None:
                    continue
                try:
                    stack.enter_context(held(self.folder / f"{entry.id}.run", mode=0o600))
                    stack.enter_context(held(self.packer_lock(entry.id), mode=0o600, timeout=patience))
                except Taken:
                    continue
                found.append(entry)
            yield found


def _read(file: Path) -> Entry | None:
    if file.name.endswith((".vars.json", ".manifest.json")):
        return None
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
        return Entry(row["id"], row["image"], row["name"], row["region"], tuple(row["regions"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
