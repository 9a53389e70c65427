"""Run a program that must not be torn down half-way, and read what it says as it says it."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
) -> Finished:
    """Run ``command`` in ``folder`` to its end, whatever happens at the keyboard.

    ``on_line`` gets each line of standard output as it comes, without its line end; ``on_beat`` is called
    some ten times a second; ``on_interrupt`` is told the first, second … time somebody asks to stop.

    The program runs in a session of its own, so Ctrl-C reaches only us; we pass it on as one SIGINT, wait,
    and never send another signal: a second SIGINT makes Terraform give up without writing its state. An
    exception in a callback is passed on, after the same wait.
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    tail: deque[str] = deque(maxlen=TAIL)
    process: subprocess.Popen[str] | None = None
    asked = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Only what is safe in a signal handler; words are said by the loop below.
        nonlocal asked
        asked += 1
        if asked == 1 and process is not None:
            process.send_signal(signal.SIGINT)

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
        if asked:
            process.send_signal(signal.SIGINT)
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
                if asked == 0:
                    stop(signal.SIGINT, None)
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
    heeded = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
