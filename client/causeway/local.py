"""Runs a job on this machine: the same code, environment, folders and launcher as in a cluster."""

from __future__ import annotations

import contextlib
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
from causeway.job import Job, written
from causeway.workers import Workers, ends_when_idle, ends_with, variables

_PRINT = Callable[[str, str], None]
"""Gets a worker's name and a line of it, without its end."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    run: str
    folder: Path
    state: str
    """``done``, ``failed``, ``stopped`` or ``timed-out``."""
    seconds: float
    first: Mapping[str, Any] | None = None
    """Of the worker that failed first, as ``runtime.py`` wrote it down."""


def new_folder(name: str, root: Path | None = None) -> Path:
    """The folder of a new run, ``<name>-<number>``, made by nobody else."""
    root = root or user_data_path("causeway") / "runs"
    root.mkdir(parents=True, exist_ok=True)
    number = 1 + max((_number(path.name, name) for path in root.iterdir()), default=0)
    while True:
        folder = root / f"{name}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _number(folder: str, name: str) -> int:
    head, _, tail = folder.rpartition("-")
    return int(tail) if head == name and tail.isdigit() else 0


def run_here(
    job: Job, workers: Sequence[Workers], archive: IO[bytes] | None, digest: str, folder: Path, show: _PRINT
) -> Ended:
    """Runs all workers as processes of this machine until the run ends.

    Ctrl-C and SIGTERM stop it, as `causeway stop` does in a cluster: SIGTERM, ``grace``, SIGKILL.
    """
    folders = {name: folder / name.lower() for name in ("CODE", "RESULTS", "CHECKPOINTS", "LOGS")}
    for path in folders.values():
        path.mkdir()
    (folder / "workers").mkdir()
    if archive is not None:
        unpack(archive, digest, folders["CODE"])
    shutil.copy(runtime.__file__, folder / "runtime.py")
    record = {"run": folder.name, "job": written(job), "code": digest, "started": time.time()}
    (folder / "run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    extra = dict(job.env)
    if job.python:
        show("", f"packages of {job.python}")
        cache = user_cache_path("causeway") / "python"
        extra["CAUSEWAY_PYTHON"] = str(packages.install_here(folders["CODE"], job.python, digest, cache))
    hosts = _hosts(workers)
    names = {name: str(path) for name, path in folders.items()}
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        local = _Processes(folder, job.grace)
        stack.callback(local.kill)
        for each in workers:
            own = {**variables(folder.name, each, hosts, names), **ends_when_idle(job, each, workers)}
            common = {**os.environ, **extra, **own}
            for rank in range(each.count):
                local.start(each, rank, common)
        state = local.follow(ends_with(workers), job.time, show)
    return Ended(folder.name, folder, state, time.monotonic() - started, _first_failed(folder))


def _hosts(workers: Sequence[Workers]) -> dict[str, list[str]]:
    """An address for each worker: ports that are free now, all different."""
    with contextlib.ExitStack() as stack:

        def free() -> int:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            return port

        return {each.role: [f"127.0.0.1:{free()}" for _ in range(each.count)] for each in workers}


def _first_failed(folder: Path) -> Mapping[str, Any] | None:
    statuses = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "workers").glob("*.json")]
    failed = [status for status in statuses if status["exit"] not in (0, runtime.STOPPED)]
    return min(failed, key=lambda status: status["at"], default=None)


class _Processes:
    """The workers' processes, and their output."""

    def __init__(self, folder: Path, grace: int) -> None:
        self._folder = folder
        self._grace = grace
        self._running: dict[subprocess.Popen[bytes], tuple[str, int]] = {}
        self._selector = selectors.DefaultSelector()
        self._stop_at: float | None = None
        """When those that were asked to stop are killed."""

    def start(self, each: Workers, rank: int, environment: Mapping[str, str]) -> None:
        name = f"{each.role}-{rank}"
        files = self._folder / "workers"
        own = {
            "CAUSEWAY_RANK": str(rank),
            "CAUSEWAY_ATTEMPT": "0",
            "CAUSEWAY_STATUS": str(files / f"{name}.json"),
            "CAUSEWAY_STOP": str(files / f"{name}.stop"),
        }
        process = subprocess.Popen(
            [sys.executable, str(self._folder / "runtime.py"), each.launch.script],
            env={**environment, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches us alone: who is asked to stop, and when, is decided here.
            start_new_session=True,
        )
        self._running[process] = (each.role, rank)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        log = (files / f"{name}.log").open("wb")
        self._selector.register(process.stdout, selectors.EVENT_READ, (name, log, bytearray()))

    def follow(self, decides: str, seconds: int, show: _PRINT) -> str:
        """Copies output until all have ended; returns the state of the run."""
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
        """Ends what still runs, at once: a runtime that is asked twice kills its command."""
        for process in self._running:
            for _ in range(2):
                process.terminate()
                time.sleep(0.05)  # two signals at once are one

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
        """Signals that ask to stop, as they come."""
        seen: list[int] = []

        def note(number: int, _frame: FrameType | None) -> None:
            seen.append(number)

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield seen
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
