"""Runs a program that must not be killed half-way, and reads its output as it is written."""

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
"""Seconds between two looks at the clock and at the keyboard while the program is silent."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended."""

    command: tuple[str, ...]
    exit_code: int
    """As the shell counts: 128 + n for a program that died of signal n."""
    stderr: str
    """The last lines it wrote there."""
    interrupted: bool
    """It was asked to stop while it ran."""


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
    """Run ``command`` in ``folder`` to its end, whatever happens at the keyboard.

    ``on_line`` gets each line of standard output as it comes, without its line end; ``on_beat`` is called
    some ten times a second; ``on_interrupt`` gets 1, 2 … the first, second … time somebody asks to stop.

    The program runs in a session of its own, so Ctrl-C reaches only us. The first is passed on as one SIGINT,
    and the program's own end is waited for. A later one does nothing more, unless ``second_cuts``: the second
    is then passed on too, the third kills the program, and what it has started is killed once it has ended.
    An exception in a callback is passed on, after the same wait.

    ``grace`` is for a program that gives up, when it is interrupted, what other processes do for it: for so
    many seconds it is suspended, while those finish what they have begun, and then gets its SIGINT.
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    tail: deque[str] = deque(maxlen=TAIL)
    process: subprocess.Popen[str] | None = None
    asked = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Only what is safe in a signal handler; the loop below does the rest.
        nonlocal asked
        asked += 1

    # Before the program starts: a Ctrl-C in between would end us, and leave it running with nobody to wait.
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
    """How far a program has been asked to stop."""

    def __init__(self, process: subprocess.Popen[str], grace: float, *, cuts: bool) -> None:
        self._process = process
        self._grace = grace
        self._cuts = cuts
        self._until = 0.0
        self._sent = 0

    def go_on(self, asked: int) -> None:
        """Take the next step that ``asked`` requests call for; to be called again and again."""
        if not asked:
            return
        if not self._sent:
            self._first(asked)
        elif asked > 1 and self._cuts:
            if self._process.poll() is not None:
                _end_session(self._process.pid)  # or its streams would stay open
            elif self._sent == 1:
                self._send(signal.SIGINT)
            elif asked > 2:
                self._process.kill()

    def _first(self, asked: int) -> None:
        if self._grace and not self._until:
            self._until = time.monotonic() + self._grace
            self._process.send_signal(signal.SIGSTOP)
        if asked > 1 or time.monotonic() >= self._until:
            # It is pending when the program goes on: nothing new is begun before it is seen.
            self._send(signal.SIGINT)
            if self._until:
                self._process.send_signal(signal.SIGCONT)

    def _send(self, number: int) -> None:
        self._process.send_signal(number)
        self._sent += 1


def _end_session(leader: int) -> None:
    """Kill what a program that was cut off has left behind, such as Terraform's providers."""
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
    """``stop`` in place of the usual reaction to Ctrl-C, a closed terminal and a CI job's end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread handle signals
        return
    # What is ignored (nohup, a shell's background job) stays so.
    obeyed = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in obeyed}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
