"""What is free in the cluster and who waits: the ConfigMap ``causeway-system/availability``.

The autoscaler writes it, since users can read only their own namespaces. Without the ConfigMap, availability
is unknown. Within a version of the format, fields are only added, so newer minor versions can be read as
well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.fit import Fit

VERSION = 1
"""The newest version of the format that this program knows."""

_PATH = "/api/v1/namespaces/causeway-system/configmaps/availability"
_OLD = timedelta(minutes=30)
"""The ConfigMap is written at least every ten minutes."""
_UTC = timezone.utc


@dataclass(frozen=True)
class Machines:
    """Machines at one site with GPUs of one model, from a pool or on-premises."""

    ready: int
    starting: int
    gpus: int
    free: int
    largest: int
    """Free GPUs of the machine that has the most."""


@dataclass(frozen=True)
class NoCapacity:
    """A pool that cannot get machines at a site at present."""

    site: str
    pool: str
    until: datetime | None
    """None if unknown."""
    why: str

    def __str__(self) -> str:
        until = f" until {clock(self.until)}" if self.until else ""
        return f"{self.pool} in {self.site}: {self.why}{until}"


@dataclass(frozen=True)
class Place:
    """The place of a run in its queue."""

    position: int | None
    """Counted from 1; None if its queue was not found."""
    ahead: int | None
    gpus_ahead: int | None
    latest_start: datetime | None
    """Computed from the declared times of the runs ahead of it; None if unknown."""
    unknown: str
    """Why the start is unknown."""


@dataclass(frozen=True)
class Waiting:
    """A run, or another workload, that waits."""

    namespace: str
    kind: str
    name: str
    queue: str | None
    priority: int
    gpus: int
    place: Place


@dataclass(frozen=True)
class Quota:
    """GPU quota as counted by the queues."""

    flavor: str
    pool: str | None
    model: str | None
    gpus: int
    free: int
    """Free now for new runs."""
    later: Sequence[tuple[datetime, int]]
    """(time, number of GPUs free from then on), after all waiting runs; ascending. Empty if unknown."""


@dataclass(frozen=True)
class Availability:
    """The cluster as the autoscaler last saw it."""

    written: datetime | None
    machines: Mapping[tuple[str, str | None, str | None], Machines]
    """By site, pool (None for on-premises machines) and model."""
    no_capacity: Sequence[NoCapacity]
    queue: Sequence[Waiting] | None
    """In queue order; None without queues."""
    cut: int
    """Number of entries left out at the end of the queue."""
    quotas: Sequence[Quota]
    note: str = ""
    """A note to show to the user."""

    def place(self, namespace: str, name: str) -> Place | None:
        """Return the queue entry of a run; None if the autoscaler has not seen it waiting."""
        for each in self.queue or ():
            if (each.namespace, each.kind, each.name) == (namespace, "JobSet", name):
                return each.place
        return None


def read(cluster: Cluster) -> tuple[Availability | None, str]:
    """Read the availability. Its note says why it is missing, outdated or of a newer version."""
    try:
        found = cluster.find(_PATH)
    except RefusedError as error:
        if error.code != 403:
            raise
        found = None
    if found is None:
        return None, "the cluster has no autoscaler that reports free capacity"
    try:
        values = json.loads(found["data"]["availability.json"])
        if values["version"] > VERSION + 1:
            return None, "the cluster is newer than this program: pip install --upgrade causeway-client"
        parsed = parse(values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None, "the autoscaler's report of free capacity cannot be parsed"
    return parsed, parsed.note


def parse(values: Mapping[str, Any], now: datetime | None = None) -> Availability:
    """Parse the content of an ``availability.json``. Raises KeyError, TypeError or ValueError."""
    written = _time(values.get("written"))
    queue = values.get("queue")
    return Availability(
        written=written,
        machines={
            (each["site"], each["pool"], each["model"]): Machines(
                each["ready"], each["starting"], each["gpus"], each["free"], each["largest"]
            )
            for each in values["machines"]
        },
        no_capacity=[
            NoCapacity(each["site"], each["pool"], _time(each["until"]), each["why"])
            for each in values["no_capacity"]
        ],
        queue=None if queue is None else [_waiting(each) for each in queue],
        cut=values.get("queue_cut", 0),
        quotas=[
            Quota(
                each["flavor"], each["pool"], each["model"], each["gpus"], each["free"],
                [(_known(when), gpus) for when, gpus in each["later"]],
            )
            for each in values.get("quotas") or ()
        ],
        note=_note(values["version"], written, now or datetime.now(_UTC)),
    )  # fmt: skip


def _waiting(row: Mapping[str, Any]) -> Waiting:
    place = Place(
        row["position"], row["ahead"], row["gpus_ahead"], _time(row["latest_start"]), row["unknown"] or ""
    )
    return Waiting(
        row["namespace"], row["kind"], row["name"], row["queue"], row["priority"], row["gpus"], place
    )


def _note(version: int, written: datetime | None, now: datetime) -> str:
    if version > VERSION:
        return "the cluster is newer than this program: pip install --upgrade causeway-client"
    if written is not None and now - written > _OLD:
        return f"the autoscaler has not reported since {clock(written)}: this is that report"
    return ""


# -- A run before its submission ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """The outlook of a run submitted now."""

    ahead: int | None
    """How many runs are ahead of it in its queue; None if unknown."""
    gpus_ahead: int
    starts: datetime | None
    """The latest start by quota; None if unknown."""
    at_once: bool
    """Whether there is quota for it immediately."""


def outlook(found: Availability, fits: Sequence[Fit], queue: str | None, priority: int | None) -> Outlook:
    """Estimate the outlook of roles on the machines that they may use. ``queue``: name of the ClusterQueue.
    ``priority``: value of the priority class.

    The start is known only for a run with one role that uses GPUs: several roles may get different ones.
    """
    ahead = [
        each
        for each in found.queue or ()
        if each.queue == queue and (priority is None or each.priority >= priority)
    ]
    known = queue is not None and found.queue is not None and not found.cut
    starts, at_once = None, False
    wanting = [each for each in fits if each.workers.gpus.count]
    if len(wanting) == 1:
        gpus = wanting[0].workers.count * wanting[0].workers.gpus.count
        rows = [each for each in found.quotas if may_use(wanting[0], each)]
        at_once = any(each.free >= gpus for each in rows)
        times = [when for each in rows for when, free in each.later if free >= gpus]
        starts = min(times, default=None)
    return Outlook(len(ahead) if known else None, sum(each.gpus for each in ahead), starts, at_once)


def may_use(found: Fit, quota: Quota) -> bool:
    """Whether a role may use GPUs of that quota."""
    return any(
        machine.pool == quota.pool and (quota.pool or (machine.gpus and machine.gpus.model == quota.model))
        for machine in found.machines
    )


# -- Times ------------------------------------------------------------------------------------------------


def clock(at: datetime) -> str:
    """Format a time as ``14:05 UTC``, with the day if it is not today."""
    day = "" if at.date() == datetime.now(_UTC).date() else f"{at:%b} {at.day} "
    return f"{day}{at:%H:%M} UTC"


def _time(text: str | None) -> datetime | None:
    return None if text is None else _known(text)


def _known(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=_UTC)
