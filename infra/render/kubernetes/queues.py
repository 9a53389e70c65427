"""Queues: GPUs shared between groups by Kueue (kueue.sigs.k8s.io), with whole jobs as units.

Flavors
    are physical machines with one GPU model, and each pool. A job is assigned the first flavor with free
    quota: physical machines first, as they cost nothing more, then pools by priority, by their first region,
    and by GPU price. The autoscaler, which knows about capacity, selects the region; if no region has any, it
    taints the flavor, and Kueue tries the next one. With topology levels (site, zone or rack, machine) a job
    may ask to be placed together: annotation
    ``kueue.x-k8s.io/podset-required-topology: causeway.dev/site``.
ClusterQueues
    are one per group, all in one cohort. A group's guaranteed GPUs (``gpu_quota``) are its queue's nominal
    quota, in the first flavors first; they are reclaimed from others. The rest is the cohort's, with fair
    sharing by weight: the queue with the lowest weighted share is next, and those with more are preempted. In
    a group, higher priority classes go first, and preempt lower ones. ``user_limits.py`` limits single users.
LocalQueues
    named ``default`` are in each namespace, for work that does not name one (Kueue, LocalQueueDefaulting).

Cloud machines are requested before a job with GPUs starts, all of them together: the admission check
``autoscaler`` waits for the controller that handles provisioning requests of class ``batch.causeway.dev``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.catalogue.labels import CAPACITY, GPU_CLASS, GPU_MODEL, OURS, POOL, SITE, WITHOUT_GPUS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.kubernetes import Taint
from infra.model.machines import NodeGroup, NodePool
from infra.model.places import PhysicalNode
from infra.render.kubernetes import queue_policies, user_limits
from infra.render.kubernetes.manifests import Documents, Object, of, static
from infra.render.kubernetes.nodes import is_scaled
from infra.render.kubernetes.scheduling import GPU_TAINT
from infra.render.kubernetes.tenants import SHARED, TEAM, team_of

_API: Final = "kueue.x-k8s.io/v1beta2"
COHORT: Final = "causeway"
TOPOLOGY: Final = "places"
CHECK: Final = "autoscaler"
PROVISIONING_CLASS: Final = f"batch.{OURS}"
"""The class of provisioning requests that our autoscaler handles. Must be a DNS name."""

_GPUS: Final = "nvidia.com/gpu"
_RESOURCES: Final = ("cpu", "memory", _GPUS)
_LEVELS: Final = (SITE, "topology.kubernetes.io/zone", "kubernetes.io/hostname")
"""From the widest to the narrowest. A rack is the zone of machines at physical sites."""

MOST_FLAVORS: Final = 64
"""Maximum flavors of a resource group (Kueue, ``ClusterQueue``)."""
_MOST_LABELS: Final = 8
"""Maximum labels of a flavor (Kueue, ``ResourceFlavor``)."""
_LABELS: Final = (
    POOL,
    GPU_MODEL,
    GPU_CLASS,
    WITHOUT_GPUS,
)
"""Labels that distinguish flavors, and that priority classes select by. Labels in the spec come next.

