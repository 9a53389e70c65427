"""What is drawn while Terraform works."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from infra.drive import progress
from infra.drive.progress import PATIENCE, ROWS, SIGN_OF_LIFE, STOPPING, WAITING, Progress


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
def plain(log: io.StringIO, clock: Clock) -> Progress:
    return Progress(Console(file=log, force_terminal=False, width=80), clock=clock)


@pytest.fixture
def terminal(log: io.StringIO, clock: Clock) -> Progress:
    return Progress(Console(file=log, force_terminal=True, width=60, no_color=True), clock=clock)


def test_nothing_is_said_of_a_short_run(plain: Progress, log: io.StringIO, clock: Clock) -> None:
    plain.begin("Applying")
    plain.event(event("apply_start", "a.b"))
    plain.event(event("apply_complete", "a.b", elapsed_seconds=0))
    clock.now += PATIENCE / 2
    plain.beat()
    plain.end()
    assert log.getvalue() == ""


def test_a_log_gets_a_line_for_each_resource_that_is_done(
    plain: Progress, log: io.StringIO, clock: Clock
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


def test_a_long_silence_is_broken(plain: Progress, log: io.StringIO, clock: Clock) -> None:
    plain.begin("Applying")
    for action in ("create", "replace"):
        plain.event(planned(action))
    clock.now += SIGN_OF_LIFE
    plain.beat()
    clock.now += SIGN_OF_LIFE / 2
    plain.beat()
    (line,) = log.getvalue().splitlines()
    assert line.endswith(" 0 of 3, 1 min 00 s")


def test_a_terminal_shows_few_rows_and_how_long_each_takes(
    terminal: Progress, log: io.StringIO, clock: Clock
) -> None:
    terminal.begin("Applying")
    for number in range(ROWS + 5):
        terminal.event(planned("create"))
        address = f"aws_subnet.s{number}" if number else "module." + "x" * 300
        terminal.event(event("apply_start", address))
    clock.now += 65
    terminal.beat()
    terminal.end()
    drawn = log.getvalue()
    assert f"Applying 0 of {ROWS + 5}, 1 min 05 s" in drawn
    assert f"aws_subnet.s{ROWS - 1} creating 1 min 05 s" in drawn
    assert f"aws_subnet.s{ROWS} " not in drawn
    assert "and 5 more" in drawn
    assert "x" * 61 not in drawn
    assert "x…" in drawn


def test_interrupts_are_answered_at_once(
    plain: Progress, log: io.StringIO, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.begin("Applying")
    plain.interrupted(1)
    plain.interrupted(2)
    said = " ".join(log.getvalue().split())
    assert said == f"{STOPPING} {WAITING}"
    on_standard_error = Progress(clock=clock)
    on_standard_error.begin("Applying")
    on_standard_error.interrupted(1)
    assert " ".join(capsys.readouterr().err.split()) == STOPPING


def test_no_colour_without_a_terminal_or_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.make_console(io.StringIO()).color_system is None
    monkeypatch.setenv("NO_COLOR", "1")
    assert progress.make_console(io.StringIO()).no_color
