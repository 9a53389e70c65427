"""The life cycle of workloads: queued, quota reserved, provisioned, admitted, evicted, finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from infra.autoscaler.observed.snapshot import Flavor, Gang, GangSet, Shape
from infra.simulator.event_queue import Calendar
from infra.simulator.kueue.admission import Admission, Room
from infra.simulator.kueue.quota import Usage
from infra.simulator.kueue.rules import Choice, Rules
from infra.simulator.kueue.workload import Workload

_BATCH = 1.0
"""Seconds until inadmissible workloads are reconsidered after a change (Kueue, ``requeueBatchPeriod``)."""
_TOPOLOGY_MOST = 30.0
"""Maximum seconds between two attempts of topology assignment (Kueue, ``second_pass_queue.go``)."""


class Work(Protocol):
    """The job of a workload."""

    def begin(self, shape: Shape, request: str | None) -> None:
        """Create its pods, with this shape, in the gang of a request."""

    def suspend(self, gone: Callable[[], None]) -> None:
        """Remove its pods, and call ``gone`` after the last one."""

    def ready(self) -> bool:
        """Whether all of its pods are running or finished."""


class Kueue:
    """The controller. Calls `begin` and other methods of its workloads' jobs."""

    def __init__(self, rules: Rules, calendar: Calendar, room: Room) -> None:
        self.rules = rules
        self._calendar = calendar
        self._usage = Usage(rules, lambda: calendar.now) if rules.half_life else None
        self.admission = Admission(rules, room, self._usage.of if self._usage is not None else None)
        self._room = room
        self._jobs: dict[Workload, Work] = {}
        self._due = False
        """Whether inadmissible workloads are about to be reconsidered."""
        self.requests: dict[str, Gang] = {}
        """ProvisioningRequests, as the autoscaler reads them."""
        self._of: dict[str, Workload] = {}
        """Request → its workload."""
        self._request: dict[Workload, str] = {}
        self.evictions: Counter[str] = Counter()
        """By why."""
        self.preempted: set[str] = set()
        """Workloads that were ever preempted."""
        self.version = 0
        """Incremented with every change that may affect the autoscaler's decision."""

    # State for readers

    def flavors(self) -> Mapping[str, Flavor]:
        """All flavors, with the autoscaler's taint where it is set."""
        return {
            each.flavor.name: replace(each.flavor, held=each.flavor.name in self.admission.held)
            for each in self.rules.choices
        }

    def waiting(self) -> int:
        """Pods of workloads that are not admitted: without quota, or with a pending request."""
        return sum(each.count for each in self._jobs if not each.begun)

    # Events from jobs

    def submit(self, workload: Workload, job: Work) -> None:
        """A job was created, suspended."""
        self._jobs[workload] = job
        self.admission.waiting.append(workload)
        self._calendar.after(0.0, self._cycle)

    def finish(self, workload: Workload, pods: int = 1) -> None:
        """Pods have finished."""
        self.admission.finish(workload, pods)
        if not workload.count:
            self._forget(workload)
            del self._jobs[workload]
        self._changed()

    def displaced(self, workload: Workload, pods: int) -> bool:
        """Pods lost their machine; returns whether they may have another. If not, the whole job is evicted
        and requeued (Kueue, ``TASFailedNodeReplacementFailFast``)."""
        choice = workload.choice
        if choice is None or workload.leaving or not workload.begun:
            return False
        if not choice.topology or self._room(choice, replaced(workload, pods)):
            return True
        self._evict(workload, "node")
        return False

    # Events from an autoscaler

    def answer(self, key: str, condition: str) -> None:
        """A condition of a request becomes true."""
        gang = self.requests.get(key)
        if gang is None:
            return
        self.version += 1
        self.requests[key] = replace(gang, condition=condition, since=self._calendar.now)
        workload = self._of[key]
        if condition == "Provisioned":
            self._place(workload, key, 0)
        elif condition == "Failed" or (condition == "BookingExpired" and not workload.begun):
            wait = min(self.rules.retry * 2**workload.retries, self.rules.retry_most)
            workload.retries += 1
            workload.until = self._calendar.now + wait
            workload.since = self._calendar.now
            self._evict(workload, condition)
        elif condition == "CapacityRevoked":
            # Deactivated: it is not requested again.
            self._evict(workload, condition, again=False)

    def hold(self, flavor: str, *, on: bool) -> None:
        """Set or remove the taint of a flavor that no workload tolerates."""
        (self.admission.held.add if on else self.admission.held.discard)(flavor)
        self.version += 1
        self._changed()

    # Consequences

    def _changed(self) -> None:
        if self._usage is not None:
            self._usage.count(self.admission.admitted)
        if self._due:
            return
        self._due = True

        def again() -> None:
            self._due = False
            self.admission.wake()
            self._cycle()

        self._calendar.after(_BATCH, again)

    def _cycle(self) -> None:
        reserved, leaving = self.admission.cycle(self._calendar.now)
        for each in reserved:
            self._reserved(each)
        for each in leaving:
            self.preempted.add(each.key)
            self._evict(each, "preempted")

    def _reserved(self, workload: Workload) -> None:
        choice = workload.choice
        assert choice is not None
        if self._usage is not None:
            self._usage.charge(workload)
            self._usage.count(self.admission.admitted)
        if not choice.checked:
            self._begin(workload, None)
            return
        workload.attempts += 1
        name = f"{workload.key.partition('/')[2]}-{workload.attempts}"
        key = f"ProvisioningRequest/{workload.namespace}/{name}"
        self.requests[key] = Gang(
            key=key,
            kind="ProvisioningRequest",
            namespace=workload.namespace,
            name=name,
            uid=key,
            created=self._calendar.now,
            priority=workload.priority,
            sets=(GangSet(given(workload.shape, choice), workload.count),),
            across=workload.across,
        )
        self._of[key], self._request[workload] = workload, key
        self.version += 1

    def _place(self, workload: Workload, key: str, tries: int) -> None:
        """Its machines are provisioned: it starts once there is room for all of it."""
        if self._request.get(workload) != key or workload.leaving or workload.begun:
            return
        assert workload.choice is not None
        if self._room(workload.choice, workload):
            self._begin(workload, key)
            return
        wait = min(2.0**tries, _TOPOLOGY_MOST)
        self._calendar.after(wait, lambda: self._place(workload, key, tries + 1))

    def _begin(self, workload: Workload, request: str | None) -> None:
        choice = workload.choice
        assert choice is not None
        workload.begun = True
        workload.admissions += 1
        self._jobs[workload].begin(given(workload.shape, choice), request)
        if self.rules.ready is not None:
            times = workload.admissions
            self._calendar.after(self.rules.ready, lambda: self._judge(workload, times))

    def _judge(self, workload: Workload, times: int) -> None:
        """Evict it if it did not start in time."""
        job = self._jobs.get(workload)
        if job is None or workload.admissions != times or not workload.begun or workload.leaving:
            return
        if job.ready():
            return
        workload.timeouts += 1
        wait = min(self.rules.unready * 2 ** (workload.timeouts - 1), self.rules.unready_most)
        workload.since, workload.until = self._calendar.now, self._calendar.now + wait
        self._evict(workload, "not ready")

    def _evict(self, workload: Workload, why: str, *, again: bool = True) -> None:
        if workload not in self._jobs:
            return
        workload.leaving = True
        self.evictions[why] += 1
        self._forget(workload)

        def gone() -> None:
            if workload not in self._jobs:
                return  # its pods finished before they had left
            workload.begun = False
            self.admission.release(workload)
            if again:
                self.admission.waiting.append(workload)
            self._changed()
            if workload.until > self._calendar.now:
                self._calendar.at(workload.until, self._cycle)

        if workload.begun:
            workload.retries = 0
            self._jobs[workload].suspend(gone)
        else:
            gone()

    def _forget(self, workload: Workload) -> None:
        key = self._request.pop(workload, None)
        if key is not None:
            del self.requests[key], self._of[key]
            self.version += 1


def given(shape: Shape, choice: Choice) -> Shape:
    """The shape of admitted pods, with the node selector of their flavor."""
    flavor = choice.flavor
    selector = {**dict(shape.selector), **flavor.labels}
    return replace(
        shape,
        selector=tuple(sorted(selector.items())),
        tolerations=tuple(dict.fromkeys((*shape.tolerations, *flavor.tolerations))),
    )


def replaced(workload: Workload, pods: int) -> Workload:
    """The part of it that needs another machine."""
    return Workload(
        workload.key, workload.namespace, workload.queue, workload.shape, pods, workload.created,
        workload.priority, workload.across,
    )  # fmt: skip