Not the site: if any flavor has a label, Kueue assigns work that selects by it only flavors that have it, and
a pool may be in several sites.
"""
_NOT_OURS: Final = ("kubernetes.io", "k8s.io", OURS)


@dataclass(frozen=True, slots=True)
class Amount:
    """Amounts of CPU in millicores, memory in MiB, and GPUs."""

    millicores: int = 0
    mib: int = 0
    gpus: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.millicores + other.millicores, self.mib + other.mib, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.millicores - other.millicores, self.mib - other.mib, self.gpus - other.gpus)

    def times(self, count: int) -> Amount:
        """The amount multiplied by ``count``."""
        return Amount(self.millicores * count, self.mib * count, self.gpus * count)

    def part(self, gpus: int) -> Amount:
        """A share with ``gpus`` of its GPUs, and CPU and memory in proportion."""
        of = self.gpus or 1
        return Amount(self.millicores * gpus // of, self.mib * gpus // of, gpus)

    def quantities(self) -> dict[str, str]:
        """In Kubernetes quantities."""
        return {"cpu": f"{self.millicores}m", "memory": f"{self.mib}Mi", _GPUS: str(self.gpus)}


@dataclass(frozen=True, slots=True)
class Flavor:
    """Machines that are equivalent for a job."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    amount: Amount
    """The total of all of them; for pools, at their maximum size."""
    cloud: bool


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Flavors, priority classes, ClusterQueues and LocalQueues."""
    found = flavors(cluster)
    if not found or not any(addon.name == "kueue" for addon in cluster.kubernetes.addons):
        return {}
    # An autoscaler in dry-run mode does not answer requests, and jobs would wait forever.
    asked = is_scaled(cluster) and not cluster.autoscaler.dry_run
    return {
        "policies.yaml": queue_policies.policies(cluster),
        "flavors.yaml": [_topology(), *map(_flavor, found), *user_limits.flavors(cluster)],
        "classes.yaml": list(_classes(cluster)),
        "checks.yaml": static("after/queues/checks") if asked else [],
        "queues.yaml": list(_queues(cluster, found, asked=asked)),
        "ways-in.yaml": list(_ways_in(cluster)),
    }


# -- What there is ------------------------------------------------------------------------------------------


def flavors(cluster: Cluster) -> tuple[Flavor, ...]:
    """In the order in which jobs try them."""
    ours = _ours([node for site in cluster.sites for node in site.nodes])
    order = {region.name: region.order for region in cluster.regions}
    groups = sorted(
        ((pool, group) for pool in cluster.pools for group in pool.groups if group.max),
        key=lambda entry: (-entry[0].priority, order[entry[1].site], *_price(entry[1]), entry[0].name),
    )
    pools = {pool.name: pool for pool, _ in groups}
    return (*ours, *map(_of_pool, pools.values()))[:MOST_FLAVORS]


def _ours(nodes: Sequence[PhysicalNode]) -> list[Flavor]:
    """Machines at physical sites by GPU model, those without GPUs first, as work without GPUs tries them
    first."""
    kinds: dict[tuple[str, tuple[Taint, ...]], list[PhysicalNode]] = {}
    for node in nodes:
        if node.runs_pods:
            model = node.gpus.model if node.gpus is not None else ""
            kinds.setdefault((model, node.taints), []).append(node)
    found, seen = [], dict[str, int]()
    for (model, taints), those in sorted(kinds.items(), key=lambda entry: (entry[0][0], len(entry[0][1]))):
        name = f"physical.{model or 'cpu'}"
        seen[name] = seen.get(name, 0) + 1
        labels = dict(set(those[0].labels.items()).intersection(*(node.labels.items() for node in those)))
        amount = sum((_amount(node.allocatable) for node in those), Amount())
        unique = name if seen[name] == 1 else f"{name}-{seen[name]}"
        # Whether a cloud instance is a Spot Instance is known only after it has started; here it does not
        # matter.
        chosen = {CAPACITY: labels[CAPACITY], **_chosen(labels, _MOST_LABELS - 1)}
        found.append(Flavor(unique, chosen, taints, amount, cloud=False))
    return found


def _of_pool(pool: NodePool) -> Flavor:
    groups = [group for group in pool.groups if group.max]
    labels = dict(set(groups[0].labels.items()).intersection(*(group.labels.items() for group in groups)))
    # A group's limits are in units of capacity, of which an instance may have several (EC2 Auto Scaling,
    # weights).
    lightest = min(each.weight for each in pool.instance_types)
    amount = sum((_amount(group.allocatable).times(-(-group.max // lightest)) for group in groups), Amount())
    return Flavor(pool.name, _chosen(labels), pool.taints, amount, cloud=True)


def _chosen(labels: Mapping[str, str], most: int = _MOST_LABELS) -> dict[str, str]:
    """As many labels as a flavor may have, distinguishing ones first."""
    others = [key for key in sorted(labels) if not key.partition("/")[0].endswith(_NOT_OURS)]
    wanted = [key for key in (*_LABELS, *others) if key in labels]
    return {key: labels[key] for key in wanted[:most]}


def _amount(allocatable: Mapping[str, str]) -> Amount:
    return Amount(
        int(allocatable["cpu"].removesuffix("m")),
        int(allocatable["memory"].removesuffix("Mi")),
        int(allocatable.get(_GPUS, "0")),
    )


def _price(group: NodeGroup) -> tuple[float, str]:
    """The price of a GPU, or of a CPU without GPUs; unknown prices last."""
    has = _amount(group.allocatable)
    units = has.gpus or has.millicores / 1000
    return (group.hourly_price / units if group.hourly_price and units else float("inf"), group.name)


def _topology() -> Object:
    return of(_API, "Topology", TOPOLOGY, spec={"levels": [{"nodeLabel": level} for level in _LEVELS]})


def _flavor(flavor: Flavor) -> Object:
    taints = [
        {"key": taint.key, **({"value": taint.value} if taint.value else {}), "effect": taint.effect}
        for taint in flavor.taints
    ]
    return of(
        _API,
        "ResourceFlavor",
        flavor.name,
        spec={
            "nodeLabels": dict(flavor.labels),
            **({"nodeTaints": taints} if taints else {}),
            **(
                {"tolerations": [{"key": GPU_TAINT, "operator": "Exists"}]}
                if any(taint.key == GPU_TAINT for taint in flavor.taints)
                else {}
            ),
            # With every GPU flavor, even if no controller answers requests: Kueue never removes it again.
            **({"topologyName": TOPOLOGY} if flavor.amount.gpus else {}),
        },
    )


# -- Who gets it --------------------------------------------------------------------------------------------


def _classes(cluster: Cluster) -> Iterator[Object]:
    """WorkloadPriorityClasses, for queueing by another priority than the pods' and for each priority
    class."""
    for each in cluster.kubernetes.priority_classes:
        yield of(_API, "WorkloadPriorityClass", each.name, value=each.value)


def shares(cluster: Cluster, found: Sequence[Flavor]) -> dict[str, dict[str, int]]:
    """Group's namespace → flavor → guaranteed GPUs: of the first flavors first. If several groups want more
    than a flavor has, it is divided in proportion."""
    left = {group.namespace: group.gpu_quota for group in cluster.access.groups}
    sure: dict[str, dict[str, int]] = {name: {} for name in left}
    for flavor in found:
        for name, gpus in _divided(flavor.amount.gpus, left).items():
            sure[name][flavor.name] = gpus
            left[name] -= gpus
    return sure


def _divided(gpus: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Division by the largest remainder method; never more than wanted."""
    total = sum(wanted.values())
    if total <= gpus:
        return dict(wanted)
    given = {name: gpus * want // total for name, want in wanted.items()}
    by_rest = sorted(wanted, key=lambda name: (-(gpus * wanted[name] % total), name))
    for name in by_rest[: gpus - sum(given.values())]:
        given[name] += 1
    return given


def _queues(cluster: Cluster, found: Sequence[Flavor], *, asked: bool) -> Iterator[Object]:
    sure = shares(cluster, found)
    owned = {
        group.namespace: {
            flavor.name: flavor.amount.part(sure[group.namespace][flavor.name]) for flavor in found
        }
        for group in cluster.access.groups
    }
    rest = {
        flavor.name: flavor.amount - sum((each[flavor.name] for each in owned.values()), Amount())
        for flavor in found
    }
    yield of(_API, "Cohort", COHORT, spec={"resourceGroups": [_resources(found, rest)]})
    scope = _scope(cluster)
    for group in cluster.access.groups:
        resources = [_resources(found, owned[group.namespace]), *user_limits.resource_groups(cluster, group)]
        yield _queue(group.namespace, group.weight, resources, found, asked, scope)
    if any(team_of(cluster, user) == SHARED for user in cluster.access.users):
        nothing = {flavor.name: Amount() for flavor in found}
        yield _queue(SHARED, 1, [_resources(found, nothing)], found, asked, scope)


def _scope(cluster: Cluster) -> dict[str, Any]:
    """Admission scope: whether recent usage decides the order in a queue."""
    if cluster.kubernetes.usage_half_life is None:
        return {}
    return {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}


def _resources(found: Sequence[Flavor], amounts: Mapping[str, Amount]) -> dict[str, Any]:
    return {
        "coveredResources": list(_RESOURCES),
        "flavors": [
            {
                "name": flavor.name,
                "resources": [
                    {"name": name, "nominalQuota": quantity}
                    for name, quantity in amounts[flavor.name].quantities().items()
                ],
            }
            for flavor in found
        ],
    }


def _queue(
    name: str,
    weight: int,
    resources: list[dict[str, Any]],
    found: Sequence[Flavor],
    asked: bool,
    scope: dict[str, Any],
) -> Object:
    checked = [flavor.name for flavor in found if flavor.cloud and flavor.amount.gpus] if asked else []
    return of(
        _API,
        "ClusterQueue",
        name,
        spec={
            "cohortName": COHORT,
            "namespaceSelector": {"matchLabels": {TEAM: name}},
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": resources,
            "fairSharing": {"weight": str(weight)},
            **scope,
            # Try the next flavor before preempting others; borrow in a flavor before trying the next.
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            **(
                {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK, "onFlavors": checked}]}}
                if checked
                else {}
            ),
        },
    )


def _ways_in(cluster: Cluster) -> Iterator[Object]:
    for group in cluster.access.groups:
        yield _way_in(group.namespace, group.namespace)
    for user in cluster.access.users:
        yield _way_in(user.namespace, team_of(cluster, user))


def _way_in(namespace: str, queue: str) -> Object:
    return of(_API, "LocalQueue", "default", namespace=namespace, spec={"clusterQueue": queue})
