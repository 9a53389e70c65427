"""Runs a job on this machine: the same code, environment, folders and launcher as in a cluster."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from platformdirs import user_cache_path, user_data_path

from causeway import packages, runtime
from causeway.code.archive import unpack
from causeway.errors import CausewayError
from causeway.holding import note_holder
from causeway.job import Job, recorded, written
from causeway.places import Place, saving
from causeway.restoring import link
from causeway.shipped import ship
from causeway.tracking import here
from causeway.workers import Workers, ends_when_idle, ends_when_stalled, ends_with, policy_of, variables

_ARCHIVE, _RECORD = "code.tar.gz", "run.json"
_NEWEST, _NEW = 50, 14 * 86400
"""Number of newest runs whose code is always kept, and seconds for which the code of any run is kept."""
_PRINT = Callable[[str, str], None]
"""Called with a worker's name and a line of its output, without the newline."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    run: str
    folder: Path
    state: str
    """``done``, ``failed``, ``stopped`` or ``timed-out``."""
    seconds: float
    resumable: bool
    """Whether a checkpoint was saved."""
    first: Mapping[str, Any] | None = None
    """The runtime's record of the worker that failed first."""


def new_folder(name: str, root: Path | None = None) -> Path:
    """Create the folder of a new run, ``<name>-<number>``, which no other process has created."""
    root = root or runs_root()
    root.mkdir(parents=True, exist_ok=True)
    remove_old_code(root)
    number = 1 + max((_number(path.name, name) for path in root.iterdir()), default=0)
    while True:
        folder = root / f"{name}-{number}"
        try:
            folder.mkdir(mode=0o700)  # its record has the job's variables, possibly tokens
        except FileExistsError:
            number += 1
        else:
            return folder


def runs_root() -> Path:
    """The folder of this machine's runs."""
    return user_data_path("causeway") / "runs"


def remove_old_code(root: Path) -> None:
    """Remove code of runs that have ended, except for the newest 50 and those that ran within 14 days.

    The working folder of a run is deleted, since each start creates it again. The archive is deleted if the
    run is done, since it never starts again. Results, output, checkpoints and the record stay.
    """
    now = time.time()
    for folder in runs_here(root)[_NEWEST:]:
        record = record_of(folder)
        ended = record.get("ended", {})
        if now - max(record["started"], ended.get("at", 0)) < _NEW or is_running(folder):
            continue
        shutil.rmtree(folder / "code", ignore_errors=True)
        if ended.get("state") == "done":
            archive_of(folder).unlink(missing_ok=True)


def _number(folder: str, name: str) -> int:
    head, _, tail = folder.rpartition("-")
    return int(tail) if head == name and tail.isdigit() else 0


def submit_here(
    job: Job,
    archive: IO[bytes] | None,
    digest: str,
    folder: Path,
    parameters: Mapping[str, str],
    exactly: Sequence[str] = (),
) -> None:
    """Record a run in its folder: its job and its code. ``exactly``: package versions, if they are given."""
    if archive is not None:
        with (folder / _ARCHIVE).open("wb") as copy:
            shutil.copyfileobj(archive, copy)
    record = {"run": folder.name, "job": written(job), "code": digest, "started": time.time(),
              "parameters": dict(parameters), "exactly": list(exactly)}  # fmt: skip
    _write_record(folder, record)


def find_here(name: str, root: Path | None = None) -> tuple[Path, Job]:
    """Return the folder and the job of a run of this machine. Raises CausewayError."""
    folder = (root or runs_root()) / name
    try:
        record = record_of(folder)
    except FileNotFoundError:
        raise CausewayError(
            f"no run {name} on this machine, in {folder.parent}; causeway ps --local lists those that are"
        ) from None
    return folder, recorded(record["job"], name)


def runs_here(root: Path | None = None) -> list[Path]:
    """Return the folders of all runs of this machine, the newest first."""
    found = (root or runs_root()).glob(f"*/{_RECORD}")
    return [
        path.parent
        for path in sorted(found, key=lambda path: record_of(path.parent)["started"], reverse=True)
    ]


def record_of(folder: Path) -> dict[str, Any]:
    """Return the record of a run: ``run``, ``job``, ``code``, ``parameters``, ``started``; ``packages`` that
    were installed; ``earlier``: the seconds of earlier starts; after its end, ``ended``: ``state``, ``at``,
    ``seconds`` over all starts, and the ``reason`` if it could not start."""
    record: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    return record


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    written_to = folder / f"{_RECORD}.new"
    written_to.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    written_to.replace(folder / _RECORD)


