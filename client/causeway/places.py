"""The folders of a worker on a disk that outlives the run."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from causeway.checkpoints import Policy
from causeway.restoring import restore
from causeway.saving import RESUMED, Saver, alive_until, parts_in
from causeway.storage import Folder

_EVERY = 1.0
"""Seconds between two checks for checkpoints."""
_AGAIN = 15.0
"""Seconds after which a failed copy is retried, however long ``sync`` is."""


@dataclass(frozen=True)
class Place:
    """The folders of a worker and of its run."""

    run: Path
    role: str
    rank: int

    @property
    def name(self) -> str:
        return f"{self.role}-{self.rank}"

    @property
    def checkpoints(self) -> Path:
        return self.run / "checkpoints" / self.name

    @property
    def events(self) -> Path:
        return self.run / "logs" / self.name

    @property
    def ended(self) -> Path:
        return self.run / "workers" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        return self.ended.with_suffix(".log")

    @property
    def metrics(self) -> Path:
        return self.ended.with_suffix(".metrics.jsonl")

    @property
    def usage(self) -> Path:
        return self.ended.with_suffix(".usage.jsonl")

    @property
    def stop(self) -> Path:
        return self.ended.with_suffix(".stop")

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that ``causeway.runtime`` reads."""
        return {
            "CAUSEWAY_RANK": str(self.rank),
            "CAUSEWAY_STATUS": str(self.ended),
            "CAUSEWAY_STOP": str(self.stop),
            "CAUSEWAY_CHECKPOINTS": str(self.checkpoints),
            "CAUSEWAY_METRICS": str(self.metrics),
            "CAUSEWAY_LOGS": str(self.events),
            "CAUSEWAY_USAGE": str(self.usage),
        }

    def save_left(self, policy: Policy) -> None:
        """Copy complete checkpoints of the last start, if it was killed before it could."""
        if self.name in policy.workers and (self.checkpoints / RESUMED).exists():
            self.saver(policy).save(alive_until(self.ended))

    def save_last(self, policy: Policy) -> str:
        """Copy what is left when all workers have ended; return the error, empty if there was none."""
        if self.name not in policy.workers:
            return ""
        try:
            self.saver(policy).save(alive_until(self.ended))
        except OSError as error:
            return str(error)
        return ""

    def begin(self, policy: Policy) -> None:
        """Restore what the run resumes from."""
        if self.checkpoints.exists() and not self.checkpoints.is_dir():
            # The program created it, so it is not removed.
            self.checkpoints.rename(self.checkpoints.with_suffix(f".{time.time_ns()}"))
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.events.mkdir(parents=True, exist_ok=True)
        restore([self._kept], policy, self.checkpoints)
        for path in (self.stop, self.ended):
            path.unlink(missing_ok=True)

    def saver(self, policy: Policy) -> Saver:
        site = socket.gethostname()
        return Saver(self.checkpoints, self._kept, policy, self.name, self.metrics, site)

    @property
    def is_kept(self) -> bool:
        """Whether a checkpoint of the run was saved."""
        return bool(parts_in(self._kept))

    @property
    def _kept(self) -> Folder:
        return Folder(self.run / "kept")


@contextlib.contextmanager
def saving(savers: Sequence[Saver], every: float | None) -> Iterator[None]:
    """Copy checkpoints in the background, as ``causeway.keep`` does in a cluster. ``every``: seconds, from
    the policy."""
    over = threading.Event()

    def save() -> None:
        pause = every or _EVERY
        while not over.wait(pause):
            saved = [_save(saver) for saver in savers]
            pause = (every or _EVERY) if all(saved) else min(every or _EVERY, _AGAIN)

    thread = threading.Thread(target=save)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _save(saver: Saver) -> bool:
    """Copy once; return whether that succeeded. If the disk is full, ``save_last`` reports it."""
    try:
        saver.save(time.time_ns())
    except OSError:
        return False
    return True
