"""What one loop observes: the cluster's objects and the groups' machines, decoded and frozen.

Resources are whole numbers: ``cpu`` in millicores, all else in its own unit (bytes, GPUs, pods). What a pod
asks for is rounded up, what a node offers rounded down. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from infra.autoscaler.node_properties import Resources, Taint
from infra.catalogue import efa
from infra.catalogue.labels import OURS

GPU = "nvidia.com/gpu"
PODS = "pods"
OF_A_MACHINE = efa.OF_A_MACHINE | {PODS}
"""What a machine has as much of whatever its weight."""
ATTACHABLE = "attachable-volumes-csi-"
"""Before a CSI driver's name: how many of its volumes a node has room for, or a pod brings."""
DEVICES = "resource.k8s.io/claims"
"""A resource for devices that a pod requests by resource claims (DRA): no node offers it."""

SCHEDULER = "default-scheduler"
"""Kubernetes' own, whose rules we go by."""

DRAIN_TAINT = f"{OURS}/scale-in"
NO_CAPACITY = f"{OURS}/no-capacity"
"""The taint of a Kueue flavor whose machines can't be had."""
"""Our own taint; its value is when it was put on, in seconds since the epoch. Nobody else's cordon is ever
touched."""

ENDS_AT = f"{OURS}/ends-at"
"""The annotation that says when a pod's machine ends in any case: RFC 3339, in UTC."""


class Toleration(Struct, frozen=True):
    """A toleration. An empty key with ``Exists`` tolerates all taints, an empty effect each effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """One expression of a selector: ``In``, ``NotIn``, ``Exists``, ``DoesNotExist``, ``Gt``, ``Lt``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True):
    """A node selector term: all of its expressions hold; an empty term matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    """Over ``metadata.name``."""


class Selector(Struct, frozen=True):
    """A label selector: all of it holds. Empty selects everything; None in its place selects nothing."""

    equals: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Requirement, ...] = ()


class PodTerm(Struct, frozen=True):
    """Which pods to be with, or apart from, and in which kind of place."""

    topology: str
    """The node label whose value is the place."""
    selector: Selector | None
    namespaces: tuple[str, ...]
    """Where those pods are; ``("*",)`` for everywhere."""
    among: Selector | None = None
    """And in all namespaces with such labels (``Snapshot.namespaces``); None for no others."""


class Spread(Struct, frozen=True):
    """A topology spread constraint that must hold (``DoNotSchedule``)."""

    topology: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    affinity: bool = True
    """``nodeAffinityPolicy``: whether nodes are left out that the pod's selectors are not about."""
    taints: bool = False
    """``nodeTaintsPolicy``: whether nodes are left out whose taints the pod does not tolerate."""


class Shape(Struct, frozen=True, weakref=True):
    """Everything that decides where a pod fits, and nothing that tells equal pods apart.

    Equal shapes are one object: they may be compared by identity within a snapshot.
    """

    namespace: str
    requests: tuple[tuple[str, int], ...]
    """Sorted by name; with ``("pods", 1)``, without zeros."""
    priority: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeTerm, ...] | None = None
    """Required: one of the terms holds. None without."""
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    """(weight 1 to 100, term)."""
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    """Host ports: (protocol, address, port)."""
    spread: tuple[Spread, ...] = ()
    together: tuple[PodTerm, ...] = ()
    """Required pod affinity."""
    apart: tuple[PodTerm, ...] = ()
    """Required pod anti-affinity."""
    claims: tuple[str, ...] = ()
    """Its persistent volume claims, by name."""
    ephemeral: tuple[str | None, ...] = ()
    """Storage classes of its generic ephemeral volumes: each pod has its own. None for the default class."""


class Owner(Struct, frozen=True):
    """The controller of an object."""

    kind: str
    name: str
    uid: str


class Pod(Struct, frozen=True):
    """A pod."""

    uid: str
    namespace: str
    name: str
    shape: Shape
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Those that we read, and no others."""
    owner: Owner | None = None
    node: str = ""
    """Where it is bound; empty while it is not."""
    nominated: str = ""
    """Where preemption makes room for it."""
    phase: str = "Pending"
    created: float = 0.0
    started: float | None = None
    gated: bool = False
    deleting: bool = False
    mirror: bool = False
    """A static pod's image in the API."""
    scheduler: str = SCHEDULER
    """Who places it."""
    refused: str = ""
    """Why the scheduler has no node for it, in its own words; empty where it does not say so."""
    local_storage: bool = False
    """Whether it has an emptyDir or hostPath that would be lost."""
    gang: str | None = None
    """The key of its gang."""
    version: str = ""
    """Its resource version."""
    grace: int = 30
    """terminationGracePeriodSeconds."""
    ends: float | None = None
    """Of one that is ``deleting``: by when it is to be gone."""

    @property
    def daemon(self) -> bool:
        """Whether it comes with its node, and makes no node busy."""
        return self.mirror or (self.owner is not None and self.owner.kind == "DaemonSet")

    @property
    def over(self) -> bool:
        """Whether it holds nothing any more."""
        return self.phase in ("Succeeded", "Failed")


