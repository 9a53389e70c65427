"""Runs a program that must not be killed halfway, and reads its output as it is written."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Final

TAIL: Final = 200
"""Lines of standard error that are kept."""

_BEAT = 0.1
"""Seconds between two checks of the clock and of signals while the program prints nothing."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a program."""

    command: tuple[str, ...]
    exit_code: int
    """As in a shell: 128 + n for a program terminated by signal n."""
    stderr: str
    """The last lines of standard error."""
    interrupted: bool
    """Whether it was asked to stop while it ran."""


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None] = lambda _line: None,
    on_beat: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[int], None] = lambda _times: None,
    second_cuts: bool = False,
    grace: float = 0,
) -> Finished:
    """Run ``command`` in ``folder`` to its end, even if Ctrl-C is pressed.

    ``on_line`` is called with each line of standard output, without its line ending; ``on_beat`` is called
    some ten times per second; ``on_interrupt`` gets 1, 2 … at the first, second … request to stop.

    The program runs in its own session, so Ctrl-C reaches only this process. The first is passed on as one
    SIGINT, and the program's exit is waited for. Later ones do nothing, unless ``second_cuts``: then the
    second is passed on too, the third kills the program, and its remaining child processes are killed after
    it has ended. An exception in a callback is raised after the same wait.

    ``grace`` is for a program that aborts the work of its child processes when it is interrupted: it is
    suspended for so many seconds, while they finish what they have begun, and then gets its SIGINT.
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    tail: deque[str] = deque(maxlen=TAIL)
    process: subprocess.Popen[str] | None = None
    asked = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Only what is safe in a signal handler; the loop below does the rest.
        nonlocal asked
        asked += 1

    # Before the program starts: a Ctrl-C in between would end this process and orphan the program.
    with _handling(stop):
        process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        interruption = _Interruption(process, grace, cuts=second_cuts)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = (
            threading.Thread(target=_read, args=(process.stdout, lines), daemon=True),
            threading.Thread(target=_keep, args=(process.stderr, tail), daemon=True),
        )
        for reader in readers:
            reader.start()
        told = 0
        failure: BaseException | None = None
        while True:
            try:
                line = lines.get(timeout=_BEAT)
            except queue.Empty:
                line = ""
            if line is None:
                break
            interruption.go_on(asked)
            try:
                if failure is None:
                    if line:
                        on_line(line)
                    on_beat()
                while told < asked:
                    told += 1
                    on_interrupt(told)
            except BaseException as problem:  # raised again below, once the program has ended
                failure = failure or problem
                asked = asked or 1
        status = process.wait()
        for reader in readers:
            reader.join()
        process.stdout.close()
        process.stderr.close()
    if failure is not None:
        raise failure
    return Finished(
        command=tuple(command),
        exit_code=status if status >= 0 else 128 - status,
        stderr="\n".join(tail),
        interrupted=asked > 0,
    )


class _Interruption:
    """The stop requests, and the steps taken so far."""

    def __init__(self, process: subprocess.Popen[str], grace: float, *, cuts: bool) -> None:
        self._process = process
        self._grace = grace
        self._cuts = cuts
        self._until = 0.0
        self._sent = 0

    def go_on(self, asked: int) -> None:
        """Take the next step that ``asked`` requests require; called repeatedly."""
        if not asked:
            return
        if not self._sent:
            self._first(asked)
        elif asked > 1 and self._cuts:
            if self._process.poll() is not None:
                _end_session(self._process.pid)  # otherwise its streams would stay open
            elif self._sent == 1:
                self._send(signal.SIGINT)
            elif asked > 2:
                self._process.kill()

    def _first(self, asked: int) -> None:
        if self._grace and not self._until:
            self._until = time.monotonic() + self._grace
            self._process.send_signal(signal.SIGSTOP)
        if asked > 1 or time.monotonic() >= self._until:
            # The signal is pending when the program resumes, so it is handled before anything new begins.
            self._send(signal.SIGINT)
            if self._until:
                self._process.send_signal(signal.SIGCONT)

    def _send(self, number: int) -> None:
        self._process.send_signal(number)
        self._sent += 1


def _end_session(leader: int) -> None:
    """Kill what a killed program has left, such as Terraform's providers."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _read(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _keep(stream: IO[str], tail: deque[str]) -> None:
    tail.extend(line.rstrip("\n") for line in stream)


@contextmanager
def _handling(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C, a closed terminal and the end of a CI job with ``stop``."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread handle signals
        return
    # Ignored signals (nohup, a shell's background job) stay ignored.
    obeyed = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in obeyed}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
