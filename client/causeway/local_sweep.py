"""Searches whose trials run on this machine, as those of ``run --local`` do.

Metrics are those that trials reported, or logged to this machine's MLflow database.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from causeway.errors import CausewayError
from causeway.job import Job
from causeway.jobfile import of_trial
from causeway.local import first_failed, is_running, record_of, runs_root, submit_here
from causeway.local_process import PID, launch
from causeway.places import Place
from causeway.search.fields import plain
from causeway.sweep_files import ARCHIVE, FileBench, failure_of, found_in, search_record
from causeway.sweeping import AFTER
from causeway.tracking import here
from causeway.tracking.searches import Row
from causeway.workers import ends_with, workers_of

_METRICS = """
    SELECT tags.value, metrics.step, metrics.value, metrics.is_nan FROM metrics
    JOIN tags ON tags.run_uuid = metrics.run_uuid
    WHERE tags.key = 'causeway.run' AND tags.value LIKE ? AND metrics.key = ? ORDER BY metrics.timestamp
"""


@dataclass
class LocalBench(FileBench):
    """The bench of one search."""

    every = 1.0
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def load(self) -> None:
        super().load()
        self._read_reports()

    def _renew(self) -> None:
        if self._first:
            self._go_on()
        self._read_reports()
        self._take_ended()

    def stop_all(self) -> None:
        """Stop trials that are running; they continue when the search is resumed."""
        self._end_processes([row for row in self._rows.values() if self._is_alive(row)])

    def _run(self, row: Row) -> Path:
        return runs_root() / row.id

    def _go_on(self) -> None:
        """Carry out what was recorded and may not have been done."""
        for row in self._rows.values():
            runs = is_running(self._run(row))
            if row.state in ("pausing", "stopping"):
                self._stop([row])
            elif (
                row.state in ("running", "resuming")
                and not runs
                and self._ended(row) not in ("done", "failed")
            ):
                self._launch(row)

    def _launch(self, row: Row) -> None:
        run, record = self._run(row), search_record(self.folder)
        if not (run / "run.json").exists():
            run.mkdir(mode=0o700, parents=True, exist_ok=True)
            given = {name: plain(value) for name, value in row.parameters.items()}
            job = of_trial(self.job, row.parameters)
            if record["code"]:
                with (self.folder / ARCHIVE).open("rb") as archive:
                    submit_here(job, archive, record["code"], run, given)
            else:
                submit_here(job, None, "", run, given)
        self._processes[row.number] = launch(run)
        if row.state != "running":
            self._note(row, state="running")

    def _stop(self, rows: Sequence[Row]) -> None:
        self._end_processes(rows)
        for row in rows:
            self._note(row, state=AFTER[row.state])

    def _end_processes(self, rows: Sequence[Row]) -> None:
        """Ask processes to end, and wait; each has its own grace period."""
        until = time.monotonic() + self.job.grace + 10
        asked: dict[int, float] = {}
        while left := [row for row in rows if self._is_alive(row)]:
            if time.monotonic() > until:
                raise CausewayError(f"{', '.join(row.id for row in left)} did not end when asked to")
            # Repeat after a while, as its handler may not have been installed; a second signal kills it.
            for row in left:
                if time.monotonic() - asked.get(row.number, 0.0) > self.job.grace + 5:
                    asked[row.number] = time.monotonic()
                    self._signal(row)
            time.sleep(0.1)

    def _signal(self, row: Row) -> None:
        process = self._processes.get(row.number)
        with suppress(ProcessLookupError, FileNotFoundError, ValueError):
            if process is not None:
                process.terminate()
            if is_running(self._run(row)):
                os.kill(int((self._run(row) / PID).read_text(encoding="ascii")), signal.SIGTERM)

    def _is_alive(self, row: Row) -> bool:
        process = self._processes.get(row.number)
        # The process may be a child of an earlier conductor.
        return (process is not None and process.poll() is None) or is_running(self._run(row))

    def _ended(self, row: Row) -> str:
        """Return how its last start ended; empty if it has not."""
        try:
            return str(record_of(self._run(row)).get("ended", {}).get("state", ""))
        except FileNotFoundError:
            return ""

    def _take_ended(self) -> None:
        ended = [
            (row, self._ended(row))
            for row in self._rows.values()
            if row.state in ("running", "paused") and not self._is_alive(row)
        ]
        # A paused trial is done if it finished before it was stopped.
        ended = [(row, state) for row, state in ended if row.state == "running" or state == "done"]
        if ended:
            self._read_reports()
        for row, state in ended:
            self._note_end(row, state, lambda row=row: _cause(self._run(row)))  # type: ignore[misc]

    def _read_reports(self) -> None:
        first = ends_with(workers_of(self.job))
        logged = _logged(self.job, self.folder.name, self.sweep.metric)
        for row in self._rows.values():
            place = Place(self._run(row), first, 0)
            row.has_checkpoint = place.is_kept
            found = [*_reported(place.metrics, self.sweep.metric), *logged.get(row.id, ())]
            row.seen = max((step for step, _ in found), default=0)
            row.reports = found


def _reported(path: Path, metric: str) -> Iterator[tuple[int, float]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    yield from found_in(lines, metric)


def _logged(job: Job, name: str, metric: str) -> dict[str, list[tuple[int, float]]]:
    """Return run → what it logged to this machine's MLflow."""
    database = here.database_of(runs_root(), job.name)
    found: dict[str, list[tuple[int, float]]] = {}
    if not database.exists():
        return found
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        for run, step, value, is_nan in opened.execute(_METRICS, (f"{name}-%", metric)):
            found.setdefault(run, []).append((int(step), float("nan") if is_nan else float(value)))
    return found


def _cause(run: Path) -> str:
    """Return why a trial failed, in one line."""
    said = first_failed(run)
    if said is None:
        return f"its process ended before the run started; {run / 'output.log'}"
    return failure_of(said)
