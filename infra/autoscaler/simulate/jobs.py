"""Jobs: how work gets on, what is lost when it is interrupted, how long it had to wait.

A pod that is gone before its time is made anew by its controller after a moment and goes on from its last
save, if it saves at all; one that was asked to leave saves once more. Of a gang, all start over together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.autoscaler.simulate.calendar import Calendar
from infra.autoscaler.simulate.cluster import Cluster, Work
from infra.autoscaler.simulate.conditions import Conditions
from infra.autoscaler.simulate.trace import Job, Trace
from infra.autoscaler.world import Gang, GangSet, Owner, Pod, Shape


@dataclass(slots=True)
class Account:
    """What came of the jobs."""

    submitted: int = 0
    """Pods, their repetitions not counted."""
    finished: int = 0
    waits: list[float] = field(default_factory=list)
    """Of each pod that has begun: seconds from its submission to its first start."""
    delays: list[float] = field(default_factory=list)
    """Of each pod that is done: seconds from its submission to its end, less those that it computed: waiting,
    restarts and lost work together."""
    restarts: int = 0
    lost_gpu_seconds: float = 0.0
    used_gpu_seconds: float = 0.0
    """Of work that counted."""


@dataclass(slots=True, eq=False)
class _Run:
    """A pod of a job, or all of them if it is a gang."""

    job: Job
    shape: Shape
    owner: Owner
    members: range
    submitted: float
    remaining: float
    attempt: int = 0
    began: float | None = None
    """When it began to compute, this time."""
    first: float | None = None
    running: int = 0
    works: list[Work] = field(default_factory=list)

    @property
    def cards(self) -> int:
        return self.job.gpus * len(self.members)


class Jobs:
    """All jobs of a trace."""

    def __init__(self, trace: Trace, conditions: Conditions, calendar: Calendar, cluster: Cluster) -> None:
        self._conditions = conditions
        self._calendar = calendar
        self._cluster = cluster
        self._shapes: dict[Shape, Shape] = {}
        self.gangs: dict[str, Gang] = {}
        """Those whose jobs are not done."""
        self.version = 0
        """Grows with every change of `gangs`."""
        self.account = Account()
        self._new: dict[int, _Run] = {}
        """Runs that have never begun."""
        self.to_come = sum(job.pods for job in trace.jobs)
        """Pods that are not submitted yet."""
        for job in trace.jobs:
            calendar.at(calendar.start + job.submit, lambda job=job: self._submit(job))  # type: ignore[misc]

    @property
    def over(self) -> bool:
        """Whether all is done."""
        return self.to_come == 0 and self.account.finished == self.account.submitted

    def not_begun(self) -> list[float]:
        """When those pods were submitted that have never run, in seconds from the beginning."""
        return [run.submitted - self._calendar.start for run in self._new.values() for _ in run.members]

    def _submit(self, job: Job) -> None:
        now = self._calendar.now
        shape = job.shape
        shape = self._shapes.setdefault(shape, shape)
        self.to_come -= job.pods
        self.account.submitted += job.pods
        key = job.gang_key
        together = [range(job.pods)] if key is not None else [range(at, at + 1) for at in range(job.pods)]
        if key is not None:
            self.gangs[key] = Gang(
                key=key,
                kind="Job",
                namespace=job.namespace,
                name=job.name,
                uid=job.owner.uid,
                created=now,
                priority=job.priority,
                sets=(GangSet(shape, job.pods),),
                across=job.across,
            )
            self.version += 1
        works: list[Work] = []
        for members in together:
            run = _Run(job, shape, job.owner, members, now, job.seconds)
            self._new[id(run)] = run
            works += self._pods(run)
        self._cluster.submit(works, across=job.across)

    def _pods(self, run: _Run) -> list[Work]:
        """New pods of a run."""
        now = self._calendar.now
        run.began, run.running = None, 0
        job = run.job

        def stopped(work: Work, asked: bool) -> None:
            self._stopped(run, work, asked=asked)

        def started() -> None:
            self._started(run)

        run.works = [
            Work(
                Pod(
                    uid=f"{job.name}-{member}-{run.attempt}",
                    namespace=job.namespace,
                    name=f"{job.name}-{member}" + (f"-{run.attempt}" if run.attempt else ""),
                    shape=run.shape,
                    owner=run.owner,
                    created=now,
                    gang=job.gang_key,
                ),
                stopped,
                started,
            )
            for member in run.members
        ]
        return run.works

    def _started(self, run: _Run) -> None:
        run.running += 1
        if run.running < len(run.members):
            return
        now = run.began = self._calendar.now
        if run.first is None:
            run.first = now
            del self._new[id(run)]
            self.account.waits.extend([now - run.submitted] * len(run.members))
        attempt = run.attempt

        def done() -> None:
            if run.attempt == attempt:
                self._done(run)

        self._calendar.after(run.remaining, done)

    def _done(self, run: _Run) -> None:
        now = self._calendar.now
        run.attempt += 1
        self.account.finished += len(run.members)
        self.account.delays.extend([now - run.submitted - run.job.seconds] * len(run.members))
        self.account.used_gpu_seconds += run.job.seconds * run.cards
        for work in run.works:
            self._cluster.finish(work)
        key = run.job.gang_key
        if key is not None:
            del self.gangs[key]
            self.version += 1

    def _stopped(self, run: _Run, work: Work, *, asked: bool) -> None:
        """A pod of it is gone: what was computed since the last save is lost."""
        attempt = run.attempt = run.attempt + 1
        if run.began is not None:
            computed = self._calendar.now - run.began
            every = run.job.checkpoint
            saved = 0.0 if not every else computed if asked else computed // every * every
            run.remaining -= saved
            self.account.lost_gpu_seconds += (computed - saved) * run.cards
            self.account.restarts += len(run.members)
        for other in run.works:
            if other is not work:
                self._cluster.delete(other)

        def again() -> None:
            if run.attempt == attempt:
                self._cluster.submit(self._pods(run), across=run.job.across)

        self._calendar.after(self._conditions.recreate, again)
