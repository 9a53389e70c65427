"""The API server's audit log, put into its bucket: each run continues where the last one ended.

Complete lines are copied, compressed, as objects that do not change:
``<prefix><cluster>/<master>/<year>/<month>/<day>/<time>-<file>-<offset>.log.gz``. ``<file>`` is a digest of
the file's first line, which no other file has (``auditID``), and which stays the same when the API server
renames the file. A run that was cut off copies the same lines to the same name again. Masters can write to
the bucket, and neither read nor delete: so what is measured, of the 30 days in the bucket, is since when each
event was copied. It starts again when the newest file of one run is missing in the next: the API server has
deleted events that were not copied.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kubernetes_node import bucket, figures
from kubernetes_node.settings import UTC, Failed, Paths, Settings, read

MOST = 64 << 20
"""Bytes of the log in one object; an event is at most some megabytes (etcd's limit of a request, twice)."""

_STAMP = re.compile(rb'"stageTimestamp":"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)')


class Shipped(NamedTuple):
    """What a run has done, and what is there after it."""

    bytes: int
    """Of the log, copied by this run."""
    total: int
    """By all runs of this master."""
    since: float
    """From when on each event was copied; seconds since 1970, as the others. Zero before the first event."""
    oldest: float
    """When the oldest event happened that is on the master. Zero where there is none."""


def ship(paths: Paths, settings: Settings) -> Shipped:
    """Copy what is new."""
    kept = settings.audit
    if kept is None:
        raise Failed("no bucket is named: the audit log stays on this master")
    memory = paths.state / "audit-shipped.json"
    before = _remembered(memory)
    done: dict[str, int] = {}
    total, oldest = 0, 0.0
    folder = f"{kept.prefix}{settings.cluster}/{settings.name}"
    # Renamed files have the time in their names (lumberjack); the one that is written to comes last.
    for file in (*sorted(paths.audit.glob("audit-*.log")), *paths.audit.glob("audit.log")):
        with file.open("rb") as log:
            first = log.readline()
            name = _name(first)
            if name is None:
                continue
            oldest = oldest or _seconds(first)
            done[name] = before.get(name, 0)
            for lines in _new(log, done[name]):
                key = f"{folder}/{_moment(lines)}-{name}-{done[name]:012}.log.gz"
                bucket.write(kept, key, gzip.compress(lines, mtime=0))
                done[name] += len(lines)
                total += len(lines)
                _remember(memory, {**before, **done})
    # Without files that are gone.
    _remember(memory, done)
    # Files are listed from the oldest to the newest.
    whole = not before or list(before)[-1] in done
    return _measured(paths.state / "audit-measured.json", total, oldest, whole=whole)


def _measured(memory: Path, copied: int, oldest: float, *, whole: bool) -> Shipped:
    """``whole``: whether nothing was deleted uncopied since the last run."""
    known = _remembered(memory)
    since = known.get("since", 0) if whole else 0
    found = Shipped(copied, known.get("total", 0) + copied, since or int(oldest), oldest)
    _remember(memory, {"since": int(found.since), "total": found.total})
    return found


def _name(first: bytes) -> str | None:
    return hashlib.sha256(first).hexdigest()[:16] if first.endswith(b"\n") else None


def _new(log: BinaryIO, offset: int) -> Iterator[bytes]:
    """Complete lines from there on, in pieces."""
    while True:
        log.seek(offset)
        piece = log.read(MOST)
        piece = piece[: piece.rfind(b"\n") + 1]
        if not piece:
            return
        yield piece
        offset += len(piece)


def _seconds(line: bytes) -> float:
    """When an event happened; zero where it does not say."""
    found = _STAMP.search(line)
    return datetime(*map(int, found.groups()), tzinfo=UTC).timestamp() if found else 0.0


def _moment(lines: bytes) -> str:
    """``2026/11/25/042300``: when the first of the events happened."""
    found = _STAMP.search(lines)
    if found is None:
        return "undated/0"
    year, month, day, *clock = (each.decode() for each in found.groups())
    return f"{year}/{month}/{day}/{''.join(clock)}"


def _remembered(memory: Path) -> dict[str, int]:
    """Copied bytes by file. What is lost is copied again."""
    try:
        return {str(name): int(offset) for name, offset in json.loads(memory.read_text()).items()}
    except (FileNotFoundError, ValueError, AttributeError):
        return {}


def _remember(memory: Path, done: dict[str, int]) -> None:
    memory.parent.mkdir(parents=True, exist_ok=True)
    fresh = memory.with_suffix(".new")
    fresh.write_text(json.dumps(done) + "\n")
    fresh.replace(memory)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="causeway-audit-ship", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the system is, if not at /")
    paths = Paths(parser.parse_args(arguments).root)
    try:
        done = ship(paths, read(paths))
    except (Failed, OSError) as problem:
        figures.record(paths.metrics, "causeway_audit_ship", failed=True)
        print(f"causeway-audit-ship: {problem}", file=sys.stderr)
        return 1
    figures.record(
        paths.metrics,
        "causeway_audit_ship",
        failed=False,
        time_seconds=f"{time.time():.0f}",
        bytes_total=f"{done.total}",
        **({"since_time_seconds": f"{done.since:.0f}"} if done.since else {}),
        **({"oldest_time_seconds": f"{done.oldest:.0f}"} if done.oldest else {}),
    )
    print(f"{done.bytes} bytes of the audit log copied")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