def is_running(folder: Path) -> bool:
    """Whether a process holds the run."""
    try:
        with (folder / "lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def unpack_here(folder: Path, target: Path) -> None:
    """Unpack the code of a run of this machine as it was submitted."""
    digest = record_of(folder)["code"]
    if not digest:
        target.mkdir()
        return
    with code_of(folder) as archive:
        unpack(archive, digest, target)


def archive_of(folder: Path) -> Path:
    """The archive of a run's code."""
    return folder / _ARCHIVE


def code_of(folder: Path) -> IO[bytes]:
    """Open the archive of a run's code. Raises CausewayError if it was removed."""
    try:
        return archive_of(folder).open("rb")
    except FileNotFoundError:
        raise CausewayError(
            f"the code of {folder.name} is not on this machine any more; start it from a folder: "
            "causeway run --local"
        ) from None


def state_here(folder: Path, record: Mapping[str, Any]) -> str:
    """Return ``running``, ``stopped``, or how it ended."""
    return str(record.get("ended", {}).get("state") or ("running" if is_running(folder) else "stopped"))


def run_here(job: Job, workers: Sequence[Workers], folder: Path, show: _PRINT) -> Ended:
    """Run all workers of a run as processes of this machine until the run ends. It resumes from its newest
    complete checkpoint, if there is one.

    Ctrl-C and SIGTERM stop it, as `causeway stop` does in a cluster: SIGTERM, ``grace``, SIGKILL.
    """
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CausewayError(f"{folder.name} is running already") from None
        note_holder(folder)
        record = record_of(folder)
        last = record.pop("ended", {})
        earlier = float(last.get("seconds", record.get("earlier", 0.0)))
        _write_record(folder, {**record, "job": written(job), "earlier": earlier})

        def end(state: str, seconds: float, reason: str = "") -> None:
            over = {"state": state, "at": time.time(), "seconds": round(earlier + seconds, 3)}
            over |= {"reason": reason} if reason else {}
            _write_record(folder, {**record_of(folder), "ended": over})

        try:
            ended = _run_here(job, workers, folder, show, lock.fileno())
        except CausewayError as error:
            end("failed", 0.0, str(error))
            raise
        end(ended.state, ended.seconds)
        return ended


def _run_here(job: Job, workers: Sequence[Workers], folder: Path, show: _PRINT, lock: int) -> Ended:
    folders = {name: folder / name.lower() for name in ("CODE", "RESULTS")}
    for name in ("results", "workers"):
        (folder / name).mkdir(exist_ok=True)
    record = record_of(folder)
    # Restore the submitted code, whatever an earlier start has changed.
    shutil.rmtree(folders["CODE"], ignore_errors=True)
    unpack_here(folder, folders["CODE"])
    ship(folder)
    extra = dict(job.env)
    if job.python:
        show("", f"packages of {job.python}")
        cache = user_cache_path("causeway") / "python"
        python = packages.install_here(
            folders["CODE"], job.python, record["code"], cache, exactly=record.get("exactly", ())
        )
        extra["CAUSEWAY_PYTHON"] = str(python)
        _write_record(folder, {**record, "packages": packages.installed(python)})
    policy = policy_of(job, workers)
    places = [Place(folder, each.role, rank) for each in workers for rank in range(each.count)]
    # Save what all of them left before any of them looks for a complete checkpoint.
    for place in places:
        place.save_left(policy)
    for place in places:
        place.begin(policy)
    if path := job.checkpoints.path:
        link(folders["CODE"], path, Place(folder, ends_with(workers), 0).checkpoints)
    tracked = here.environment(job, folder, {**os.environ, **extra})
    hosts = _hosts(workers)
    names = {name: str(path) for name, path in folders.items()}
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        local = _Processes(job.grace, lock)
        stack.callback(local.kill)
        stack.enter_context(
            saving([place.saver(policy) for place in places if place.name in policy.workers], policy.every)
        )
        for each in workers:
            own = {
                **variables(folder.name, job, each, hosts, names),
                **ends_when_idle(job, each, workers),
                **ends_when_stalled(job, each, workers),
            }
            common = {**tracked, **os.environ, **extra, **own}
            for place in places:
                if place.role == each.role:
                    local.start(each, place, common)
        note_holder(folder, local.pids)
        state = local.follow(ends_with(workers), job.time, show)
    for place in places:
        if problem := place.save_last(policy):
            show(place.name, f"causeway: not all checkpoints were copied: {problem}")
    seconds = time.monotonic() - started
    resumable = any(place.is_kept for place in places)
    return Ended(folder.name, folder, state, seconds, resumable, first_failed(folder))


def _hosts(workers: Sequence[Workers]) -> dict[str, list[str]]:
    """Return an address for each worker, with different ports that are free now."""
    with contextlib.ExitStack() as stack:

        def free() -> int:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            return port

        return {each.role: [f"127.0.0.1:{free()}" for _ in range(each.count)] for each in workers}


def first_failed(folder: Path) -> Mapping[str, Any] | None:
    """Return the runtime's record of the worker that failed first, for the run in this folder."""
    statuses = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "workers").glob("*.json")]
    failed = [status for status in statuses if status["exit"] not in (0, runtime.STOPPED)]
    return min(failed, key=lambda status: status["at"], default=None)


