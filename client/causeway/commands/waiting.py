"""Why a run is waiting, and until when: its place in the queue, and the autoscaler's messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from causeway.cluster import availability, runs
from causeway.cluster.availability import Availability, Outlook, Place, clock
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.fit import Fit, fits_of
from causeway.cluster.runs import Run
from causeway.job import Job

WAITS = ("queued", "starting")
"""States of a run that does not have all of its machines."""


@dataclass(frozen=True)
class Wait:
    """What is known about why a run is waiting."""

    place: Place | None
    """None if unknown, or if it is only waiting for its machines."""
    quotas: Sequence[str] = ()
    """Queue quota of the GPUs that it may use."""
    autoscaler: Sequence[str] = field(default=())
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "queue": None if self.place is None else asdict(self.place),
            "quotas": list(self.quotas),
            "autoscaler": list(self.autoscaler),
            "note": self.note,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        place = self.place
        if place is not None and place.position is not None:
            ahead = "it is first in its queue"
            if place.ahead:
                ahead = f"{place.ahead} with {_gpus(place.gpus_ahead or 0)} ahead of it"
            yield f"position {place.position} in its queue: {ahead}"
        if place is not None:
            yield (
                f"starts by {clock(place.latest_start)}, if all runs take their declared time and "
                "none of higher priority is submitted"
                if place.latest_start
                else f"its start time is unknown: {place.unknown}"
            )
        yield from self.quotas
        yield from self.autoscaler
        if self.note:
            yield self.note


def wait(cluster: Cluster, run: Run) -> Wait:
    """Collect what is known. Sources that do not answer are left out."""
    found, note = availability.read(cluster)
    said = [*_of_requests(cluster, run), *_of_pods(cluster, run)]
    if found is None:
        return Wait(None, (), said, note)
    fits = fits_of(run.job, cluster.offer)
    place = found.place(run.namespace, run.name) if run.state == "queued" else None
    if run.state == "queued" and place is None and not note:
        note = (
            "it is behind all entries that the autoscaler lists"
            if found.cut
            else "the autoscaler has not seen it yet"
        )
    return Wait(
        place,
        list(_quotas(found, fits)) if run.state == "queued" else (),
        [*dict.fromkeys([*said, *map(str, _barred(found, fits))])],
        note,
    )


def _quotas(found: Availability, fits: Sequence[Fit]) -> Iterator[str]:
    """Format quotas: ``titan-x-pascal: 0 of 32 GPUs free in the queues``."""
    for quota in found.quotas:
        if any(each.workers.gpus.count and availability.may_use(each, quota) for each in fits):
            yield f"{quota.flavor}: {quota.free} of {_gpus(quota.gpus)} of the quota are free"


def _barred(found: Availability, fits: Sequence[Fit]) -> Iterator[availability.NoCapacity]:
    places = {(machine.site, machine.pool) for each in fits for machine in each.machines}
    return (each for each in found.no_capacity if (each.site, each.pool) in places)


def _of_pods(cluster: Cluster, run: Run) -> Iterator[str]:
    """Yield the autoscaler's latest message about pending pods of the run."""
    pods = {each.name for each in run.workers if each.state == "waiting"}
    if not pods:
        return
    path = f"/apis/events.k8s.io/v1/namespaces/{run.namespace}/events"
    newest: dict[str, tuple[str, str]] = {}
    for event in runs.items(cluster, path, fieldSelector="reportingController=causeway.dev/autoscaler"):
        about = event.get("regarding", {})
        if about.get("kind") == "Pod" and about.get("name") in pods:
            at = str(event.get("eventTime") or event["metadata"]["creationTimestamp"])
            newest[about["name"]] = max(newest.get(about["name"], ("", "")), (at, str(event.get("note", ""))))
    yield from dict.fromkeys(note for _, note in newest.values())


def _of_requests(cluster: Cluster, run: Run) -> Iterator[str]:
    """Yield the latest answer to its queue's request for machines."""
    workload = runs.workload_of(cluster, run)
    if workload is None:
        return
    path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{run.namespace}/provisioningrequests"
    mine = [
        each
        for each in runs.items(cluster, path)
        if any(
            owner["uid"] == workload["metadata"]["uid"]
            for owner in each["metadata"].get("ownerReferences", ())
        )
    ]
    if not mine:
        return
    newest = max(mine, key=lambda each: str(each["metadata"]["creationTimestamp"]))
    said = [
        (str(each.get("lastTransitionTime", "")), str(each.get("message", "")))
        for each in newest.get("status", {}).get("conditions", ())
        if each["status"] == "True" and each.get("message")
    ]
    if said:
        yield max(said)[1]


# -- Before submission ------------------------------------------------------------------------------------


def before(cluster: Cluster, namespace: str, job: Job, fits: Sequence[Fit]) -> str:
    """Describe in one line what a run would find; empty if nothing is known."""
    found, _ = availability.read(cluster)
    if found is None or found.note:
        return ""
    priority = job.priority or cluster.offer.default_priority
    seen = availability.outlook(found, fits, _queue(cluster, namespace), _value(cluster, priority))
    return described(seen)


def described(seen: Outlook) -> str:
    """Describe a place: ``3 with 24 GPUs are ahead of it; starts by 14:05 UTC``."""
    parts = []
    if seen.ahead is not None:
        parts.append(
            f"{seen.ahead} with {_gpus(seen.gpus_ahead)} ahead of it" if seen.ahead else "nothing ahead of it"
        )
    if seen.at_once:
        parts.append("its quota is free now")
    elif seen.starts is not None:
        parts.append(f"starts by {clock(seen.starts)}, by declared times")
    return "; ".join(parts)


def _queue(cluster: Cluster, namespace: str) -> str | None:
    found = _optional(cluster, f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/default")
    return found["spec"].get("clusterQueue") if found else None


def _value(cluster: Cluster, priority: str | None) -> int | None:
    """Return the value of a priority class; None if unknown, which counts everything as ahead."""
    if priority is None:
        return None
    found = _optional(cluster, f"/apis/scheduling.k8s.io/v1/priorityclasses/{priority}")
    return int(found["value"]) if found else None


def _optional(cluster: Cluster, path: str) -> Any:
    try:
        return cluster.find(path)
    except RefusedError as error:
        if error.code == 403:
            return None
        raise


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
