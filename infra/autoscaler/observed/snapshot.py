"""The input of one loop: the cluster's objects and the machines of groups, decoded and frozen.

Resources are integers: ``cpu`` in millicores, all else in its own unit (bytes, GPUs, pods). Requests of pods
are rounded up, offers of nodes rounded down. Times are seconds since the epoch.
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
"""Resources of which a machine has the same amount whatever its weight."""
ATTACHABLE = "attachable-volumes-csi-"
"""The prefix of a CSI driver's name: how many of its volumes a node can attach, or a pod needs."""
DEVICES = "resource.k8s.io/claims"
"""A pseudo-resource for devices that a pod requests by resource claims (DRA): no node offers it."""

SCHEDULER = "default-scheduler"
"""Kubernetes' own scheduler, whose rules are implemented here."""

DRAIN_TAINT = f"{OURS}/scale-in"
NO_CAPACITY = f"{OURS}/no-capacity"
"""The taint of a Kueue flavor whose pool has no capacity."""
"""Our own taint; its value is when it was put on, in seconds since the epoch. Nobody else's cordon is ever
touched."""

ENDS_AT = f"{OURS}/ends-at"
"""The annotation with the time at which a pod's machine is terminated in any case: RFC 3339, in UTC."""


class Toleration(Struct, frozen=True):
    """A toleration. An empty key with ``Exists`` tolerates all taints, an empty effect all effects."""

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
    """A node selector term: all of its expressions must hold; an empty term matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    """Requirements on ``metadata.name``."""


class Selector(Struct, frozen=True):
    """A label selector: all expressions must hold. An empty one selects everything; None selects nothing."""

    equals: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Requirement, ...] = ()


class PodTerm(Struct, frozen=True):
    """A term of pod affinity or anti-affinity."""

    topology: str
    """The node label that defines the topology."""
    selector: Selector | None
    namespaces: tuple[str, ...]
    """The namespaces of these pods; ``("*",)`` for all."""
    among: Selector | None = None
    """Also all namespaces with matching labels (``Snapshot.namespaces``); None for no others."""


class Spread(Struct, frozen=True):
    """A topology spread constraint that must hold (``DoNotSchedule``)."""

    topology: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    affinity: bool = True
    """``nodeAffinityPolicy``: whether nodes that the pod's selectors do not match are ignored."""
    taints: bool = False
    """``nodeTaintsPolicy``: whether nodes whose taints the pod does not tolerate are ignored."""


class Shape(Struct, frozen=True, weakref=True):
    """Everything that determines where a pod fits, shared by equal pods.

    Equal shapes are the same object: within a snapshot they may be compared by identity.
    """

    namespace: str
    requests: tuple[tuple[str, int], ...]
    """Sorted by name; including ``("pods", 1)``, without zeros."""
    priority: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeTerm, ...] | None = None
    """Required node affinity: one of the terms must match. None if there is none."""
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
    """The names of its PersistentVolumeClaims."""
    ephemeral: tuple[str | None, ...] = ()
    """StorageClasses of its generic ephemeral volumes, which each pod has for itself. None for the default
    class."""


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
    """Only those that we read."""
    owner: Owner | None = None
    node: str = ""
    """The node it is bound to; empty if it is not bound."""
    nominated: str = ""
    """The node on which preemption makes room for it."""
    phase: str = "Pending"
    created: float = 0.0
    started: float | None = None
    gated: bool = False
    deleting: bool = False
    mirror: bool = False
    """Whether it is the mirror pod of a static pod."""
    scheduler: str = SCHEDULER
    """The scheduler that places it."""
    refused: str = ""
    """The scheduler's message why it cannot place it; empty if there is none."""
    local_storage: bool = False
    """Whether it has an emptyDir or hostPath whose data would be lost."""
    gang: str | None = None
    """The key of its gang."""
    version: str = ""
    """Its resource version."""
    grace: int = 30
    """terminationGracePeriodSeconds."""
    ends: float | None = None
    """For one that is ``deleting``: the time by which it is terminated."""

    @property
    def daemon(self) -> bool:
        """Whether it belongs to the node (DaemonSet, static pod), and does not make it busy."""
        return self.mirror or (self.owner is not None and self.owner.kind == "DaemonSet")

    @property
    def over(self) -> bool:
        """Whether it has finished and holds no resources."""
        return self.phase in ("Succeeded", "Failed")


class Node(Struct, frozen=True):
    """A node of the cluster."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Only those that we read."""
    taints: tuple[Taint, ...] = ()
    allocatable: Resources = {}
    created: float = 0.0
    ready: bool = False
    since: float = 0.0
    """When `ready` last changed."""
    unschedulable: bool = False
    sick: bool = False
    """Whether its GPUs are sick: by taint, condition or annotation."""
    provider: str = ""
    """``aws:///us-west-2a/i-0123``; empty for physical machines."""
    version: str = ""

    @property
    def instance(self) -> str:
        """The id of its EC2 instance; empty for a physical machine."""
        return self.provider.rpartition("/")[2] if self.provider.startswith("aws:") else ""


class GangSet(Struct, frozen=True):
    """Equal pods of a gang, whether or not they exist yet."""

    shape: Shape
    count: int
    labels: Mapping[str, str] = {}


class Gang(Struct, frozen=True):
    """Pods that must run together."""

    key: str
    """``ProvisioningRequest/user-ada/train``, ``PodGroup/…``, ``JobSet/…``, ``Job/…``, ``Workload/…``."""
    kind: str
    namespace: str
    name: str
    uid: str = ""
    created: float = 0.0
    priority: int = 0
    sets: tuple[GangSet, ...] = ()
    """All of its pods, if its object declares them; empty if only its pods are known."""
    least: int = 0
    """The minimum number of its pods that need a place; 0 means all."""
    across: bool = False
    """Whether it may run at several sites (annotation ``causeway.dev/gang-across: sites``)."""
    condition: Literal["", "Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"] = ""
    """The newest true condition of its provisioning request."""
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
    """The number of its pods that may be evicted now."""