class _Processes:
    """The workers' processes and their output."""

    def __init__(self, grace: int, lock: int) -> None:
        """``lock``: a file that workers keep open as well, so that workers left by a killed process still
        hold it."""
        self._lock = lock
        self._grace = grace
        self._running: dict[subprocess.Popen[bytes], tuple[str, int]] = {}
        self._selector = selectors.DefaultSelector()
        self._stop_at: float | None = None
        """When the processes that were asked to stop are killed."""

    def start(self, each: Workers, place: Place, environment: Mapping[str, str]) -> None:
        own = {**place.environment, "CAUSEWAY_ATTEMPT": "0"}
        process = subprocess.Popen(
            [sys.executable, str(place.run / "runtime.py"), each.launch.script],
            env={**environment, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[self._lock],
            # Ctrl-C reaches only this process, which decides whom to stop, and when.
            start_new_session=True,
        )
        self._running[process] = (place.role, place.rank)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        log = place.log.open("ab")
        self._selector.register(process.stdout, selectors.EVENT_READ, (place.name, log, bytearray()))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running]

    def follow(self, decides: str, seconds: int, show: _PRINT) -> str:
        """Copy output until all workers have ended; return the state of the run."""
        state = ""
        deadline = time.monotonic() + seconds
        with self._interrupts() as interrupts:
            while self._running or self._selector.get_map():
                self._copy(show)
                ended = [process for process in self._running if process.poll() is not None]
                codes = {process: (self._running.pop(process), process.returncode) for process in ended}
                failed = any(code not in (0, runtime.STOPPED) for _, code in codes.values())
                left = any(role == decides for role, _ in self._running.values())
                if not state:
                    if interrupts:
                        state = "stopped"
                    elif failed:
                        state = "failed"
                    elif time.monotonic() > deadline:
                        state = "timed-out"
                    elif not left:
                        state = "done"
                    if state:
                        self._ask_to_stop()
                if len(interrupts) > 1 or (self._stop_at is not None and time.monotonic() > self._stop_at):
                    self.kill()
        return state

    def kill(self) -> None:
        """Kill what is still running: a runtime that is asked twice kills its command."""
        for process in self._running:
            for _ in range(2):
                process.terminate()
                time.sleep(0.05)  # two signals in quick succession are merged into one

    def _ask_to_stop(self) -> None:
        self._stop_at = time.monotonic() + self._grace
        for process in self._running:
            process.terminate()

    def _copy(self, show: _PRINT) -> None:
        for key, _ in self._selector.select(timeout=0.2):
            name, log, rest = key.data
            stream: Any = key.fileobj
            data = stream.read()
            if data is None:
                continue
            log.write(data)
            log.flush()
            rest += data
            *lines, last = bytes(rest).split(b"\n")
            rest[:] = last
            for line in lines:
                show(name, line.decode("utf-8", "replace"))
            if not data:
                if rest:
                    show(name, bytes(rest).decode("utf-8", "replace"))
                self._selector.unregister(stream)
                stream.close()
                log.close()

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[list[int]]:
        """Yield a queue of the signals that ask to stop, as they arrive."""
        seen: list[int] = []

        def note(number: int, _frame: FrameType | None) -> None:
            seen.append(number)

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield seen
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
