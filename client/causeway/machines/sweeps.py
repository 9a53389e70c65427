"""Searches whose trials are runs on machines. This machine conducts them; trials continue without it.

What cannot be done now, because a machine is away or all GPUs are taken, is tried again in a later round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from causeway.errors import CausewayError, UnreachableError
from causeway.jobfile import of_trial
from causeway.machines import records, runs
from causeway.machines.placement import place, room
from causeway.machines.runs import Given, Machines
from causeway.machines.state import ENDED, Run
from causeway.search.engine import Engine
from causeway.search.fields import plain
from causeway.search.trials import End
from causeway.sweep_files import ARCHIVE, FileBench, failure_of, found_in, search_record
from causeway.sweeping import AFTER
from causeway.tracking.searches import Row
from causeway.workers import Workers, workers_of


@dataclass
class MachinesBench(FileBench):
    """The bench of one search."""

    every = 5.0
    secret: Mapping[str, str] = field(default_factory=dict)
    """Secret environment variables of trials, which are not recorded here."""
    _runs: dict[str, Run] = field(default_factory=dict)
    """Runs of unfinished trials, as found in this round."""
    _waiting: set[int] = field(default_factory=set)
    """Trials that are recorded as running, and have to be started or resumed."""
    _read: dict[str, int] = field(default_factory=dict)
    """Run → number of bytes of its reports that were read."""
    _away: Mapping[str, CausewayError] = field(default_factory=dict)
    """Machines that do not answer."""
    _said: dict[str, str] = field(default_factory=dict)

    @cached_property
    def on(self) -> list[str]:
        """Its machines."""
        return [*search_record(self.folder)["on"]]

    @cached_property
    def _workers(self) -> tuple[Workers, ...]:
        return workers_of(self.job)

    def engine(self) -> Engine:
        """Return the engine, with ``parallel`` lowered to what there is room for."""
        engine = super().engine()
        rows = self._rows.values()
        # At the end of a search nothing is started any more, so machines need not be checked.
        left = len(rows) < engine.sweep.trials or any(row.state == "paused" for row in rows)
        if not self._first and left:
            running = sum(AFTER.get(row.state, row.state) == "running" for row in rows)
            most = min(self.sweep.parallel, running + self._room(self.sweep.parallel - running))
            engine = Engine(engine.sweep.model_copy(update={"parallel": most}), engine.name, engine.since)
        return engine

    def end(self, end: End) -> None:
        super().end(end)
        if left := self._unreached():
            self.say(left)

    def stop_all(self) -> None:
        self._look()
        for run in self._runs.values():
            if run.state not in ENDED:
                self._ask_to_stop(run)
        if left := self._unreached():
            raise UnreachableError(left)

    def _unreached(self) -> str:
        """Name trials that may continue on machines that cannot be reached to stop them; empty if there are
        none."""
        live = self._live("running", "resuming", "pausing", "stopping")
        left = [row.id for row in live if self._is_away(row)]
        if not left:
            return ""
        names = " ".join(left)
        return "\n".join(
            [*map(str, self._away.values()), f"may still run there, once it answers: causeway stop {names}"]
        )

    # -- Rounds -------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._look()
        if self._first:
            self._waiting = {row.number for row in self._live("running", "resuming") if self._is_due(row)}
        for row in self._live("running", "resuming"):
            self._take(row)
        for row in self._live("pausing", "stopping"):
            self._take_stopped(row)
        for number in sorted(self._waiting):
            self._try(self._rows[number])

    def _live(self, *states: str) -> list[Row]:
        return [row for _, row in sorted(self._rows.items()) if row.state in states]

    def _look(self) -> None:
        """Ask all machines once for all unfinished trials."""
        live = {row.id: row for row in self._live("running", "resuming", "pausing", "stopping")}
        offsets = {name: self._read.get(name, 0) for name in live}
        # No run has the search's own name: without trials, this only checks which machines answer.
        names = [*live] or [self.folder.name]
        self._runs, reports, self._away = runs.several(names, self.on, offsets)
        for name in self.on:
            self._tell(name, str(self._away.get(name, "")))
        for name, (text, end) in reports.items():
            row, kept = live[name], self._runs[name].kept
            if not text and (row.has_checkpoint or not kept):
                continue
            found = [*found_in(text.splitlines(), self.sweep.metric)]
            # A new conductor reads everything again.
            before = row.reports if self._read.get(name) else []
            self._read[name] = end
            row.reports = [*before, *found]
            row.seen = max((step for step, _ in row.reports), default=0)
            row.has_checkpoint = row.has_checkpoint or kept
            self._note(row)

    def _is_due(self, row: Row) -> bool:
        """Whether it has not been started yet, or was stopped and should continue with the search."""
        run = self._runs.get(row.id)
        return run is None or run.state in ("starting", "stopped") or bool(run.stopped_by)

    def _is_away(self, row: Row) -> bool:
        """Whether it may be running on a machine that does not answer."""
        return bool({*(records.hosts_of(row.id) or ())}.intersection(self._away))

    def _take(self, row: Row) -> None:
        """Process a trial that should be running: it may have ended, or been interrupted."""
        run = self._runs.get(row.id)
        if run is None or run.state not in ENDED:
            return
        if run.interrupted:
            if row.number not in self._waiting:
                self.say(f"trial {row.number} resumes when its machine is back: {run.reason}")
            self._waiting.add(row.number)
        elif row.number not in self._waiting or run.state == "done":
            self._waiting.discard(row.number)
            self._note_end(row, run.state, lambda: failure_of(run.first) if run.first else run.reason)

    def _take_stopped(self, row: Row) -> None:
        """Process a trial that was asked to stop."""
        run = self._runs.get(row.id)
        if run is None:
            if not self._is_away(row):
                self._note(row, state=AFTER[row.state])  # it had not been started
        elif run.state == "done":
            self._note_end(row, "done", str)  # before it was asked to stop
        elif run.state in ENDED and not _is_ending(run):
            self._note(row, state=AFTER[row.state])
        elif not run.stopped_by:
            self._ask_to_stop(run)

    def _stop(self, rows: Sequence[Row]) -> None:
        """Ask trials to stop. A later round finds that they have."""
        if new := [row.id for row in rows if row.id not in self._runs]:
            self._runs.update(runs.several(new, self.on, {})[0])
        for row in rows:
            self._waiting.discard(row.number)
            if row.id in self._runs:
                self._ask_to_stop(self._runs[row.id])

    def _ask_to_stop(self, run: Run) -> None:
        try:
            runs.stop(run)
        except CausewayError as error:  # retried in a later round
            self._tell(run.name, str(error))

    # -- Starts -------------------------------------------------------------------------------------------

    def _launch(self, row: Row) -> None:
        self._waiting.add(row.number)
        self._try(row)

    def _try(self, row: Row) -> None:
        """Start or resume a trial, if that is possible now."""
        try:
            if not self._begin(row):
                return
        except CausewayError as error:
            self._tell(row.id, f"trial {row.number} waits: {error}")
            self._note(row, cause=f"waits: {' '.join(str(error).split())}")
            return
        self._tell(row.id, "")
        self._waiting.discard(row.number)
        self._note(row, state="running", cause="")

    def _begin(self, row: Row) -> bool:
        """Start a trial. False if its last start has not ended yet. Raises CausewayError."""
        known, _, errors = runs.several([row.id], self._present, {})
        away = {**self._away, **errors}
        run = known.get(row.id)
        if run is None:
            tried_on = records.hosts_of(row.id)
            if unsure := [name for name in tried_on or () if name in away]:
                raise away[unsure[0]]  # it may be running there
            hosts = [name for name in self.on if name not in away]
            if not hosts:
                raise next(iter(away.values()))
            digest = search_record(self.folder)["code"]
            machines = Machines(hosts, self._workers, self.job, self._size, digest)
            job = of_trial(self.job, row.parameters)
            placed = place(workers_of(job), machines.checked)
            if tried_on is not None:
                runs.clear(row.id, hosts, [*placed])
            given = Given(self.secret, {name: plain(value) for name, value in row.parameters.items()})
            with (self.folder / ARCHIVE).open("rb") as archive:
                runs.start(job, machines, placed, archive, digest, self._size, given, name=row.id)
            return True
        if _is_ending(run) or run.state not in (*ENDED, "starting"):
            return False
        if run.state == "starting":  # a conductor that started it was killed
            runs.undo(run)
            return False
        runs.go_on(run)
        return True

    @property
    def _present(self) -> list[str]:
        """Its machines that answered in this round."""
        return [name for name in self.on if name not in self._away]

    @property
    def _size(self) -> int:
        return (self.folder / ARCHIVE).stat().st_size

    def _room(self, most: int) -> int:
        """Return for how many more trials GPUs are free now."""
        hosts = self._present
        if most < 1 or not hosts:
            return 0
        try:
            checked = Machines(hosts, self._workers, self.job, self._size).checked
        except CausewayError as error:
            self._tell("", f"no trial can be started: {error}")
            return 0
        self._tell("", "")
        return room(self._workers, checked, most)

    def _tell(self, what: str, text: str) -> None:
        """Report a text once, until it changes."""
        if text and self._said.get(what) != text:
            self.say(text)
        self._said[what] = text


def _is_ending(run: Run) -> bool:
    """Whether a worker is running, or may be."""
    return any(worker.state in ("running", "unknown") for worker in run.workers)
