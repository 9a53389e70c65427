"""What a person sees while Terraform works: one line a resource, and how long it has been.

On a terminal the last few lines are drawn over and over; elsewhere (a CI log) each finished resource is one
plain line. Nothing is shown of a run that takes under a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

ROWS = 8
"""Resources shown at once."""

PATIENCE = 1.0
"""Seconds of silence before anything is shown."""

SIGN_OF_LIFE = 60.0
"""Seconds after which a log gets a line though nothing has finished: CI systems end silent jobs."""

STOPPING = (
    "Stopping: calls that have begun get a few seconds to finish, nothing new is started, and the state is "
    "saved. Press Ctrl-C again to kill Terraform: what it is creating may then be missing from the state."
)
WAITING = "Killing Terraform."

_VERBS = {"create": "creating", "update": "changing", "delete": "destroying", "read": "reading"}
_DONE = {"create": "created", "update": "changed", "delete": "destroyed", "read": "read"}


@dataclass(slots=True)
class Running:
    """A resource that is being worked on."""

    address: str
    verb: str
    since: float


class Progress:
    """A `infra.drive.terraform.Listener` that draws.

    ``console`` is rich's; it knows whether it is a terminal, how wide it is, and about NO_COLOR. By default
    it is standard error's, made when there is something to show: while rich is imported, Terraform works.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._given = console
        self._clock = clock
        self._live: Live | None = None
        self._held: list[str] = []
        self._running: dict[str, Running] = {}
        self._title = ""
        self._began = 0.0
        self._total = 0
        self._done = 0
        self._spoke = 0.0
        self._shown = ""

    @cached_property
    def _console(self) -> Console:
        return make_console() if self._given is None else self._given

    def begin(self, title: str) -> None:
        self._title = title
        self._began = self._spoke = self._clock()
        self._held, self._running = [], {}
        self._total = self._done = 0

    def event(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        hook = event.get("hook", {})
        address = str(hook.get("resource", {}).get("addr", ""))
        if kind == "planned_change" and self._title == "Applying":
            # A replacement is two steps of work; Terraform counts it as one of each in its summary.
            self._total += 2 if event["change"]["action"] == "replace" else 1
        elif kind in ("apply_start", "refresh_start"):
            action = "read" if kind == "refresh_start" else str(hook.get("action", ""))
            self._running[address] = Running(address, _VERBS.get(action, "reading"), self._clock())
        elif kind in ("apply_complete", "refresh_complete"):
            self._finish(address, hook, "" if kind == "refresh_complete" else "✓")
        elif kind in ("apply_errored", "refresh_errored"):
            self._finish(address, hook, "✗")

    def beat(self) -> None:
        now = self._clock()
        if now - self._began < PATIENCE:
            return
        if not self._console.is_terminal:
            if self._held:
                self._spoke = now
            elif now - self._spoke >= SIGN_OF_LIFE:
                self._spoke = now
                self._held.append(f"… {self._heading(now)}")
            self._flush()
        elif self._live is None:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._table, console=self._console, transient=True, auto_refresh=False
            )
            self._live.start()
            self._flush()
            self._live.refresh()
        elif self._held or self._shown != self._rows(now):
            self._flush()
            self._live.refresh()

    def interrupted(self, times: int) -> None:
        self._began = min(self._began, self._clock() - PATIENCE)
        self._say(STOPPING if times == 1 else WAITING, "yellow")

    def end(self) -> None:
        if self._clock() - self._began >= PATIENCE:
            self._flush()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _finish(self, address: str, hook: Mapping[str, Any], mark: str) -> None:
        started = self._running.pop(address, None)
        if not mark:
            return
        self._done += 1
        elapsed = hook.get("elapsed_seconds")
        if elapsed is None:
            elapsed = self._clock() - started.since if started else 0
        action = str(hook.get("action", ""))
        if action == "read" and mark == "✓":
            return  # a plan reads dozens of things; what is read changes nothing
        what = "failed after" if mark == "✗" else _DONE.get(action, action)
        self._held.append(f"{mark} {address} {what} {int(elapsed)} s")

    def _flush(self) -> None:
        for line in self._held:
            style = {"✗": "red", "✓": "green"}.get(line[0], "dim")
            self._say(line, style)
        self._held.clear()

    def _say(self, line: str, style: str) -> None:
        from rich.text import Text

        # As a Text: a style that is given to print would colour the rows below as well.
        self._console.print(Text(line, style=style), soft_wrap=True)

    def _heading(self, now: float) -> str:
        count = f" {self._done} of {self._total}" if self._total else ""
        return f"{self._title}{count}, {_elapsed(now - self._began)}"

    def _rows(self, now: float) -> str:
        rows = sorted(self._running.values(), key=lambda one: one.since)
        lines = [self._heading(now)]
        lines += [f"  {one.address} {one.verb} {_elapsed(now - one.since)}" for one in rows[:ROWS]]
        if len(rows) > ROWS:
            lines.append(f"  and {len(rows) - ROWS} more")
        return "\n".join(lines)

    def _table(self) -> Text:
        from rich.text import Text

        self._shown = self._rows(self._clock())
        return Text(self._shown, no_wrap=True, overflow="ellipsis")


def make_console(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console on ``stream`` (standard error by default, so that standard output stays for results)."""
    from rich.console import Console

    return Console(
        file=stream, stderr=stream is None, width=width, soft_wrap=False, emoji=False, markup=False
    )


def _elapsed(seconds: float) -> str:
    """``7 s``, ``2 min 05 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
