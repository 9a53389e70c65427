"""Searches that this machine conducts, recorded in files.

Below ``sweeps/<name>``: ``sweep.json``, ``code.tar.gz``, and a file for each trial. Trials run here
(``local_sweep``) or on machines that ssh knows (``machines.sweeps``).
"""

from __future__ import annotations

import fcntl
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar

from platformdirs import user_data_path

from causeway.errors import CausewayError
from causeway.job import Job, recorded, written
from causeway.reported import parsed
from causeway.search.engine import Engine
from causeway.search.fields import Sweep
from causeway.search.trials import Decision, End, Resume, Start, Trial
from causeway.sweeping import Bench, trial_of
from causeway.tracking.searches import Row
from causeway.tracking.spool import read_json, write_json

PID = "pid"
"""File with the pid of the conducting process."""
_SHOWN = 10.0
"""Seconds between two updates of the summary."""
ARCHIVE, _RECORD = "code.tar.gz", "sweep.json"


def sweeps_root() -> Path:
    """The folder of searches that this machine conducts."""
    return user_data_path("causeway") / "sweeps"


def new_search(
    job: Job,
    archive: IO[bytes],
    digest: str,
    stem: str,
    on: Sequence[str] = (),
    taken: Container[str] = (),
) -> Path:
    """Record a new search; return its folder, ``<stem>-s<number>``. ``on``: machines, instead of this one;
    ``taken``: names of searches whose trials are on these."""
    root = sweeps_root()
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = root / f"{stem}-s{number}"
        if folder.name not in taken:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                break
        number += 1
    with (folder / ARCHIVE).open("wb") as copy:
        shutil.copyfileobj(archive, copy)
    record = {"name": folder.name, "job": written(job), "code": digest, "started": time.time(),
              "state": "running", "reason": "", "trials": None, "on": list(on)}  # fmt: skip
    write_json(folder / _RECORD, record)
    return folder


def is_recorded(name: str) -> bool:
    """Whether this machine conducts, or conducted, a search of this name."""
    return (sweeps_root() / name / _RECORD).exists()


def find_search(name: str) -> Path:
    """Return the folder of a search recorded here. Raises CausewayError."""
    folder = sweeps_root() / name
    if not is_recorded(name):
        hint = "causeway sweep show --local lists those that are"
        raise CausewayError(f"no search {name} on this machine, in {folder.parent}; {hint}")
    return folder


def searches_here() -> list[Path]:
    """Return the folders of all searches that this machine conducts, the newest first."""
    return sorted((path.parent for path in sweeps_root().glob(f"*/{_RECORD}")), key=started_at, reverse=True)


def started_at(folder: Path) -> float:
    """Seconds since the epoch."""
    return float(search_record(folder)["started"])


def search_record(folder: Path) -> dict[str, Any]:
    """Return ``job``, ``code``, ``started``, ``state``, ``reason``, ``trials``; ``on``: its machines."""
    record: dict[str, Any] = read_json(folder / _RECORD)
    return {"on": [], **record}


def change(folder: Path, **values: Any) -> None:
    """Change the record of a search."""
    write_json(folder / _RECORD, {**search_record(folder), **values})


