"""Why work waits, and why a group does not fit: codes with fields. `reporting.sentences` turns them into
text."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Lasting: TypeAlias = Literal[
    "devices",  # the pod has resource claims (DRA)
    "taint",
    "label",  # in the pod's node selector
    "affinity",
    "volume-zone",  # its volume is in another zone
    "size",  # a machine has less than the pod requests
    "volumes",  # a machine can attach fewer volumes
    "gpus",  # machines have GPUs, and others fit such a pod
]
"""Obstacles until the pod or the group is changed, whatever the group's size."""

Passing: TypeAlias = Literal[
    "mismatch",  # the last machines turned out not to fit
    "part",  # it has room for a part of a gang
    "unreadable",
    "deleting",
    "suspended",
    "backoff",
    "maximum",
    "no-price",  # and there is a budget
    "budget",
    "quota",
    "closed-zones",
    "rules",  # rules about zones and other pods allow no place
]

ObstacleCode: TypeAlias = Literal[Lasting, Passing]
"""The obstacles of a group."""

WorkCode: TypeAlias = Literal[
    "blocked",  # no group fits, each for its own reason
    "no-claim",
    "no-peers",  # it has affinity to pods that do not exist
    "low-priority",
    "incomplete",  # pods of a gang are missing
    "late",  # not all machines of a gang were up in time
    "fault",
    "resources",  # no machine that matches has enough
    "unknown-resources",  # no machine of the cluster has any
    "site-places",  # no site can ever hold a gang
    "places",  # nor can all sites together
]
"""The reasons of work."""


class Request(Struct, frozen=True):
    """The requests of equal pods."""

    count: int
    requests: tuple[tuple[str, int], ...]
    """Of each pod: (resource, amount)."""
    model: str = ""
    """The GPU model, if only one is possible."""


class Reason(Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """A code and its fields."""

    code: ObstacleCode | WorkCode
    group: str = ""
    """The group that does not fit; empty for a reason of the work itself or of one machine."""
    site: str = ""
    """The group's site."""
    what: str = ""
    """The taint; the requested label or terms; the resource, CSI driver, quota or claim; the failure class
    (`launch_failures.status_messages.CLASSES`); what could not be read."""
    has: str | None = None
    """The machine's value of the label."""
    requested: float | None = None
    limit: float | None = None
    """The maximum: the resource's amount on a machine; volumes, pods, places, units; remaining USD per hour;
    vCPUs; the seconds that a gang had."""
    region: str = ""
    """The region of the quota."""
    zones: tuple[tuple[str, str], ...] = ()
    """Closed zones: (zone, failure class)."""
    until: float | None = None
    """When it is tried again."""
    request: Request | None = None
    short: tuple[Reason, ...] = ()
    """The ``size`` reasons of each resource of which no machine has enough."""
