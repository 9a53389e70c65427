"""Data from objects that are not part of a snapshot themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from infra.autoscaler.observed.snapshot import NodeTerm, Owner, Shape


class Template(Struct, frozen=True):
    """A pod template."""

    shape: Shape
    """Without a priority if only its class is named."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Our own annotations."""
    priority_class: str | None = None
    """To be looked up; None if the shape has its priority."""


class Job(Struct, frozen=True):
    """A Job. Its template is decoded only if it may be a gang."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    owner: Owner | None = None
    indexed: bool = False
    completions: int | None = 1
    """None for a work queue, whose first successful pod ends it."""
    parallelism: int = 1
    succeeded: int = 0
    idle: bool = False
    """Suspended, finished or being deleted: it creates no pods."""
    annotations: Mapping[str, str] = {}
    """Our own: those of the Job take precedence over those of its template."""
    template: Template | None = None


class Part(Struct, frozen=True):
    """Equal pods of a larger workload."""

    name: str
    count: int
    template: Template
    least: int | None = None
    """The minimum number of them."""


class JobSet(Struct, frozen=True):
    """A JobSet, with the parts that still have to run."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    parts: tuple[Part, ...] = ()
    idle: bool = False
    annotations: Mapping[str, str] = {}


class PodGroup(Struct, frozen=True):
    """A PodGroup of any API."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    least: int | None = None
    """None: its pods need not run together."""
    annotations: Mapping[str, str] = {}


class Workload(Struct, frozen=True):
    """A Kueue Workload."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    owners: tuple[Owner, ...] = ()
    """The objects that it represents: a Job, a JobSet, the pods of a group."""
    admitted: bool = False
    """Whether it is admitted and has not finished."""
    parts: tuple[Part, ...] = ()
    """The admitted counts, less finished pods."""
    annotations: Mapping[str, str] = {}
    local_queue: str = ""
    queue: str = ""
    """The ClusterQueue in which its quota is reserved."""
    priority: int = 0
    ordered: float = 0.0
    """The time by which Kueue orders workloads of equal priority."""
    seconds: float | None = None
    """The maximum remaining run time; None if not declared."""
    over: bool = False
    """Finished, inactive or being deleted: it neither waits nor holds quota."""
    reserved: float | None = None
    """When its quota was reserved."""
    started: float | None = None
    """When it was admitted."""
    usage: tuple[tuple[str, str, int], ...] = ()
    """Its quota: (flavor, resource, amount)."""


class Quota(Struct, frozen=True):
    """A ClusterQueue or a Cohort."""

    name: str
    parent: str = ""
    """Its cohort."""
    flavors: Mapping[str, Mapping[str, int]] = {}
    """Flavor → its own quota, in the order in which flavors are tried."""


Condition = Literal["", "Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"]


class ProvisioningRequest(Struct, frozen=True):
    """A request for machines, before there are pods."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    created: float = 0.0
    sets: tuple[tuple[str, int], ...] = ()
    """(name of a PodTemplate, count)."""
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
    """The volume it is bound to."""
    storage: str | None = None
    """Its StorageClass."""


class Volume(Struct, frozen=True):
    """A PersistentVolume."""

    terms: tuple[NodeTerm, ...] = ()
    """Node affinity; empty for all nodes."""
    storage: str = ""
    free: bool = False
    driver: str = ""
    """The CSI driver; empty for volumes of other kinds."""
    handle: str = ""
    """The volume's id in the driver."""


class Storage(Struct, frozen=True):
    """A StorageClass."""

    waits: bool = False
    """Whether binding waits for the first consumer."""
    static: bool = False
    """Whether its volumes are provisioned manually."""
    terms: tuple[NodeTerm, ...] = ()
    default: bool = False
    provisioner: str = ""


class Priority(Struct, frozen=True):
    """A PriorityClass."""

    value: int
    default: bool = False
