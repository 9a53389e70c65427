"""Facts from objects that are not part of a snapshot themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from infra.autoscaler.observed.snapshot import NodeTerm, Owner, Shape


class Template(Struct, frozen=True):
    """Pods to be."""

    shape: Shape
    """Without a priority, where only its class is named."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Those that are ours."""
    priority_class: str | None = None
    """To be looked up; None where the shape has its number already."""


class Job(Struct, frozen=True):
    """A Job. Its template is there only if it may be a gang."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    owner: Owner | None = None
    indexed: bool = False
    completions: int | None = 1
    """None: whatever ends first ends it (a work queue)."""
    parallelism: int = 1
    succeeded: int = 0
    idle: bool = False
    """Suspended, over or being deleted: it wants no pods."""
    annotations: Mapping[str, str] = {}
    """Ours: its own go before those of its template."""
    template: Template | None = None


class Part(Struct, frozen=True):
    """Equal pods of something larger."""

    name: str
    count: int
    template: Template
    least: int | None = None
    """How many of them would do."""


class JobSet(Struct, frozen=True):
    """A JobSet, with what it still has to run."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    parts: tuple[Part, ...] = ()
    idle: bool = False
    annotations: Mapping[str, str] = {}


class PodGroup(Struct, frozen=True):
    """A PodGroup of whichever API."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    least: int | None = None
    """None: its pods need not run together."""
    annotations: Mapping[str, str] = {}


class Workload(Struct, frozen=True):
    """One of Kueue's."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    owners: tuple[Owner, ...] = ()
    """What it stands for: a Job, a JobSet, the pods of a group."""
    admitted: bool = False
    """Whether it may run now, and is not over."""
    parts: tuple[Part, ...] = ()
    """As many as were admitted, less those that are over."""
    annotations: Mapping[str, str] = {}
    local_queue: str = ""
    queue: str = ""
    """The ClusterQueue that reserved its quota."""
    priority: int = 0
    ordered: float = 0.0
    """By which Kueue orders those of one priority."""
    seconds: float | None = None
    """How long it may still run; None if it does not say so."""
    over: bool = False
    """Finished, inactive or being deleted: it neither waits nor holds anything."""
    reserved: float | None = None
    """Since when it has quota."""
    started: float | None = None
    """Since when it is admitted."""
    usage: tuple[tuple[str, str, int], ...] = ()
    """What quota it has: (flavor, resource, amount)."""


class Quota(Struct, frozen=True):
    """A ClusterQueue or a Cohort."""

    name: str
    parent: str = ""
    """Its cohort."""
    flavors: Mapping[str, Mapping[str, int]] = {}
    """Flavor → its own of it, in the order in which flavors are tried."""


Condition = Literal["", "Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"]


class ProvisioningRequest(Struct, frozen=True):
    """A wish for machines, before there are pods."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    sets: tuple[tuple[str, int], ...] = ()
    """(PodTemplate, count)."""
    kind: str = ""
    """Its provisioning class."""
    parameters: Mapping[str, str] = {}
    deleting: bool = False
    condition: Condition = ""
    since: float = 0.0
    annotations: Mapping[str, str] = {}


class Claim(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    volume: str = ""
    """Of a bound one."""
    storage: str | None = None
    """Its class."""


class Volume(Struct, frozen=True):
    """A PersistentVolume."""

    terms: tuple[NodeTerm, ...] = ()
    """Where it can be used; empty for everywhere."""
    storage: str = ""
    free: bool = False
    driver: str = ""
    """The CSI driver; empty for volumes of other kinds."""
    handle: str = ""
    """The driver's name for it."""


class Storage(Struct, frozen=True):
    """A StorageClass."""

    waits: bool = False
    """Whether a volume is made where its first pod goes."""
    static: bool = False
    """Whether its volumes are made by hand."""
    terms: tuple[NodeTerm, ...] = ()
    default: bool = False
    provisioner: str = ""


class Priority(Struct, frozen=True):
    """A PriorityClass."""

    value: int
    default: bool = False