class DaemonSet(Struct, frozen=True):
    """A DaemonSet and its requests on each node that it runs on."""

    namespace: str
    name: str
    shape: Shape


class Instance(Struct, frozen=True):
    """An instance of an Auto Scaling group."""

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
    """When AWS terminates it (a Spot interruption notice); None if it does not."""
    state: str = "running"
    """EC2's state: ``pending``, ``running``, ``shutting-down``, ``terminated``, ``stopping``, ``stopped``."""
    host: str = ""
    """Its private DNS name without the domain: ``ip-10-0-0-5``."""

    @property
    def leaving(self) -> bool:
        """Whether the group is already terminating it."""
        return self.lifecycle.startswith(("Terminat", "Detach")) or self.state in (
            "shutting-down",
            "terminated",
        )

    @property
    def warm(self) -> bool:
        """Whether it is in a warm pool, and so does not count."""
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
    """From its details, if they name one."""
    end: float | None = None


class GroupState(Struct, frozen=True):
    """An Auto Scaling group as AWS describes it. Sizes are in capacity units, by the weights of its types."""

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
    """Its lifecycle hooks on termination."""
    deleting: bool = False


class Attachments(Struct, frozen=True):
    """Volumes of CSI drivers that limit the number of volumes per node. Empty without such drivers."""

    limits: Mapping[str, Mapping[str, int]] = {}
    """Node → driver → maximum number (``CSINode``). Drivers without a limit are left out."""
    claims: Mapping[str, tuple[str, str]] = {}
    """``namespace/claim`` → (driver, volume). Claims of the same volume have the same value."""
    classes: Mapping[str | None, str] = {}
    """Storage class → driver; None for the default class."""

    def shared(self, shape: Shape) -> frozenset[tuple[str, str]]:
        """The volumes that all pods of a shape share."""
        if not self.claims or not shape.claims:
            return frozenset()
        found = (self.claims.get(f"{shape.namespace}/{claim}") for claim in shape.claims)
        return frozenset(each for each in found if each is not None)

    def own(self, shape: Shape) -> list[str]:
        """The drivers of the volumes that each pod of a shape has for itself."""
        return [self.classes[each] for each in shape.ephemeral if each in self.classes]


class Flavor(Struct, frozen=True):
    """A Kueue ResourceFlavor."""

    name: str
    pool: str = ""
    """Empty for machines outside of any pool."""
    held: bool = False
    """Whether it has our taint."""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    """Without ours."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations that Kueue adds to workloads that it assigns the flavor."""


class Queued(Struct, frozen=True):
    """A Workload that waits for quota."""

    key: str
    """``namespace/name`` of the Workload."""
    namespace: str
    kind: str
    name: str
    """The object that it represents: ``JobSet``, ``resnet-3``."""
    queue: str
    """Its ClusterQueue; empty if its LocalQueue does not exist."""
    priority: int
    since: float
    """The time by which Kueue orders workloads of equal priority."""
    seconds: float | None
    """Its maximum run time; None if not declared."""
    sets: tuple[GangSet, ...]


class Holding(Struct, frozen=True):
    """A Workload that holds quota."""

    quota: str
    """A key of `Queues.quotas`."""
    amounts: tuple[tuple[str, str, int], ...]
    """(flavor, resource, amount)."""
    since: float
    """When it was admitted; if it is not yet, when its quota was reserved."""
    admitted: bool
    seconds: float | None
    """Its maximum run time from then on; None if not declared."""


class Queues(Struct, frozen=True):
    """Kueue's queues: waiting workloads, holders of quota, and the quota itself."""

    waiting: tuple[Queued, ...] = ()
    """In Kueue's order: by priority, then by time."""
    holding: tuple[Holding, ...] = ()
    quotas: Mapping[str, Mapping[str, Resources]] = {}
    """Shared quota (``cohort/name``, or ``queue/name`` of a ClusterQueue without one) → flavor → the
    total."""
    sources: Mapping[str, str] = {}
    """ClusterQueue → key of the quota that it shares."""
    offers: Mapping[str, tuple[str, ...]] = {}
    """ClusterQueue → its flavors, in the order in which they are tried."""


class Snapshot(Struct, frozen=True):
    """The complete input of one loop."""

    at: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Without finished ones."""
    gangs: Mapping[str, Gang] = {}
    budgets: tuple[Budget, ...] = ()
    daemons: tuple[DaemonSet, ...] = ()
    claims: Mapping[str, tuple[NodeTerm, ...] | None] = {}
    """``namespace/claim`` → where its volume is (one term must match; empty for anywhere); None for a claim
    that waits for its first consumer and may be provisioned anywhere. A missing key means that the claim
    does not exist."""
    attachments: Attachments = Attachments()
    groups: Mapping[str, GroupState] = {}
    """By name. Groups that could not be read are missing."""
    errors: Mapping[str, str] = {}
    """What could not be read: ``aws/us-west-2``, ``kube/workloads`` → the reason, for people."""
    faults: Mapping[str, str] = {}
    """Invalid objects that were left out: ``Pod/ns/name`` → the reason."""
    prices: Mapping[str, float] = {}
    """Current Spot prices: ``us-west-2a/p3.8xlarge`` → USD per hour."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces, for selectors."""
    flavors: Mapping[str, Flavor] = {}
    """By name; empty without Kueue."""
    queues: Queues | None = None
    """None without Kueue."""
