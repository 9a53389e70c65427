"""Processes that must not be torn down half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from infra.drive import process

STUBBORN = """
import os, signal, sys, time
times = 0
def on_sigint(*_):
    global times
    times += 1
    print("told", times, flush=True)
signal.signal(signal.SIGINT, on_sigint)
print("ready", flush=True)
while times == 0:
    time.sleep(0.01)
while not os.path.exists("saved"):
    time.sleep(0.01)
print("state saved", flush=True)
sys.exit(3)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_lines_come_as_they_are_written(tmp_path: Path) -> None:
    release = tmp_path / "go"
    code = (
        "import pathlib, time\n"
        "print('first', flush=True)\n"
        f"while not pathlib.Path({str(release)!r}).exists(): time.sleep(0.01)\n"
        "print('second')"
    )
    seen = []

    def on_line(line: str) -> None:
        seen.append(line)
        release.touch()  # the program waits for this: a reader that reads to the end would hang

    done = process.run(python(code), folder=tmp_path, env=os.environ, on_line=on_line)
    assert (seen, done.exit_code, done.interrupted) == (["first", "second"], 0, False)


def test_much_output_on_both_streams_does_not_block(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(20000): print(n); print(n, file=sys.stderr)\nsys.exit(7)"
    seen: list[str] = []
    done = process.run(python(code), folder=tmp_path, env=os.environ, on_line=seen.append)
    assert len(seen) == 20000
    assert done.exit_code == 7
    assert done.stderr.splitlines()[-1] == "19999"
    assert len(done.stderr.splitlines()) == process.TAIL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_program_is_told_once_and_waited_for(tmp_path: Path, number: int) -> None:
    lines: list[str] = []
    told: list[int] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line in {"ready", "told 1"}:
            os.kill(os.getpid(), number)

    def on_interrupt(times: int) -> None:
        told.append(times)
        if times == 2:  # had the program been told of it, it would have said so before it is done
            (tmp_path / "saved").touch()

    def heeded(*_: object) -> None:
        pytest.fail("a signal came when nobody waited for it")

    before = signal.signal(number, heeded)  # nohup, which tests may run under, has one of them ignored
    try:
        done = process.run(
            python(STUBBORN), folder=tmp_path, env=os.environ, on_line=on_line, on_interrupt=on_interrupt
        )
        assert signal.getsignal(number) is heeded
    finally:
        signal.signal(number, before)
    assert lines == ["ready", "told 1", "state saved"]
    assert told == [1, 2]
    assert (done.exit_code, done.interrupted) == (3, True)


def test_ctrl_c_while_the_program_starts_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not end us, and leave behind a program that nobody waits for."""
    start = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    done = process.run(["sleep", "60"], folder=tmp_path, env=os.environ)
    assert (done.exit_code, done.interrupted) == (128 + signal.SIGINT, True)


def test_program_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    seen: list[str] = []
    code = "import os; print(os.getsid(0) == os.getpid())"
    process.run(python(code), folder=tmp_path, env=os.environ, on_line=seen.append)
    assert seen == ["True"]


def test_error_of_a_listener_comes_after_the_program_ended(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    waits = 'while not os.path.exists("saved"):\n    time.sleep(0.01)'
    code = STUBBORN.replace(waits, 'time.sleep(0.6)\nopen("saved", "w").close()')

    def on_line(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="ready"):
        process.run(python(code), folder=tmp_path, env=os.environ, on_line=on_line)
    assert saved.exists()


def test_program_that_dies_of_a_signal(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert process.run(python(code), folder=tmp_path, env=os.environ).exit_code == 128 + 9


def test_works_outside_the_main_thread(tmp_path: Path) -> None:
    codes: list[int] = []

    def work() -> None:
        codes.append(process.run(python("raise SystemExit(5)"), folder=tmp_path, env=os.environ).exit_code)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert codes == [5]


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        done = process.run(
            python("print('up', flush=True)"),
            folder=tmp_path,
            env=os.environ,
            on_line=lambda _line: os.kill(os.getpid(), signal.SIGHUP),
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.exit_code, done.interrupted) == (0, False)


def test_what_other_processes_do_is_finished_before_the_program_stops(tmp_path: Path) -> None:
    """A program that gives up on its helper's work at once, as Terraform does on its providers'."""
    helper = "import pathlib, time; time.sleep(0.5); pathlib.Path('made').touch(); time.sleep(60)"
    code = (
        "import pathlib, subprocess, sys, time\n"
        f"helper = subprocess.Popen([sys.executable, '-c', {helper!r}])\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    while True: time.sleep(0.01); pathlib.Path('ticks').write_text('.')\n"
        "except KeyboardInterrupt:\n"
        "    helper.kill(); print(pathlib.Path('made').exists(), flush=True)\n"
    )
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line == "ready":
            os.kill(os.getpid(), signal.SIGINT)

    done = process.run(python(code), folder=tmp_path, env=os.environ, on_line=on_line, grace=5)
    assert (lines, done.interrupted) == (["ready", "True"], True)


def test_a_second_ctrl_c_cuts_the_program_and_its_children_off(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "def stop(*_):\n"
        "    stop.times += 1\n"
        "    print('asked', stop.times, flush=True)\n"
        "    if stop.times == 2: sys.exit(1)\n"
        "stop.times = 0\n"
        "signal.signal(signal.SIGINT, stop)\n"
        "subprocess.Popen(['sleep', '3600'])\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line in {"ready", "asked 1"}:
            os.kill(os.getpid(), signal.SIGINT)

    done = process.run(python(code), folder=tmp_path, env=os.environ, on_line=on_line, second_cuts=True)
    assert lines == ["ready", "asked 1", "asked 2"]
    assert (done.exit_code, done.interrupted) == (1, True)
