"""Progress output while Terraform, Chef or Packer works.

On a terminal, a row for each active resource or machine is redrawn below permanent lines. Elsewhere (a CI
log) only the permanent lines are printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from infra.drive.machines.converge import Phase

Clock = Callable[[], float]

PATIENCE: Final = 1.0
"""Seconds before the first output: a shorter run of Terraform prints nothing."""

SIGN_OF_LIFE: Final = 60.0
"""Seconds without a finished resource after which a log gets a line, as CI systems abort silent jobs."""

RESOURCES: Final = 8
"""Resources shown at once."""

MACHINES: Final = 24
"""Machines shown at once, active ones first."""

STOPPING: Final = (
    "Stopping: calls that have begun get a few seconds to finish, nothing new is started, and the state is "
    "saved. Press Ctrl-C again to kill Terraform: what it is creating may then be missing from the state."
)
WAITING: Final = "Killing Terraform."

_VERBS: Final = {"create": "creating", "update": "changing", "delete": "destroying", "read": "reading"}
_DONE: Final = {"create": "created", "update": "changed", "delete": "destroyed", "read": "read"}
_PHASES: Final[Mapping[Phase, tuple[int, str]]] = {
    "connecting": (0, ""),
    "installing": (0, ""),
    "copying": (0, ""),
    "converging": (0, ""),
    "burning in": (0, ""),
    "failed": (1, "red"),
    "waiting": (2, "dim"),
    "done": (3, "green"),
    "left out": (4, "yellow"),
}
"""Phase of a machine → its rank among the rows, and its style."""


@dataclass(frozen=True, slots=True)
class _Row:
    what: str
    about: str = ""
    style: str = ""
    rank: int = 0
    since: float | None = None
    """None: no duration is shown."""
    until: float | None = None
    """None: still in progress."""


class Display:
    """Permanent lines, and rows below them. Thread-safe.

    ``console`` is rich's; it detects terminals, their width, and NO_COLOR. By default it writes to standard
    error and is created on first use, so that importing rich overlaps with other work.
    """

    def __init__(
        self,
        console: Console | None,
        clock: Clock,
        *,
        most: int = MACHINES,
        heading: Callable[[], str] | None = None,
    ) -> None:
        self.rows: dict[str, _Row] = {}
        self.lock = threading.Lock()
        self._given = console
        self._clock = clock
        self._most = most
        self._heading = heading
        self._live: Live | None = None

    @cached_property
    def console(self) -> Console:
        return make_console() if self._given is None else self._given

    @property
    def terminal(self) -> bool:
        return self.console.is_terminal

    def say(self, line: str, style: str = "") -> None:
        from rich.text import Text

        # A Text, because a style given to print would also colour the rows below.
        self.console.print(Text(line, style=style), soft_wrap=True)

    def show(self) -> None:
        """Start drawing the rows, if on a terminal."""
        if self._live is None and self.terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self._drawn, console=self.console, transient=True)
            self._live.start(refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for kept in (False, True, True, False):  # The first and last are shortened on a narrow terminal.
            table.add_column(no_wrap=kept, overflow="ellipsis")
        now = self._clock()
        with self.lock:
            rows = sorted(self.rows.items(), key=lambda item: item[1].rank)
        for name, row in rows[: self._most]:
            spent = "" if row.since is None else elapsed((row.until or now) - row.since)
            table.add_row(
                Text(name, no_wrap=True), Text(row.what, row.style), spent, Text(row.about, no_wrap=True)
            )
        if len(rows) > self._most:
            table.add_row(f"and {len(rows) - self._most} more")
        return Group(*([Text(self._heading())] if self._heading is not None else []), table)


class TerraformProgress:
    """A `infra.drive.terraform.Listener` with a row per resource."""

    def __init__(self, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        self._display = Display(console, clock, most=RESOURCES, heading=self._heading)
        self._clock = clock
        self._held: list[str] = []
        self._title = ""
        self._began = self._spoke = 0.0
        self._total = self._done = 0

    def begin(self, title: str) -> None:
        self._title = title
        self._began = self._spoke = self._clock()
        self._held, self._display.rows = [], {}
        self._total = self._done = 0

    def event(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        hook = event.get("hook", {})
        address = str(hook.get("resource", {}).get("addr", ""))
        if kind == "planned_change" and self._title == "Applying":
            # A replacement is two operations; Terraform's summary counts it as one of each.
            self._total += 2 if event["change"]["action"] == "replace" else 1
        elif kind in ("apply_start", "refresh_start"):
            action = "read" if kind == "refresh_start" else str(hook.get("action", ""))
            with self._display.lock:
                self._display.rows[address] = _Row(_VERBS.get(action, "reading"), since=self._clock())
        elif kind in ("apply_complete", "refresh_complete", "apply_errored", "refresh_errored"):
            with self._display.lock:
                row = self._display.rows.pop(address, None)
            if kind != "refresh_complete":
                self._finish(address, hook, row, failed=kind.endswith("errored"))

    def beat(self) -> None:
        now = self._clock()
        if now - self._began < PATIENCE:
            return
        if self._held:
            self._spoke = now
        elif not self._display.terminal and now - self._spoke >= SIGN_OF_LIFE:
            self._spoke = now
            self._held.append(f"… {self._heading()}")
        self._display.show()
        self._flush()

    def interrupted(self, times: int) -> None:
        self._began = min(self._began, self._clock() - PATIENCE)
        self._display.say(STOPPING if times == 1 else WAITING, "yellow")

    def end(self) -> None:
        if self._clock() - self._began >= PATIENCE:
            self._flush()
        self._display.close()

    def _finish(self, address: str, hook: Mapping[str, Any], row: _Row | None, *, failed: bool) -> None:
        self._done += 1
        seconds = hook.get("elapsed_seconds")
        if seconds is None:
            seconds = self._clock() - row.since if row is not None and row.since is not None else 0
        action = str(hook.get("action", ""))
        if failed:
            self._held.append(f"✗ {address} failed after {int(seconds)} s")
        elif action != "read":  # a plan reads dozens of data sources, which change nothing
            self._held.append(f"✓ {address} {_DONE.get(action, action)} {int(seconds)} s")

    def _flush(self) -> None:
        for line in self._held:
            self._display.say(line, {"✗": "red", "✓": "green"}.get(line[0], "dim"))
        self._held.clear()

    def _heading(self) -> str:
        count = f" {self._done} of {self._total}" if self._total else ""
        return f"{self._title}{count}, {elapsed(self._clock() - self._began)}"


class MachineProgress:
    """A `infra.drive.machines.converge.Watcher` with a row per machine, active inside its ``with`` block."""

    def __init__(
        self, names: Iterable[str], console: Console | None = None, *, clock: Clock = time.monotonic
    ) -> None:
        self._display = Display(console, clock)
        self._clock = clock
        rank, style = _PHASES["waiting"]
        self._display.rows = {name: _Row("waiting", style=style, rank=rank) for name in names}

    def __enter__(self) -> Self:
        self._display.show()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def phase(self, name: str, phase: Phase, about: str = "") -> None:
        """See ``converge.Watcher``."""
        rank, style = _PHASES[phase]
        now = self._clock()
        with self._display.lock:
            row = self._display.rows[name]
            until = now if phase in ("done", "failed", "left out") else None
            since = now if row.since is None else row.since
            self._display.rows[name] = _Row(phase, about, style, rank, since, until)
        # A burn-in has few lines and takes long: a log gets them all.
        told = f"{phase}: {about}" if phase == "burning in" and about else phase
        if not self._display.terminal and (row.what != phase or told != phase):
            self._display.say(f"{name}: {told}", style)

    def stopping(self, times: int) -> None:
        """See ``converge.Watcher``."""
        self._display.say(
            "Stopping: no other machine is started; those in progress finish. Ctrl-C again interrupts them."
            if times == 1
            else "Interrupting: each machine stops at its next step.",
            "yellow",
        )


class PackerProgress:
    """The progress of one bake: a line per phase."""

    def __init__(self, image: str, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        self._image = image
        self._display = Display(console, clock)
        self._clock = clock
        self._began = self._since = clock()
        self._phase = ""

    def enter(self, phase: str) -> None:
        """A new phase begins."""
        if phase == self._phase:
            return
        now = self._clock()
        if not self._display.terminal:
            self._display.say(f"{self._image}: {phase} ({elapsed(now - self._began)})")
        elif self._phase:
            self._display.say(f"✓ {self._image}: {self._phase}, {elapsed(now - self._since)}", "green")
        self._phase, self._since = phase, now
        with self._display.lock:
            self._display.rows[self._image] = _Row(phase, since=now)

    def beat(self) -> None:
        """Called periodically."""
        self._display.show()

    def interrupted(self, times: int) -> None:
        """The user asked to stop."""
        self._display.say(
            "Stopping: Packer was interrupted once, and removes what it made …"
            if times == 1
            else "Still waiting for Packer to remove what it made; it is not killed.",
            "yellow",
        )

    def end(self) -> None:
        """The bake is over, successful or not."""
        self._display.close()


def make_console(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console on ``stream``; by default standard error, so that standard output is free for results."""
    from rich.console import Console

    return Console(
        file=stream, stderr=stream is None, width=width, soft_wrap=False, emoji=False, markup=False
    )


def elapsed(seconds: float) -> str:
    """``7 s``, ``2 min 05 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
