"""What a person sees while Terraform, Chef and Packer work: in a log, and on a real pseudo-terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from waiting import until

from infra.drive import progress
from infra.drive.progress import (
    MACHINES,
    PATIENCE,
    RESOURCES,
    SIGN_OF_LIFE,
    STOPPING,
    WAITING,
    MachineProgress,
    PackerProgress,
    TerraformProgress,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def event(kind: str, address: str, action: str = "create", **more: Any) -> dict[str, Any]:
    return {"type": kind, "hook": {"resource": {"addr": address}, "action": action, **more}}


def planned(action: str) -> dict[str, Any]:
    return {"type": "planned_change", "change": {"action": action}}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def plain(log: io.StringIO, clock: Clock) -> TerraformProgress:
    return TerraformProgress(Console(file=log, force_terminal=False, width=80), clock=clock)


class Screen:
    """A pseudo-terminal with what a program has drawn on it, as far as rich uses it: lines, the cursor up,
    a line erased."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.file = os.fdopen(slave, "w")
        self.rows = [""]
        self.at = 0
        self.raw = ""
        self._unread = b""

    def console(self) -> Console:
        # Rich asks the standard streams for the size, whatever it writes to.
        found = Console(file=self.file, no_color=True, width=80, height=40)
        assert found.is_terminal
        return found

    def lines(self) -> list[str]:
        """What is on it now."""
        self.file.flush()
        while select.select([self.master], [], [], 0)[0]:
            self._unread += os.read(self.master, 65536)
        text, self._unread = self._unread.decode(), b""
        self.raw += text
        for code, plain in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|([^\x1b])", text):
            if code.endswith("A"):
                self.at -= int(code[:-1])
            elif code == "2K":
                self.rows[self.at] = ""
            elif plain == "\n":
                self.at += 1
                self.rows += [""] * (self.at == len(self.rows))
            elif plain not in ("", "\r"):
                self.rows[self.at] += plain
        return [row.rstrip() for row in self.rows if row.strip()]

    def close(self) -> None:
        self.file.close()
        os.close(self.master)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    found = Screen()
    yield found
    found.close()


def test_nothing_is_said_of_a_short_run(plain: TerraformProgress, log: io.StringIO, clock: Clock) -> None:
    plain.begin("Applying")
    plain.event(event("apply_start", "a.b"))
    plain.event(event("apply_complete", "a.b", elapsed_seconds=0))
    clock.now += PATIENCE / 2
    plain.beat()
    plain.end()
    assert log.getvalue() == ""


def test_a_log_gets_a_line_for_each_resource_that_is_done(
    plain: TerraformProgress, log: io.StringIO, clock: Clock
) -> None:
    plain.begin("Applying")
    plain.event(event("apply_start", 'aws_vpc.x["[red]"]'))
    plain.event(event("apply_start", "aws_eip.y", "delete"))
    clock.now += 3
    plain.event(event("apply_complete", 'aws_vpc.x["[red]"]', elapsed_seconds=3))
    plain.event(event("apply_errored", "aws_eip.y", "delete", elapsed_seconds=2))
    plain.event(event("refresh_complete", "aws_vpc.z"))
    plain.beat()
    plain.end()
    assert log.getvalue().splitlines() == [
        '✓ aws_vpc.x["[red]"] created 3 s',
        "✗ aws_eip.y failed after 2 s",
    ]


def test_a_long_silence_is_broken(plain: TerraformProgress, log: io.StringIO, clock: Clock) -> None:
    plain.begin("Applying")
    for action in ("create", "replace"):
        plain.event(planned(action))
    clock.now += SIGN_OF_LIFE
    plain.beat()
    clock.now += SIGN_OF_LIFE / 2
    plain.beat()
    (line,) = log.getvalue().splitlines()
    assert line.endswith(" 0 of 3, 1 min 00 s")


def test_a_terminal_shows_few_rows_and_how_long_each_takes(screen: Screen, clock: Clock) -> None:
    terminal = TerraformProgress(screen.console(), clock=clock)
    terminal.begin("Applying")
    for number in range(RESOURCES + 5):
        terminal.event(planned("create"))
        address = f"aws_subnet.s{number}" if number else "module." + "x" * 300
        terminal.event(event("apply_start", address))
    clock.now += 65
    terminal.beat()
    heading, *rows, more = screen.lines()
    assert heading == f"Applying 0 of {RESOURCES + 5}, 1 min 05 s"
    assert len(rows) == RESOURCES
    assert re.fullmatch(r"module\.x+…  creating  1 min 05 s", rows[0])
    assert re.fullmatch(rf"aws_subnet\.s{RESOURCES - 1} +creating  1 min 05 s", rows[-1])
    assert more == "and 5 more"
    assert all(len(row) <= 80 for row in rows)
    for number in range(1, RESOURCES + 5):
        terminal.event(event("apply_complete", f"aws_subnet.s{number}", elapsed_seconds=65))
    terminal.beat()
    until(
        screen.lines,
        lambda lines: any(f"Applying {RESOURCES + 4} of {RESOURCES + 5}" in line for line in lines),
    )
    terminal.end()
    lines = screen.lines()
    assert len(lines) == RESOURCES + 4, "rows are gone, lines stay"
    assert lines[0] == "✓ aws_subnet.s1 created 65 s"
    assert "\x1b[1m" not in screen.raw, "numbers are not highlighted"


