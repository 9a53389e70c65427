"""TensorBoard over the event files of runs, which it reads from a copy that follows the store.

In a pod: ``python -m causeway.board FOLDER``, with the rights of the token that
``AWS_WEB_IDENTITY_TOKEN_FILE`` names. In the environment:

``CAUSEWAY_RUNS``
    JSON: run → ``folder``, ``s3://bucket/runs/<namespace>/<run>``, and ``first``, the worker whose event
    files are shown without its name.
``CAUSEWAY_BOARD_PATH``
    What the paths of its pages begin with: who does not know it gets nothing.
``CAUSEWAY_IDLE``
    Seconds without a request after which it ends.

Exit code 0 where it was asked to end, or was idle; else TensorBoard's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from causeway.reported import parsed
from causeway.segments import Copy, files_in
from causeway.storage import Bucket, Storage

PORT = 6006
EVERY = 30.0
"""Seconds between two reads of the store."""
RENEWED = 1800.0
"""Seconds between two renewals of the credentials."""
_SAMPLES = "scalars=2000,images=20,audio=10,histograms=100,text=50,pr_curves=50,tensors=100"
"""Maximum number of samples of each tag, which bounds TensorBoard's memory."""
REPORTED = "causeway.report"
"""The folder of a run's metrics reported by the program."""


class Follower(Protocol):
    """Keeps the files of a run up to date."""

    def follow(self) -> None:
        """Fetches new data."""


class Remote:
    """A run whose files are in a storage."""

    def __init__(self, storage: Storage, first: str, folder: Path, scratch: Path) -> None:
        """``first`` is the worker whose files are at the top of ``folder``."""
        self._events = Copy(storage, "events/", folder)
        self._metrics = Copy(storage, "metrics/", scratch)
        self._place = {first: "."}
        self._reported = Reported(scratch, folder / REPORTED)

    def renew(self, storage: Storage) -> None:
        """Replace the storage by the same one with renewed credentials."""
        self._events.storage = self._metrics.storage = storage

    def follow(self) -> None:
        self._events.follow(self._place)
        self._metrics.follow()
        self._reported.follow()


class Here:
    """A run of this machine, shown through links to its files."""

    def __init__(self, events: Mapping[str, Path], metrics: Path, folder: Path) -> None:
        """``events`` maps a path in ``folder`` to a folder of event files. ``metrics`` is a folder of
        reports."""
        self._events = events
        self._folder = folder
        self._reported = Reported(metrics, folder / REPORTED, suffix=".metrics.jsonl")

    def follow(self) -> None:
        for place, root in self._events.items():
            # Link files, since TensorBoard does not follow links to folders on all platforms.
            for name, path in files_in(root):
                link = self._folder / place / name
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink():
                    link.symlink_to(path)
        self._reported.follow()


class Reported:
    """Makes event files from what programs reported with ``causeway.report``."""

    def __init__(self, source: Path, folder: Path, *, suffix: str = "") -> None:
        self._source = source
        self._folder = folder
        self._suffix = suffix
        self._read: dict[Path, int] = {}
        self._writer: Any = None

    def follow(self) -> None:
        for _, path in files_in(self._source):
            if path.name.endswith(self._suffix) and not path.name.startswith("."):
                self._write(path)
        if self._writer is not None:
            self._writer.flush()

    def _write(self, path: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            if (report := parsed(line.decode("utf-8", "replace"))) is None:
                continue
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in report.metrics.items()]
            self._writer = self._writer or EventFileWriter(str(self._folder))
            with suppress(ValueError):  # a step of more than 64 bits
                self._writer.add_event(
                    Event(wall_time=report.at, step=report.step, summary=Summary(value=values))
                )
        self._read[path] = self._read.get(path, 0) + sum(len(line) + 1 for line in lines)


def command(folder: Path, port: int, *, path: str = "", everywhere: bool = False) -> list[str]:
    """Return TensorBoard's command line. ``path`` is the prefix of its pages, without slashes. With
    ``everywhere`` it also listens for other machines."""
    return [
        sys.executable,
        "-m",
        "tensorboard.main",
        f"--logdir={folder}",
        f"--port={port}",
        *(["--bind_all"] if everywhere else ["--host=127.0.0.1"]),
        *([f"--path_prefix=/{path}"] if path else []),
        f"--reload_interval={EVERY:.0f}",
        # A restarted run writes to several files, one after the other.
        "--reload_multifile=true",
        f"--samples_per_plugin={_SAMPLES}",
    ]


def serve(
    followers: Sequence[Follower],
    words: Sequence[str],
    stopped: threading.Event,
    *,
    idle: float = 0,
    count: Callable[[], int] | None = None,
    renew: Callable[[], None] | None = None,
) -> int:
    """Run TensorBoard until it is asked to stop or no request has come for ``idle`` seconds, and return 0. If
    TensorBoard ends by itself, return its exit code.

    ``count`` returns the number of requests so far. ``renew`` is called every ``RENEWED`` seconds, as the
    credentials of the store expire.
    """
    looks = [each.follow for each in followers]
    _try(looks)
    with subprocess.Popen(words) as process:
        looked = renewed = seen = time.monotonic()
        requests = 0
        while process.poll() is None and not stopped.wait(1):
            now = time.monotonic()
            if now - looked < EVERY:
                continue
            if renew is not None and now - renewed > RENEWED:
                _try([renew])
                renewed = now
            _try(looks)
            looked = time.monotonic()
            before, requests = requests, count() if count is not None else 0
            if requests != before:
                seen = looked
            elif idle and looked - seen > idle:
                print(f"causeway: no request for {idle:.0f} s", file=sys.stderr)
                break
        code = process.poll()
        process.terminate()
    return code or 0


def _try(calls: Sequence[Callable[[], None]]) -> None:
    """Call ``calls``; errors are reported, and the call is retried in a later round."""
    for each in calls:
        if problem := _problem(each):
            print(f"causeway: some files are not up to date: {problem}", file=sys.stderr)


def _problem(call: Callable[[], None]) -> str:
    try:
        call()
    except Exception as problem:
        return str(problem) or type(problem).__name__
    return ""


def accepted() -> int:
    """Return the number of connections that programs of this network namespace (the pod's) have accepted (RFC
    4022, ``tcpPassiveOpens``). TensorBoard closes a connection after its answer; the one to its data server
    stays open."""
    names, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("PassiveOpens")])


def main(folder: Path, environment: Mapping[str, str], stopped: threading.Event) -> int:
    """Serve the board in a pod until ``stopped`` is set. Returns the exit code."""
    import botocore.session

    # The session renews its own credentials from the token file.
    s3 = botocore.session.Session().create_client("s3")
    found: list[Follower] = []
    for run, about in json.loads(environment["CAUSEWAY_RUNS"]).items():
        place = urlsplit(about["folder"])
        storage = Bucket(s3, place.netloc, f"{place.path.strip('/')}/")
        found.append(Remote(storage, about["first"], folder / "runs" / run, folder / "metrics" / run))
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    words = command(folder / "runs", PORT, path=environment["CAUSEWAY_BOARD_PATH"], everywhere=True)
    idle = float(environment.get("CAUSEWAY_IDLE") or 0)
    return serve(found, words, stopped, idle=idle, count=accepted)


if __name__ == "__main__":
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    raise SystemExit(main(Path(sys.argv[1]), dict(os.environ), asked))