@contextmanager
def conducting(folder: Path) -> Iterator[None]:
    """Hold the search. Raises CausewayError if another process conducts it."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CausewayError(f"{folder.name} is running already") from None
        yield


def is_conducted(folder: Path) -> bool:
    """Whether a process conducts it."""
    try:
        with conducting(folder):
            return False
    except CausewayError:
        return True


@dataclass
class FileBench(Bench, ABC):
    """Base class of benches whose record is in files."""

    folder: Path
    say: Callable[[str], None]
    every: ClassVar[float]
    """Seconds between two rounds."""
    _rows: dict[int, Row] = field(default_factory=dict)
    _first: bool = True
    _shown: float = 0.0

    @cached_property
    def job(self) -> Job:
        return recorded(search_record(self.folder)["job"], self.folder.name)

    @property
    def sweep(self) -> Sweep:
        sweep = self.job.sweep
        assert sweep is not None
        return sweep

    def engine(self) -> Engine:
        """Return the search as it is now."""
        record = search_record(self.folder)
        trials = record["trials"]
        changed = self.sweep.model_copy(update={"trials": trials}) if trials else self.sweep
        return Engine(changed, self.folder.name, record.get("since", 0))

    def load(self) -> None:
        """Read the record."""
        for path in self.folder.glob("trials/*.json"):
            row = Row(**read_json(path))
            row.reports = [(step, value) for step, value in row.reports]
            self._rows[row.number] = row

    # -- Called by the conductor --------------------------------------------------------------------------

    def look(self) -> Engine | None:
        if search_record(self.folder)["state"] != "running":
            return None
        if self._first:
            self.load()
        self._renew()
        self._first = False
        return self.engine()

    def trials(self) -> Sequence[Trial]:
        return [trial_of(self._rows[number]) for number in sorted(self._rows)]

    def start(self, move: Start) -> None:
        row = Row(move.number, f"{self.folder.name}-{move.number}", dict(move.parameters), "running")
        self._note(row)
        self._launch(row)

    def resume(self, move: Resume) -> None:
        row = self._rows[move.number]
        self._note(row, state="resuming", judged=move.step, cause="")
        self._launch(row)

    def judge(self, decision: Decision) -> None:
        row = self._rows[decision.number]
        if decision.action == "pass":
            self._note(row, judged=decision.step)
            return
        state = {"pause": "pausing", "stop": "stopping"}[decision.action]
        self._note(row, state=state, judged=decision.step, cause=decision.reason)
        self._stop([row])

    def show(self, summary: Callable[[], Mapping[str, Any]], *, last: bool) -> None:
        if last or time.monotonic() - self._shown > _SHOWN:
            change(self.folder, summary=dict(summary()))
            self._shown = time.monotonic()

    def end(self, end: End) -> None:
        live = [row for row in self._rows.values() if row.state in ("running", "resuming")]
        for row in live:
            self._note(row, state="stopping", cause=f"the search is over: {end.reason}")
        self._stop(live)
        change(self.folder, state=end.kind, reason=end.reason)

    @abstractmethod
    def stop_all(self) -> None:
        """Stop trials that are running; they continue when the search is resumed."""

    @abstractmethod
    def _renew(self) -> None:
        """Read the states of trials, and record those that have ended. The first time, also carry out what
        was recorded and may not have been done."""

    @abstractmethod
    def _launch(self, row: Row) -> None:
        """Start a recorded trial, or resume it, and record it as ``running``."""

    @abstractmethod
    def _stop(self, rows: Sequence[Row]) -> None:
        """Stop trials that are recorded as such (``AFTER``)."""

    def _note(self, row: Row, **values: Any) -> None:
        for name, value in values.items():
            setattr(row, name, value)
        self._rows[row.number] = row
        path = self.folder / "trials" / f"{row.number}.json"
        path.parent.mkdir(exist_ok=True)
        write_json(path, asdict(row))

    def _note_end(self, row: Row, state: str, cause: Callable[[], str]) -> None:
        """Record the end of a trial that was not stopped here. ``state``: its run's. ``cause``: why it
        failed."""
        if state == "done":
            self._note(row, state="done", cause="")
        elif state in ("stopped", "timed-out"):
            said = "stopped by a user" if state == "stopped" else "it ran for all of its `time`"
            self._note(row, state="stopped", cause=said)
        else:
            self._note(row, state="failed", cause=cause())
        self.say(f"trial {row.number} {row.state}{f': {row.cause}' if row.cause else ''}")


def found_in(lines: Iterable[str], metric: str) -> Iterator[tuple[int, float]]:
    """Yield (step, value) from the output of ``causeway.report``."""
    for line in lines:
        report = parsed(line)
        if report is not None and metric in report.metrics:
            yield report.step, report.metrics[metric]


def failure_of(said: Mapping[str, Any]) -> str:
    """Return why a trial failed, in one line. ``said``: the runtime's record of its worker that failed
    first."""
    last = str(said.get("reason") or (said.get("lines") or [""])[-1]).strip()
    return f"{last} (exit code {said['exit']})" if last else f"exit code {said['exit']}"


def conductor_of(folder: Path) -> int:
    """Return the pid of the process that conducts a search; 0 if there is none."""
    with suppress(FileNotFoundError, ValueError):
        return int((folder / PID).read_text(encoding="ascii")) if is_conducted(folder) else 0
    return 0
