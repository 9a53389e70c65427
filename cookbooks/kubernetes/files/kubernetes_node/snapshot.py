"""A copy of etcd, looked at, and put into the bucket by the master that leads etcd.

All members hold the same: one copy is enough, and the leader's has what was written last. A master that does
not lead says so and has done its work. What came of it is left for the node exporter's textfile collector.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path

from kubernetes_node import bucket, etcd, figures
from kubernetes_node.note import note
from kubernetes_node.settings import UTC, Failed, Paths, Settings, read

METRICS = "causeway_etcd_snapshot"


def take(paths: Paths, settings: Settings) -> tuple[str, int] | None:
    """The copy's name and its size in bytes; None on a master that does not lead."""
    member = etcd.of(paths)
    if not member.leads():
        return None
    folder = paths.state / "snapshots"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = bucket.name_of(settings.name, datetime.now(UTC))
    file = folder / name
    # What a run that was cut off has left would fill the disk in time.
    for left in folder.glob("*.db*"):
        left.unlink()
    try:
        cluster = member.members()
        member.save(file)
        about = member.status(file)
        # Of an etcd that nothing was ever written to.
        if not about["revision"]:
            raise Failed(f"the copy of etcd holds nothing: {about}")
        known = {
            "revision": str(about["revision"]),
            "keys": str(about["totalKey"]),
            "members": ",".join(f"{each}={url}" for each, url in sorted(cluster.items())),
        }
        bucket.Shelf(settings).put(file, name, known)
        taken = datetime.now(UTC).isoformat(timespec="seconds")
        note(paths, settings, "causeway-etcd-snapshot", {"name": name, "taken": taken})
        return name, file.stat().st_size
    finally:
        file.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="causeway-etcd-snapshot", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the system is, if not at /")
    paths = Paths(parser.parse_args(arguments).root)
    try:
        settings = read(paths)
        taken = take(paths, settings)
    except (Failed, OSError) as problem:
        figures.record(paths.metrics, METRICS, failed=True)
        print(f"causeway-etcd-snapshot: {problem}", file=sys.stderr)
        return 1
    about = {"time_seconds": f"{time.time():.0f}", "bytes": f"{taken[1]}"} if taken else {}
    figures.record(paths.metrics, METRICS, failed=False, **about)
    print(f"{taken[0]}: {taken[1]} bytes" if taken else "another master leads etcd, and copies it")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