def test_machines_at_work_stand_first_and_all_rows_go_at_the_end(screen: Screen, clock: Clock) -> None:
    names = [f"titan-{number:02}" for number in range(1, MACHINES + 4)]
    with MachineProgress(names, screen.console(), clock=clock) as progress:
        assert [row.split() for row in screen.lines()[:2]] == [
            ["titan-01", "waiting"],
            ["titan-02", "waiting"],
        ]
        progress.phase("titan-26", "connecting")
        clock.now += 5
        progress.phase("titan-26", "converging", "file[/etc/motd]")
        progress.phase("titan-03", "connecting")
        progress.phase("titan-03", "failed")
        clock.now += 60
        found = until(screen.lines, lambda lines: "1 min 05 s" in lines[0])
        assert found[0].split() == ["titan-26", "converging", *["1", "min", "05", "s"], "file[/etc/motd]"]
        assert found[1].split() == ["titan-03", "failed", "0", "s"]
        assert found[-1] == "and 3 more"
        progress.stopping(1)
    [line, *rest] = screen.lines()
    assert line.startswith("Stopping")
    assert not any("titan" in each for each in rest)


def test_machines_in_a_log_are_a_line_a_phase(log: io.StringIO, clock: Clock) -> None:
    with MachineProgress(["a", "b"], Console(file=log, width=20), clock=clock) as progress:
        for about in ("file[/etc/motd]", "package[chrony]"):
            progress.phase("a", "converging", about)
        progress.phase("b", "left out")
        progress.phase("a", "done")
    assert log.getvalue().splitlines() == ["a: converging", "b: left out", "a: done"]


def test_a_burn_in_in_a_log_has_all_its_lines(log: io.StringIO, clock: Clock) -> None:
    with MachineProgress(["a"], Console(file=log, width=20), clock=clock) as progress:
        for about in ("", "level 3", "level 3: 1 min"):
            progress.phase("a", "burning in", about)
    assert log.getvalue().splitlines() == [
        "a: burning in",
        "a: burning in: level 3",
        "a: burning in: level 3: 1 min",
    ]


def test_a_bake_is_a_line_for_each_phase_that_is_over(screen: Screen, clock: Clock) -> None:
    progress = PackerProgress("cpu", screen.console(), clock=clock)
    progress.enter("preparing")
    clock.now += 3
    progress.enter("waiting for SSH")
    progress.enter("waiting for SSH")
    progress.beat()
    clock.now += 90
    lines = until(screen.lines, lambda lines: "1 min 30 s" in lines[-1])
    assert lines[0] == "✓ cpu: preparing, 3 s"
    assert lines[1].split() == ["cpu", "waiting", "for", "SSH", "1", "min", "30", "s"]
    progress.end()
    assert screen.lines() == ["✓ cpu: preparing, 3 s"]


def test_a_bake_in_a_log_is_a_line_for_each_phase_that_begins(log: io.StringIO, clock: Clock) -> None:
    progress = PackerProgress("cpu", Console(file=log, width=20), clock=clock)
    progress.enter("preparing")
    clock.now += 63
    progress.beat()
    progress.enter("waiting for the build instance")
    progress.end()
    assert log.getvalue().splitlines() == [
        "cpu: preparing (0 s)",
        "cpu: waiting for the build instance (1 min 03 s)",
    ]


def test_interrupts_are_answered_at_once(
    plain: TerraformProgress, log: io.StringIO, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.begin("Applying")
    plain.interrupted(1)
    plain.interrupted(2)
    said = " ".join(log.getvalue().split())
    assert said == f"{STOPPING} {WAITING}"
    on_standard_error = TerraformProgress(clock=clock)
    on_standard_error.begin("Applying")
    on_standard_error.interrupted(1)
    assert " ".join(capsys.readouterr().err.split()) == STOPPING


def test_no_colour_without_a_terminal_or_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.make_console(io.StringIO()).color_system is None
    monkeypatch.setenv("NO_COLOR", "1")
    assert progress.make_console(io.StringIO()).no_color
