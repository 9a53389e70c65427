"""What is free in the cluster and who waits: the ConfigMap ``causeway-system/availability``.

The autoscaler writes it, since people see no more of the cluster than their own namespaces. A cluster without
one is a cluster in which that is not known. Fields are only added within a version of its form, so the next
version can be read as well.
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
"""The newest form that this program knows."""

_PATH = "/api/v1/namespaces/causeway-system/configmaps/availability"
_OLD = timedelta(minutes=30)
"""It is written every ten minutes at least."""
_UTC = timezone.utc


@dataclass(frozen=True)
class Machines:
    """Machines with GPUs of one model, of a pool or of the lab's own, at one site."""

    ready: int
    starting: int
    gpus: int
    free: int
    largest: int
    """Free GPUs of the machine that has most."""


@dataclass(frozen=True)
class NoCapacity:
    """A pool that gets no machines at a site now."""

    site: str
    pool: str
    until: datetime | None
    """None if that is not known."""
    why: str

    def __str__(self) -> str:
        until = f" until {clock(self.until)}" if self.until else ""
        return f"{self.pool} in {self.site}: {self.why}{until}"


@dataclass(frozen=True)
class Place:
    """The place of a run in its queue."""

    position: int | None
    """From 1; None where its queue is not there."""
    ahead: int | None
    gpus_ahead: int | None
    latest_start: datetime | None
    """From the declared times of the runs ahead; None if it is unknown."""
    unknown: str
    """Why it is unknown."""


@dataclass(frozen=True)
class Waiting:
    """A run, or other work, that waits."""

    namespace: str
    kind: str
    name: str
    queue: str | None
    priority: int
    gpus: int
    place: Place


@dataclass(frozen=True)
class Quota:
    """GPUs as the queues count them."""

    flavor: str
    pool: str | None
    model: str | None
    gpus: int
    free: int
    """Free now, for new runs."""
    later: Sequence[tuple[datetime, int]]
    """(from when on, how many) after all waiting runs; ascending. Empty if it is unknown."""


@dataclass(frozen=True)
class Availability:
    """The cluster as its autoscaler saw it last."""

    written: datetime | None
    machines: Mapping[tuple[str, str | None, str | None], Machines]
    """By site, pool (None for the lab's own) and model."""
    no_capacity: Sequence[NoCapacity]
    queue: Sequence[Waiting] | None
    """In queue order; None without queues."""
    cut: int
    """Number of entries at its end that are left out."""
    quotas: Sequence[Quota]
    note: str = ""
    """A note to show with it."""

    def place(self, namespace: str, name: str) -> Place | None:
        """The entry of a run; None if the autoscaler has not seen it waiting."""
        for each in self.queue or ():
            if (each.namespace, each.kind, each.name) == (namespace, "JobSet", name):
                return each.place
        return None


def read(cluster: Cluster) -> tuple[Availability | None, str]:
    """The availability, with a note: why there is none, or that it is outdated or from a newer version."""
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
    """Of the content of an ``availability.json``. KeyError, TypeError, ValueError if it cannot be parsed."""
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


# -- A run that is to be ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """The outlook of a run that is submitted now."""

    ahead: int | None
    """How many are before it in its queue; None if that is not known."""
    gpus_ahead: int
    starts: datetime | None
    """The latest start, by quota; None if it is not known."""
    at_once: bool
    """Whether there is quota for it now."""


def outlook(found: Availability, fits: Sequence[Fit], queue: str | None, priority: int | None) -> Outlook:
    """For roles on the machines that they may have. ``queue``: its ClusterQueue. ``priority``: its class's.

    A start is known for one role with GPUs: several may get different ones.
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
    """Whether a role may get GPUs of that quota."""
    return any(
        machine.pool == quota.pool and (quota.pool or (machine.gpus and machine.gpus.model == quota.model))
        for machine in found.machines
    )


# -- Times ------------------------------------------------------------------------------------------------


def clock(at: datetime) -> str:
    """``14:05 UTC``, with the day if it is another one."""
    day = "" if at.date() == datetime.now(_UTC).date() else f"{at:%b} {at.day} "
    return f"{day}{at:%H:%M} UTC"


def _time(text: str | None) -> datetime | None:
    return None if text is None else _known(text)


def _known(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=_UTC)
