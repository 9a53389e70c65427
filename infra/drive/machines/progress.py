"""What a person sees while machines converge: a line a machine on a terminal, a line an event in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from infra.drive.machines.converge import Phase
from infra.drive.progress import make_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

ROWS: Final = 24
"""Machines shown at once: those at work first."""

_ENDED: Final = frozenset({"done", "failed", "left out"})
_STYLES: Final = {"done": "green", "failed": "red", "left out": "yellow", "waiting": "dim"}
_ORDER: Final = {
    "converging": 0,
    "installing": 0,
    "copying": 0,
    "connecting": 0,
    "failed": 1,
    "waiting": 2,
    "done": 3,
    "left out": 4,
}


@dataclass(slots=True)
class _Row:
    phase: Phase = "waiting"
    about: str = ""
    since: float = 0
    ended: float | None = None


class Board:
    """A ``converge.Watcher`` that draws. ``with`` draws it for as long as the block runs."""

    def __init__(
        self,
        names: Iterable[str],
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = {name: _Row() for name in names}
        self._console = console or make_console()
        self._clock = clock
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self.table, console=self._console, transient=True, refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, name: str, phase: Phase, about: str = "") -> None:
        """See ``converge.Watcher``."""
        with self._lock:
            row = self._rows[name]
            changed = row.phase != phase
            if row.phase == "waiting":
                row.since = self._clock()
            row.phase, row.about = phase, about
            if phase in _ENDED:
                row.ended = self._clock()
        if changed and self._live is None:
            self._console.print(f"{name}: {phase}", style=_STYLES.get(phase, ""), highlight=False)

    def stopping(self, times: int) -> None:
        """See ``converge.Watcher``."""
        told = (
            "Stopping: no other machine is started; those in progress finish. Ctrl-C again interrupts them."
            if times == 1
            else "Interrupting: Chef stops at its next resource."
        )
        self._console.print(told, style="yellow", highlight=False, soft_wrap=True)

    def table(self) -> Table:
        """The board as it stands."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for overflow in ("fold", "fold", "fold", "ellipsis"):
            table.add_column(no_wrap=True, overflow=overflow)
        now = self._clock()
        with self._lock:
            rows = sorted(self._rows.items(), key=lambda item: _ORDER[item[1].phase])
            for name, row in rows[:ROWS]:
                spent = "" if row.phase == "waiting" else f"{(row.ended or now) - row.since:.0f} s"
                table.add_row(name, Text(row.phase, _STYLES.get(row.phase, "")), spent, row.about)
            if len(rows) > ROWS:
                table.add_row(f"and {len(rows) - ROWS} more")
        return table
