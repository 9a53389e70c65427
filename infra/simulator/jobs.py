"""Jobs: progress, loss by interruptions, waiting times.

A pod that is lost is recreated by its controller after a moment and continues from its last checkpoint, if
it saves any; one that was asked to leave saves once more. All pods of a gang restart together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from infra.autoscaler.observed.snapshot import Gang, GangSet, Owner, Pod, Shape
from infra.simulator.cluster import Cluster, Work
from infra.simulator.conditions import Conditions
from infra.simulator.event_queue import Calendar
from infra.simulator.kueue import Kueue, Workload
from infra.simulator.trace import Job, Trace


@dataclass(slots=True)
class Account:
    """Statistics of jobs."""

    submitted: int = 0
    """Pods, without repetitions."""
    finished: int = 0
    waits: list[float] = field(default_factory=list)
    """For each started pod: seconds from its submission to its first start."""
    delays: list[float] = field(default_factory=list)
    """For each finished pod: seconds from its submission to its end, less those that it computed: the sum of
    waiting, restarts and lost work."""
    restarts: int = 0
    lost_gpu_seconds: float = 0.0
    used_gpu_seconds: float = 0.0
    """Of work that was not lost."""


@dataclass(slots=True, eq=False)
class _Run:
    """A pod of a job, or all pods of a gang."""

    job: Job
    shape: Shape
    owner: Owner
    members: range
    submitted: float
    remaining: float
    attempt: int = 0
    began: float | None = None
    """When the current computation began."""
    first: float | None = None
    running: int = 0
    works: list[Work] = field(default_factory=list)
    gang: str | None = None
    """The key of its pods' gang."""
    done: bool = False
    workload: Workload | None = None
    """Its Kueue workload."""

    @property
    def gpus(self) -> int:
        return self.job.gpus * len(self.members)


class Jobs:
    """All jobs of a trace."""

    def __init__(
        self,
        trace: Trace,
        conditions: Conditions,
        calendar: Calendar,
        cluster: Cluster,
        kueue: Kueue | None = None,
    ) -> None:
        self._kueue = kueue
        self._conditions = conditions
        self._calendar = calendar
        self._cluster = cluster
        self._shapes: dict[Shape, Shape] = {}
        self.gangs: dict[str, Gang] = {}
        """Gangs of unfinished jobs."""
        self.version = 0
        """Incremented with every change of `gangs`."""
        self.account = Account()
        self._new: dict[int, _Run] = {}
        """Runs that have never started."""
        for job in trace.jobs:
            calendar.at(calendar.start + job.submit, lambda job=job: self._submit(job))  # type: ignore[misc]

    def not_begun(self) -> list[float]:
        """The submission times of pods that have never run, in seconds from the start."""
        return [run.submitted - self._calendar.start for run in self._new.values() for _ in run.members]

    def _submit(self, job: Job) -> None:
        now = self._calendar.now
        shape = job.shape
        shape = self._shapes.setdefault(shape, shape)
        self.account.submitted += job.pods
        whole = job.gang_key is not None
        together = [range(job.pods)] if whole else [range(at, at + 1) for at in range(job.pods)]
        runs = [_Run(job, shape, job.owner, members, now, job.seconds) for members in together]
        self._new.update((id(run), run) for run in runs)
        if self._kueue is None:
            self.begin(runs, shape, None)
            return
        workload = Workload(
            key=f"{job.namespace}/{job.name}",
            namespace=job.namespace,
            queue=self._kueue.rules.queue_of(job.namespace),
            shape=shape,
            count=job.pods,
            created=now,
            priority=job.priority,
            across=job.across,
        )
        for run in runs:
            run.workload = workload
        self._kueue.submit(workload, _Suspended(self, runs))

    def begin(self, runs: list[_Run], shape: Shape, request: str | None) -> None:
        """Create pods for unfinished runs: in the gang of a request, or else of their own job."""
        job = runs[0].job
        shape = self._shapes.setdefault(shape, shape)
        key = request or job.gang_key
        if request is None and key is not None:
            self.gangs[key] = Gang(
                key=key,
                kind="Job",
                namespace=job.namespace,
                name=job.name,
                uid=job.owner.uid,
                created=self._calendar.now,
                priority=job.priority,
                sets=(GangSet(shape, job.pods),),
                across=job.across,
            )
            self.version += 1
        works: list[Work] = []
        for run in runs:
            if not run.done:
                run.attempt += bool(run.works)
                run.shape, run.gang = shape, key
                works += self._pods(run)
        self._cluster.submit(works, across=job.across)

    def suspend(self, runs: list[_Run], gone: Callable[[], None]) -> None:
        """All pods of a job leave: running ones save first."""
        grace = 0.0
        for run in runs:
            for work in [] if run.done else run.works:
                if work.seen.uid not in self._cluster.works:
                    continue
                if work.host is None:
                    self._cluster.delete(work)
                else:
                    grace = max(grace, work.seen.grace)
                    self._cluster.leave(work, grace=work.seen.grace)
        key = runs[0].job.gang_key
        if key is not None and self.gangs.pop(key, None) is not None:
            self.version += 1
        self._calendar.after(grace, gone)

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
                    gang=run.gang,
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
        run.done = True
        self.account.finished += len(run.members)
        self.account.delays.extend([now - run.submitted - run.job.seconds] * len(run.members))
        self.account.used_gpu_seconds += run.job.seconds * run.gpus
        for work in run.works:
            self._cluster.finish(work)
        key = run.job.gang_key
        if key is not None and self.gangs.pop(key, None) is not None:
            self.version += 1
        if self._kueue is not None and run.workload is not None:
            self._kueue.finish(run.workload, len(run.members))

    def _stopped(self, run: _Run, work: Work, *, asked: bool) -> None:
        """A pod was lost, with the work since its last checkpoint."""
        attempt = run.attempt = run.attempt + 1
        if run.began is not None:
            computed = self._calendar.now - run.began
            every = run.job.checkpoint
            saved = 0.0 if not every else computed if asked else computed // every * every
            run.remaining -= saved
            self.account.lost_gpu_seconds += (computed - saved) * run.gpus
            self.account.restarts += len(run.members)
        for other in run.works:
            if other is not work:
                self._cluster.delete(other)

        def again() -> None:
            if run.attempt != attempt:
                return
            workload, pods = run.workload, len(run.members)
            if self._kueue is None or workload is None or self._kueue.displaced(workload, pods):
                self._cluster.submit(self._pods(run), across=run.job.across)

        self._calendar.after(self._conditions.recreate, again)


class _Suspended:
    """A job that Kueue suspends and admits."""

    def __init__(self, jobs: Jobs, runs: list[_Run]) -> None:
        self._jobs = jobs
        self._runs = runs

    def begin(self, shape: Shape, request: str | None) -> None:
        self._jobs.begin(self._runs, shape, request)

    def suspend(self, gone: Callable[[], None]) -> None:
        self._jobs.suspend(self._runs, gone)

    def ready(self) -> bool:
        return all(run.done or run.began is not None for run in self._runs)
