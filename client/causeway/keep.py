"""In a pod, beside the job's container: copies its output and its results to the store.

``python -m causeway.keep FOLDER``. ``CAUSEWAY_KEPT`` is the run's folder, ``s3://bucket/runs/<namespace>/<run>``;
below it:

- ``logs/<role>-<rank>/<attempt>/<start>-000001.log``: lines with their times (RFC 3339), in parts;
  ``<start>-ended.json``: how the worker ended. ``<start>``, in seconds since the epoch, tells pods of one
  attempt from each other: a run that was preempted begins again without another attempt.
- ``results/<role>-<rank>/…``: the files of ``FOLDER/results``.

It goes on until it is asked to stop, copies what is left, and ends. As a sidecar container it is asked after
the job's container has ended (Kubernetes, "Sidecar containers"), and has what is left of the grace period.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

EVERY = 15.0
"""Seconds."""
_ASKED = 5.0
"""Seconds that it waits for to be asked when all is sent: who ends by itself is started again."""
_SETTLED = 10.0
"""Seconds that a result is left alone for after it was written to: it may not be whole."""


class Keeper:
    """One worker's."""

    def __init__(self, folder: Path, s3: Any, bucket: str, logs: str, results: str) -> None:
        """``logs``, ``results``: what keys begin with; ``results`` without a slash at the end."""
        self._folder = folder
        self._s3 = s3
        self._bucket = bucket
        self._logs = logs
        self._results = results
        self._sent: dict[Path, tuple[int, int]] = {}
        """Path → size and time of what is in the store."""

    def know(self) -> None:
        """Looks at what is in the store: results that an earlier start left, and that were brought here."""
        root = self._folder / "results"
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._results}/"
        )
        for kept in (each for page in pages for each in page.get("Contents", ())):
            path = root / kept["Key"].removeprefix(f"{self._results}/")
            with suppress(OSError):
                about = path.stat()
                if about.st_size == kept["Size"] and about.st_mtime <= kept["LastModified"].timestamp() + 1:
                    self._sent[path] = (about.st_size, about.st_mtime_ns)

    def copy(self, now: float, *, last: bool = False) -> None:
        """Sends what is new. ``now``: seconds since the epoch; ``last``: results that were just written, too.

        A file that can't be read or sent does not keep others from it; the first such error is raised at the
        end.
        """
        found = [*self._parts(), *self._files(now, last=last)]
        problems = [problem for each in found if (problem := self._problem(*each)) is not None]
        if problems:
            raise problems[0]

    def _problem(self, path: Path, key: str, done: bool) -> Exception | None:
        """Sends a file, and takes it away if it is ``done`` with. Gives what kept it from that."""
        try:
            self._send(path, key)
            if done:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return None
        except Exception as problem:
            return problem
        return None

    def _parts(self) -> Iterator[tuple[Path, str, bool]]:
        parts = sorted((self._folder / "output").glob("*.log"))
        for part in parts:
            yield part, f"{self._logs}{part.name}", part != parts[-1]
        yield self._folder / "output/ended.json", f"{self._logs}ended.json", False

    def _files(self, now: float, *, last: bool) -> Iterator[tuple[Path, str, bool]]:
        root = self._folder / "results"
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                path = Path(folder, name)
                try:
                    about = path.lstat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(about.st_mode) and (last or now - about.st_mtime >= _SETTLED):
                    yield path, f"{self._results}/{path.relative_to(root).as_posix()}", False

    @cached_property
    def _transfers(self) -> Any:
        from s3transfer.manager import TransferConfig, TransferManager

        return TransferManager(self._s3, TransferConfig(max_request_concurrency=4))

    def _send(self, path: Path, key: str) -> None:
        about = path.stat()
        seen = (about.st_size, about.st_mtime_ns)
        if self._sent.get(path) == seen:
            return
        self._transfers.upload(str(path), self._bucket, key).result()
        self._sent[path] = seen


def main(folder: Path, environment: dict[str, str], stopped: threading.Event) -> int:
    """Runs until it is asked to stop and all is sent, or it is killed. The exit code is 0."""
    import botocore.session

    kept = urlsplit(environment["CAUSEWAY_KEPT"])
    run = kept.path.strip("/")
    worker = f"{environment['CAUSEWAY_ROLE']}-{environment.get('JOB_COMPLETION_INDEX', '0')}"
    keeper = Keeper(
        folder,
        botocore.session.Session().create_client("s3"),
        kept.netloc,
        f"{run}/logs/{worker}/{environment.get('CAUSEWAY_ATTEMPT') or '0'}/{time.time():.0f}-",
        f"{run}/results/{worker}",
    )
    said, known, due = "", False, time.monotonic() + EVERY
    while True:
        last = _wait(folder, stopped, due)
        try:
            if not known:
                keeper.know()
                known = True
            keeper.copy(time.time(), last=last)
            if last:
                stopped.wait(_ASKED)
                return 0
            said = ""
        except Exception as problem:
            if str(problem) != said:
                said = str(problem)
                print(f"causeway: not all is in the store yet: {said}", file=sys.stderr)
        # After the end it goes on trying until the kubelet's patience ends.
        due = time.monotonic() + (2 if last else EVERY)
        if last:
            time.sleep(2)


def _wait(folder: Path, stopped: threading.Event, until: float) -> bool:
    """Whether the job's container has ended.

    A program may be over before we listen for signals, and as process 1 of a container we never see one that
    came before (pid_namespaces(7)): so what the runtime wrote down counts, too.
    """
    ended = folder / "output/ended.json"
    while time.monotonic() < until:
        if stopped.wait(0.5) or ended.exists():
            return True
    return stopped.is_set() or ended.exists()


if __name__ == "__main__":
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    raise SystemExit(main(Path(sys.argv[1]), dict(os.environ), asked))