class Node(Struct, frozen=True):
    """A node of the cluster."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Those that we read."""
    taints: tuple[Taint, ...] = ()
    allocatable: Resources = {}
    created: float = 0.0
    ready: bool = False
    since: float = 0.0
    """When `ready` became what it is."""
    unschedulable: bool = False
    sick: bool = False
    """Whether its GPUs are: by taint, condition or annotation."""
    provider: str = ""
    """``aws:///us-west-2a/i-0123``; empty on physical machines."""
    version: str = ""

    @property
    def instance(self) -> str:
        """Its EC2 instance's id; empty for a physical machine."""
        return self.provider.rpartition("/")[2] if self.provider.startswith("aws:") else ""


class GangSet(Struct, frozen=True):
    """Equal pods that a gang is to have, whether they exist yet or not."""

    shape: Shape
    count: int
    labels: Mapping[str, str] = {}


class Gang(Struct, frozen=True):
    """Pods that are useful only together."""

    key: str
    """``ProvisioningRequest/user-ada/train``, ``PodGroup/…``, ``JobSet/…``, ``Job/…``, ``Workload/…``."""
    kind: str
    namespace: str
    name: str
    uid: str = ""
    created: float = 0.0
    priority: int = 0
    sets: tuple[GangSet, ...] = ()
    """What it needs in all, where its object says so; empty where only its pods do."""
    least: int = 0
    """How many of its pods must have a place; 0 means all."""
    across: bool = False
    """Whether it may run at several sites (annotation ``causeway.dev/gang-across: sites``)."""
    condition: Literal["", "Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"] = ""
    """The newest true condition of a provisioning request."""
    since: float = 0.0
    """When that condition became true."""
    parameters: Mapping[str, str] = {}
    version: str = ""


class Budget(Struct, frozen=True):
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: Selector | None
    allowed: int
    """How many of its pods may be evicted now."""


class DaemonSet(Struct, frozen=True):
    """A DaemonSet: what it costs each node that it fits."""

    namespace: str
    name: str
    shape: Shape


class Instance(Struct, frozen=True):
    """A machine of an Auto Scaling group."""

    id: str
    type: str
    zone: str
    lifecycle: str
    """``Pending``, ``Pending:Wait``, ``InService``, ``Terminating:Wait``, ``Warmed:Stopped`` …"""
    healthy: bool = True
    weight: int = 1
    protected: bool = False
    launched: float | None = None
    spot: bool = False
    interrupted: float | None = None
    """When AWS takes it away (a spot interruption notice); None if it does not."""
    state: str = "running"
    """EC2's: ``pending``, ``running``, ``shutting-down``, ``terminated``, ``stopping``, ``stopped``."""
    host: str = ""
    """Its name in its own network, without the domain: ``ip-10-0-0-5``."""

    @property
    def leaving(self) -> bool:
        """Whether the group has given it up already."""
        return self.lifecycle.startswith(("Terminat", "Detach")) or self.state in (
            "shutting-down",
            "terminated",
        )

    @property
    def warm(self) -> bool:
        """Whether it waits in a warm pool: it counts for nothing."""
        return self.lifecycle.startswith("Warmed")


class Activity(Struct, frozen=True):
    """A scaling activity (API_Activity)."""

    id: str
    group: str
    start: float
    status: str
    """``Successful``, ``Failed``, ``Cancelled``, ``InProgress`` …"""
    cause: str = ""
    description: str = ""
    message: str = ""
    """StatusMessage."""
    zone: str = ""
    """Out of its details, where it names one."""
    end: float | None = None


class GroupState(Struct, frozen=True):
    """An Auto Scaling group as AWS tells of it. Sizes are in capacity units, as its types weigh."""

    name: str
    region: str
    """The AWS region's code."""
    desired: int
    min: int
    max: int
    instances: tuple[Instance, ...] = ()
    activities: tuple[Activity, ...] = ()
    """Newest first."""
    suspended: tuple[str, ...] = ()
    """Suspended processes: ``AZRebalance``, ``Launch`` …"""
    protects: bool = False
    """NewInstancesProtectedFromScaleIn."""
    hooks: tuple[str, ...] = ()
    """Its hooks on termination."""
    deleting: bool = False


