"""Last checkpoints of runs, as reported by their sidecars, and as this program last saw them.

It reads a sidecar's output rather than the store, which would need a session with AWS first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path
from urllib3.exceptions import HTTPError

from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run, Worker, newest
from causeway.errors import CausewayError
from causeway.saving import SAVED

LINES = "50"
"""Number of output lines to read. The sidecar repeats problems every five minutes and reports checkpoints
every 15 seconds."""
_PATIENCE = 2.0
"""Seconds to wait for a pod's kubelet."""
_AT_ONCE = 8
_MOST = 24
"""Maximum number of runs that one command asks."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint in the store."""

    run: str
    name: str
    size: int
    """Bytes that one worker copies."""
    seconds: float
    """How long copying took; 0 if unknown."""
    at: float
    """When it was written, in seconds since the epoch."""

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"name": self.name, "bytes": self.size, "seconds": self.seconds, "written": self.at}


def last_of(run: str, lines: Iterable[str]) -> Saved | None:
    """Return the last checkpoint reported in a sidecar's output; None if there is none."""
    for line in reversed([*lines]):
        if line.startswith(SAVED):
            with suppress(KeyError, TypeError, ValueError):
                said = json.loads(line.removeprefix(SAVED))
                return Saved(
                    run, str(said["name"]), int(said["bytes"]), float(said["seconds"]), float(said["at"])
                )
    return None


def last_saved(cluster: Cluster, found: Sequence[Run]) -> dict[str, Saved]:
    """Return run → its last checkpoint: from the sidecars of the newest running runs, for other runs from
    this program's cache."""
    known = {run.name: seen for run in found if (seen := _read(_path(cluster, run.namespace, run.name)))}
    asked = [(run, worker) for run in found if (worker := _first(run))][:_MOST]

    def ask(run: Run, worker: Worker) -> Saved | None:
        path = f"/api/v1/namespaces/{run.namespace}/pods/{worker.name}/log"
        with suppress(CausewayError, HTTPError):
            lines = cluster.lines(path, _PATIENCE, container="keep", tailLines=LINES)
            return last_of(run.name, lines)
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for (run, _), saved in zip(asked, pool.map(lambda each: ask(*each), asked), strict=True):
            if saved is not None and saved != known.get(run.name):
                known[run.name] = saved
                remember(cluster, run.namespace, saved)
    return known


def _first(run: Run) -> Worker | None:
    """The worker whose sidecar reports checkpoints, for a run that copies some. It matches
    ``workers.ends_with``, which needs the whole job."""
    if run.state != "running" or run.job.get("checkpoints", {}).get("sync") is False:
        return None
    running = [each for each in newest(run.workers) if each.state == "running" and each.rank == 0]
    return min(running, key=lambda each: (each.role != "chief", each.role != "worker"), default=None)


def remember(cluster: Cluster, namespace: str, saved: Saved) -> None:
    """Save checkpoints in the cache. Losing it does no harm. Only the sidecar reports how long copying took:
    an entry read from the store does not replace the sidecar's for the same checkpoint."""
    path = _path(cluster, namespace, saved.run)
    before = _read(path)
    if before is not None and not saved.seconds and before.name == saved.name:
        saved = replace(saved, seconds=before.seconds)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(saved)), encoding="utf-8")


def recall(cluster: Cluster, namespace: str, base: str) -> Saved | None:
    """Return the checkpoint seen last for runs of one name (``resnet-3`` of ``resnet``). Makes no
    requests."""
    found = _path(cluster, namespace, base).parent.glob(f"{base}-*")
    runs = [path for path in found if re.fullmatch(r"\d+", path.name.removeprefix(f"{base}-"))]
    seen = filter(None, map(_read, runs))
    return max(seen, key=lambda each: each.at, default=None)


def _path(cluster: Cluster, namespace: str, run: str) -> Path:
    return user_cache_path("causeway") / "saved" / cluster.offer.store.bucket / namespace / run


def _read(path: Path) -> Saved | None:
    try:
        return Saved(**json.loads(path.read_bytes()))
    except (OSError, TypeError, ValueError):
        return None
