"""Why work waits, and why a group does not take it: codes with fields. `reporting.sentences` words them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Lasting: TypeAlias = Literal[
    "devices",  # the pod has resource claims (DRA)
    "taint",
    "label",  # of the pod's node selector
    "affinity",
    "volume-zone",  # its volume is elsewhere
    "size",  # a machine has less than the pod asks for
    "volumes",  # a machine attaches fewer volumes
    "gpus",  # machines with GPUs, and others take such a pod
]
"""What is in the way until somebody changes the pod or the group, whatever the group's size."""

Passing: TypeAlias = Literal[
    "mismatch",  # the last machines turned out not to take it
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
    "rules",  # its rules about zones and other pods allow no place
]

ObstacleCode: TypeAlias = Literal[Lasting, Passing]
"""Of a group."""

WorkCode: TypeAlias = Literal[
    "blocked",  # no group takes it, each for its own reason
    "no-claim",
    "no-peers",  # it wants to be with pods that its affinity does not select
    "low-priority",
    "incomplete",  # pods of a gang are missing
    "late",  # not all machines of a gang were up in time
    "fault",
    "resources",  # no machine that it may be on has as much
    "unknown-resources",  # nothing of the cluster has any
    "site-places",  # no site has ever as many places as a gang needs
    "places",  # nor have all sites together
]
"""Of work."""


class Request(Struct, frozen=True):
    """What equal pods ask for."""

    count: int
    requests: tuple[tuple[str, int], ...]
    """Of each: (resource, amount)."""
    model: str = ""
    """Of the GPUs, where it can be one only."""


class Reason(Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """Why: a code, and the fields that it has."""

    code: ObstacleCode | WorkCode
    group: str = ""
    """The group that does not take a pod; empty for a reason of the work's own or of one machine."""
    site: str = ""
    """The group's."""
    what: str = ""
    """The taint; the label or terms asked for; the resource, CSI driver, quota or claim; the failure's class
    (`launch_failures.status_messages.CLASSES`); what was read of a machine, or failed."""
    has: str | None = None
    """The machine's own value of the label."""
    requested: float | None = None
    limit: float | None = None
    """What there is of it at most: the resource's amount on a machine, volumes, pods, places, units, USD an
    hour that are left, vCPUs; seconds that a gang had."""
    region: str = ""
    """The quota's."""
    zones: tuple[tuple[str, str], ...] = ()
    """Those that are closed: (zone, the failure's class)."""
    until: float | None = None
    """When it is tried again."""
    request: Request | None = None
    short: tuple[Reason, ...] = ()
    """The ``size`` of each resource that no machine has as much of."""