class Attachments(Struct, frozen=True):
    """Volumes of CSI drivers that limit how many of them a node attaches. Empty without such drivers."""

    limits: Mapping[str, Mapping[str, int]] = {}
    """Node → driver → how many (``CSINode``). A driver that states no limit is not here."""
    claims: Mapping[str, tuple[str, str]] = {}
    """``namespace/claim`` → (driver, volume). Claims of the same volume have the same."""
    classes: Mapping[str | None, str] = {}
    """Storage class → driver; None for the default class."""

    def shared(self, shape: Shape) -> frozenset[tuple[str, str]]:
        """The volumes that all pods of a shape use."""
        if not self.claims or not shape.claims:
            return frozenset()
        found = (self.claims.get(f"{shape.namespace}/{claim}") for claim in shape.claims)
        return frozenset(each for each in found if each is not None)

    def own(self, shape: Shape) -> list[str]:
        """The drivers of the volumes that each pod of a shape brings."""
        return [self.classes[each] for each in shape.ephemeral if each in self.classes]


class Flavor(Struct, frozen=True):
    """A ResourceFlavor of Kueue's."""

    name: str
    pool: str = ""
    """Empty for machines that are of no pool."""
    held: bool = False
    """Whether it has our taint."""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    """Without ours."""
    tolerations: tuple[Toleration, ...] = ()
    """What Kueue adds to work that it gives the flavor."""


class Queued(Struct, frozen=True):
    """A Workload that waits for quota."""

    key: str
    """``namespace/name`` of the Workload."""
    namespace: str
    kind: str
    name: str
    """What it stands for: ``JobSet``, ``resnet-3``."""
    queue: str
    """Its ClusterQueue; empty where its LocalQueue is not there."""
    priority: int
    since: float
    """By which Kueue orders what has the same priority."""
    seconds: float | None
    """How long it may run at most; None if it does not say so."""
    sets: tuple[GangSet, ...]


class Holding(Struct, frozen=True):
    """A Workload that holds quota."""

    quota: str
    """A key of `Queues.quotas`."""
    amounts: tuple[tuple[str, str, int], ...]
    """(flavor, resource, amount)."""
    since: float
    """When it was admitted; of one that is not yet, when its quota was reserved."""
    admitted: bool
    seconds: float | None
    """How long it may run from then on; None if it does not say so."""


class Queues(Struct, frozen=True):
    """Kueue's queues: who waits, who holds what, and of how much."""

    waiting: tuple[Queued, ...] = ()
    """In Kueue's order: by priority, then by time."""
    holding: tuple[Holding, ...] = ()
    quotas: Mapping[str, Mapping[str, Resources]] = {}
    """Quota that is shared (``cohort/name``, or ``queue/name`` of a ClusterQueue without one) → flavor →
    what there is in all."""
    sources: Mapping[str, str] = {}
    """ClusterQueue → key of the quota that it has a share of."""
    offers: Mapping[str, tuple[str, ...]] = {}
    """ClusterQueue → its flavors, in the order in which they are tried."""


class Snapshot(Struct, frozen=True):
    """All that one loop knows."""

    at: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Those that are over are left out."""
    gangs: Mapping[str, Gang] = {}
    budgets: tuple[Budget, ...] = ()
    daemons: tuple[DaemonSet, ...] = ()
    claims: Mapping[str, tuple[NodeTerm, ...] | None] = {}
    """``namespace/claim`` → where its volume is (one term holds; empty for anywhere); None for a claim that
    waits for its first pod and may be made anywhere. A claim that is not here does not exist."""
    attachments: Attachments = Attachments()
    groups: Mapping[str, GroupState] = {}
    """By name. A group that could not be read is not here."""
    errors: Mapping[str, str] = {}
    """What could not be read: ``aws/us-west-2``, ``kube/workloads`` → why, for people."""
    faults: Mapping[str, str] = {}
    """Objects that made no sense and were left out: ``Pod/ns/name`` → why."""
    prices: Mapping[str, float] = {}
    """Spot prices seen: ``us-west-2a/p3.8xlarge`` → USD an hour."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces, for selectors over them."""
    flavors: Mapping[str, Flavor] = {}
    """By name; none without Kueue."""
    queues: Queues | None = None
    """None without Kueue."""
