"""In a pod, beside the job's container: copies its output, results and checkpoints to the store.

``python -m causeway.keep FOLDER``. ``CAUSEWAY_KEPT`` is the run's folder,
``s3://bucket/runs/<namespace>/<run>``; below it:

- ``logs/<role>-<rank>/<attempt>/<start>-000001.log``: lines with their times (RFC 3339), in parts;
  ``<start>-ended.json``: how the worker ended. ``<start>``, in seconds since the epoch, tells pods of one
  attempt from each other: a run that was preempted begins again without another attempt.
- ``results/<role>-<rank>/…``: the files of ``FOLDER/results``.
- ``events/<role>-<rank>/…``: the files of ``FOLDER/logs``, which TensorBoard reads, in segments
  (``causeway.segments``); so are ``metrics/<role>-<rank>/<start>``, what the program reported, and
  ``usage/<role>-<rank>/<start>``, what it used (``causeway.runtime``), and ``packages/<role>-<rank>``, the
  versions of what was installed for it.
- ``checkpoints/…``: of ``FOLDER/checkpoints``, by ``causeway.saving``. ``CAUSEWAY_POLICY`` says which are
  kept, and which workers write them; ``CAUSEWAY_CHECKPOINTS_VOLUME``, where their files go in place of the
  bucket (``causeway.storage``).

Where ``CAUSEWAY_TRACKING`` is set, it is MLflow for the pod's programs, too (``causeway.tracking``).

It goes on until it is asked to stop, copies what is left, and ends. As a sidecar container it is asked after
the job's container has ended (Kubernetes, "Sidecar containers"), and has what is left of the grace period.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from causeway.checkpoints import Policy
from causeway.runtime import PACKAGES
from causeway.saving import SAVED, Saver, alive_until
from causeway.segments import Sender, files_in
from causeway.storage import Bucket, storage_of
from causeway.tracking.record import Record
from causeway.tracking.tracked import Tracked

EVERY = 15.0
"""Seconds between two copies."""
NOT_COPIED, COPIED = (
    "causeway: some output is not in the store yet: ",
    "causeway: everything is in the store again",
)
"""Messages when something is not copied, and when the problem is over; ``causeway why`` reads them."""
_AGAIN = 300.0
"""Seconds after which the first message is repeated, as other lines have followed it."""
EVERY_SERIES = 30.0
"""Seconds between two copies of time series."""
_ASKED = 5.0
"""Seconds to wait for SIGTERM once everything is sent: a sidecar that exits by itself is restarted."""
_CHECKPOINT = 20.0
"""Seconds that MLflow waits at the end for the name of a last checkpoint."""
_SETTLED = 10.0
"""Seconds since the last write after which a result is copied: until then it may be incomplete."""


class Keeper:
    """Copies the files of one worker."""

    def __init__(self, folder: Path, s3: Any, bucket: str, logs: str, results: str) -> None:
        """``logs``, ``results``: prefixes of keys; ``results`` has no trailing slash."""
        self._folder = folder
        self._s3 = s3
        self._bucket = bucket
        self._logs = logs
        self._results = results
        self._known = False
        self._sent: dict[Path, tuple[int, int]] = {}
        """Path → size and time of the version in the store."""

    def _know(self) -> None:
        """List the store: results of an earlier start were restored from it."""
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
        self._known = True

    def copy(self, last: bool) -> None:
        """Upload what is new. ``last``: include results that were just written.

        A file that cannot be read or uploaded does not affect the others; the first such error is raised at
        the end.
        """
        if not self._known:
            self._know()
        now = time.time()
        found = [*self._parts(), *self._files(now, last=last)]
        problems = [problem for each in found if (problem := self._problem(*each)) is not None]
        if problems:
            raise problems[0]

    def _problem(self, path: Path, key: str, done: bool) -> Exception | None:
        """Upload a file, and remove it if it is ``done``. Returns the error, if any."""
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
    """Run until asked to stop and everything is uploaded, or until killed. The exit code is 0."""
    import botocore.session

    kept = urlsplit(environment["CAUSEWAY_KEPT"])
    run = kept.path.strip("/")
    worker = f"{environment['CAUSEWAY_ROLE']}-{environment.get('JOB_COMPLETION_INDEX', '0')}"
    s3 = botocore.session.Session().create_client("s3")
    start = f"{time.time():.0f}"
    keeper = Keeper(
        folder,
        s3,
        kept.netloc,
        f"{run}/logs/{worker}/{environment.get('CAUSEWAY_ATTEMPT') or '0'}/{start}-",
        f"{run}/results/{worker}",
    )
    series = partial(_send, Sender(Bucket(s3, kept.netloc, f"{run}/")), folder, worker, start)
    # Each in its own thread, so that a large file does not delay the others.
    threads = [
        threading.Thread(target=_follow, args=(folder, stopped, keeper.copy)),
        threading.Thread(target=_follow, args=(folder, stopped, series, EVERY_SERIES)),
    ]
    tracked: Tracked | None = None
    if record := _record(environment):
        own, shared = f"{run}/", f"{run.rpartition('/')[0]}/"
        stores = (Bucket(s3, kept.netloc, prefix) for prefix in (own, shared))
        tracked = Tracked(record, worker, environment, folder, *stores)
        tracked.begin()
    saving: threading.Thread | None = None
    # an older client does not set it
    policy = Policy.of(environment.get("CAUSEWAY_POLICY") or Policy(()).text())
    if worker in policy.workers:
        volume = environment.get("CAUSEWAY_CHECKPOINTS_VOLUME", "")
        storage = storage_of(s3, environment["CAUSEWAY_KEPT"], volume)
        reported, site = folder / "output/metrics.jsonl", environment.get("CAUSEWAY_REGION", "")
        saver = Saver(folder / "checkpoints", storage, policy, worker, reported, site)
        save = _Saving(saver, folder / "output", tracked)
        saving = threading.Thread(target=_follow, args=(folder, stopped, save, policy.every or EVERY))
        threads.append(saving)
    if tracked is not None:
        track = partial(_track, tracked, saving)
        threads.append(threading.Thread(target=_follow, args=(folder, stopped, track)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stopped.wait(_ASKED)
    return 0


def _send(sender: Sender, folder: Path, worker: str, start: str, last: bool) -> None:
    files = {f"events/{worker}/{name}": path for name, path in files_in(folder / "logs")}
    for name in ("metrics", "usage"):
        files[f"{name}/{worker}/{start}"] = folder / f"output/{name}.jsonl"
    files[f"packages/{worker}"] = folder / "python" / PACKAGES
    sender.send(files, last=last)


def _record(environment: dict[str, str]) -> Record | None:
    """Return what MLflow knows about the run; None if nothing, or if a newer client wrote it in an unknown
    form."""
    text = environment.get("CAUSEWAY_TRACKING")
    try:
        return Record.of(text) if text else None
    except (KeyError, TypeError, ValueError) as error:
        print(
            f"causeway: nothing is logged to MLflow: CAUSEWAY_TRACKING cannot be parsed: {error!r}",
            file=sys.stderr,
        )
        return None


class _Saving:
    """Copies checkpoints and reports the last one: to MLflow, and in a line for ``causeway ps``."""

    def __init__(self, saver: Saver, output: Path, tracked: Tracked | None) -> None:
        self._saver = saver
        self._output = output
        self._tracked = tracked
        self._said = ""

    def __call__(self, last: bool) -> None:
        self._saver.save(alive_until(self._output / "ended.json") if last else time.time_ns())
        newest = self._saver.newest
        if newest is None or newest.id == self._said:
            return
        self._said = newest.id
        about = {"name": newest.name, "bytes": newest.size, "seconds": newest.seconds}
        line = json.dumps({**about, "at": newest.written / 1e9}, ensure_ascii=False)
        print(f"{SAVED}{line}", file=sys.stderr, flush=True)
        if self._tracked is not None:
            self._tracked.note_checkpoint(newest.name)


def _track(tracked: Tracked, saving: threading.Thread | None, last: bool) -> None:
    """Track the run. The last report follows the last checkpoint, unless that takes long."""
    if last and saving is not None:
        saving.join(_CHECKPOINT)
    tracked.copy(last)


def _follow(
    folder: Path, stopped: threading.Event, copy: Callable[[bool], None], every: float = EVERY
) -> None:
    """Copy repeatedly, and after the job's container has ended until it has succeeded. A failure is retried
    soon, however long ``every`` is."""
    said, at, due = "", 0.0, time.monotonic() + every
    while True:
        last = _wait(folder, stopped, due)
        pause = every
        try:
            copy(last)
            if said:
                print(COPIED, file=sys.stderr, flush=True)
            if last:
                return
            said = ""
        except Exception as problem:
            pause = min(every, EVERY)
            if str(problem) != said or time.monotonic() - at > _AGAIN:
                said, at = str(problem), time.monotonic()
                print(f"{NOT_COPIED}{said}", file=sys.stderr, flush=True)
        # After the end, retry until the kubelet kills us.
        due = time.monotonic() + (2 if last else pause)
        if last:
            time.sleep(2)


def _wait(folder: Path, stopped: threading.Event, until: float) -> bool:
    """Wait; return whether the job's container has ended.

    A program may end before our signal handlers are installed, and process 1 of a container never receives a
    signal from before that (pid_namespaces(7)). So the end that the runtime recorded counts, too.
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
