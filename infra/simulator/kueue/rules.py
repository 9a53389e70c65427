"""Kueue's configuration: read from the rendered objects, or defined for a lab without a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from infra.autoscaler.config import Group
from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed.quantity import offered
from infra.autoscaler.observed.snapshot import GPU, Flavor, Toleration
from infra.catalogue.labels import GPU_LIMIT, POOL
from infra.errors import UsageError

_KNOWN: Final[Mapping[str, Any]] = {
    "queueingStrategy": "BestEffortFIFO",
    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
}
"""Policies in a ClusterQueue's spec that are modelled. Others are refused."""
_SHARED: Final = "shared"
_COVERED: Final = ("cpu", "memory", GPU)
_STRATEGIES: Final = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


class Choice(Struct, frozen=True):
    """A flavor, which all queues have."""

    flavor: Flavor
    topology: bool
    """Whether it only accepts pods with a topology request: by a policy, all with GPUs have one."""
    checked: bool
    """Whether it is assigned only after a ProvisioningRequest is answered."""
    gpus: int | None = None
    """GPUs of one machine, if policies exclude pods that need more; else None."""
    sites: frozenset[str] | None = None
    """Sites of its pool, for pods that select a site; None for physical machines."""


class Queue(Struct, frozen=True):
    """A ClusterQueue."""

    name: str
    weight: float = 1.0
    nominal: Mapping[str, Resources] = {}
    """Flavor → its own quota."""


class Rules(Struct, frozen=True):
    """The whole configuration. Times in seconds."""

    choices: tuple[Choice, ...]
    """In the order in which they are tried."""
    queues: Mapping[str, Queue]
    shared: Mapping[str, Resources] = {}
    """The cohort's own quota by flavor."""
    ways_in: Mapping[str, str] = {}
    """Namespace → ClusterQueue (of its LocalQueue)."""
    default: str = ""
    """The ClusterQueue of all other namespaces."""
    classes: Mapping[int | None, frozenset[str]] = {}
    """Pods' priority → classes of GPUs that the policies allow; None for all other priorities."""
    limits: Mapping[tuple[str, str], str] = {}
    """ClusterQueue and namespace → the flavor that represents the GPUs which that user may hold."""
    retry: float = 10.0
    """From a failed request to the next attempt; doubled each time …"""
    retry_most: float = 600.0
    """… up to this maximum."""
    ready: float | None = 1500.0
    """The time after admission in which all pods must run; None: unlimited."""
    unready: float = 60.0
    """From an eviction for this reason to the next attempt; doubled each time …"""
    unready_most: float = 3600.0
    """… up to this maximum."""
    half_life: float | None = None
    """The half-life of usage that orders workloads in a queue; None if it does not count."""
    sampling: float = 300.0
    weights: Mapping[str, float] = {}
    """Weights of resources in that usage: of GPUs, cores, bytes."""

    @property
    def covered(self) -> frozenset[str]:
        """Resources with quota."""
        return frozenset(name for each in self.total.values() for name in each)

    @property
    def total(self) -> dict[str, dict[str, int]]:
        """Flavor → the total quota."""
        found: dict[str, dict[str, int]] = {}
        for quota in (self.shared, *(each.nominal for each in self.queues.values())):
            for flavor, amounts in quota.items():
                sums = found.setdefault(flavor, {})
                for name, amount in amounts.items():
                    sums[name] = sums.get(name, 0) + amount
        return found

    def queue_of(self, namespace: str) -> str:
        """The ClusterQueue of a namespace's work."""
        return self.ways_in.get(namespace, self.default)


def read(
    objects: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Any],
    pools: Mapping[str, tuple[int, Iterable[str]]],
    classes: Mapping[int | None, Iterable[str]],
) -> Rules:
    """The rules in rendered objects and Kueue's own configuration.

    ``pools``: pool → GPUs of one machine, and its sites; ``classes``: pods' priority → classes of GPUs (None
    for other priorities): the conditions of the admission policies. Users who are not in the environment are
    in no group, and use the queue of such users. Raises UsageError for policies that are not modelled.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for each in objects:
        kinds.setdefault(each["kind"], []).append(each)
    queues = kinds.get("ClusterQueue", [])
    _known(queues, settings)
    checked = {
        flavor
        for queue in queues
        for check in queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", ())
        for flavor in check["onFlavors"]
    }
    flavors = {each["metadata"]["name"]: each for each in kinds.get("ResourceFlavor", ())}
    holders = {
        name: taint["value"]
        for name, each in flavors.items()
        for taint in each["spec"].get("nodeTaints", ())
        if taint["key"] == GPU_LIMIT
    }
    order = dict.fromkeys(name for queue in queues for name in _quotas(queue) if name not in holders)
    waits = settings.get("waitForPodsReady", {})
    again = waits.get("requeuingStrategy", {})
    fair = settings.get("admissionFairSharing", {})
    retry = next(
        (each["spec"]["retryStrategy"] for each in kinds.get("ProvisioningRequestConfig", ())),
        {"backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
    )
    return Rules(
        choices=tuple(_choice(flavors[name], name in checked, pools) for name in order),
        queues={_SHARED: Queue(_SHARED), **{each["metadata"]["name"]: _queue(each) for each in queues}},
        shared={name: amounts for each in kinds.get("Cohort", ()) for name, amounts in _quotas(each).items()},
        ways_in={
            each["metadata"]["namespace"]: each["spec"]["clusterQueue"]
            for each in kinds.get("LocalQueue", ())
        },
        default=_SHARED,
        classes={priority: frozenset(some) for priority, some in classes.items()},
        limits={
            (queue["metadata"]["name"], holders[name]): name
            for queue in queues
            for name in _quotas(queue)
            if name in holders
        },
        retry=retry["backoffBaseSeconds"],
        retry_most=retry["backoffMaxSeconds"],
        ready=_seconds(waits["timeout"]) if waits else None,
        unready=again.get("backoffBaseSeconds", 60),
        unready_most=again.get("backoffMaxSeconds", 3600),
        half_life=_seconds(fair["usageHalfLifeTime"]) if fair else None,
        weights=fair.get("resourceWeights", {}),
    )


def _known(queues: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    for queue in queues:
        for field, value in _KNOWN.items():
            found = queue["spec"].get(field)
            if found != value:
                raise UsageError(
                    f"ClusterQueue {queue['metadata']['name']}: {field} is {found}; "
                    f"the simulator has a model of {value} only"
                )
    found = settings.get("fairSharing", {}).get("preemptionStrategies")
    if found != _STRATEGIES:
        raise UsageError(
            f"Kueue's fairSharing.preemptionStrategies is {found}; the simulator has a model of "
            f"{_STRATEGIES} only"
        )


def _choice(
    found: Mapping[str, Any], checked: bool, pools: Mapping[str, tuple[int, Iterable[str]]]
) -> Choice:
    spec = found["spec"]
    labels = spec.get("nodeLabels", {})
    pool = labels.get(POOL, "")
    gpus, sites = pools.get(pool, (None, None))
    return Choice(
        flavor=Flavor(
            name=found["metadata"]["name"],
            pool=pool,
            labels=labels,
            taints=tuple(
                Taint(each["key"], each.get("value", ""), each["effect"])
                for each in spec.get("nodeTaints", ())
            ),
            tolerations=tuple(
                Toleration(
                    each.get("key", ""),
                    each.get("operator", "Equal"),
                    each.get("value", ""),
                    each.get("effect", ""),
                )
                for each in spec.get("tolerations", ())
            ),
        ),
        topology="topologyName" in spec,
        checked=checked,
        gpus=gpus or None,
        sites=None if sites is None else frozenset(sites),
    )


def _queue(found: Mapping[str, Any]) -> Queue:
    weight = found["spec"].get("fairSharing", {}).get("weight", "1")
    return Queue(found["metadata"]["name"], float(weight), _quotas(found))


def _quotas(found: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return dict(_flavors(found["spec"].get("resourceGroups", ())))


def _flavors(groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, int]]]:
    for group in groups:
        for flavor in group["flavors"]:
            yield (
                flavor["name"],
                {each["name"]: offered(each["name"], each["nominalQuota"]) for each in flavor["resources"]},
            )


def _seconds(text: str) -> float:
    """``1500s`` in seconds."""
    return float(text.removesuffix("s"))


def of_groups(groups: Sequence[Group], own: Sequence[tuple[Choice, Resources]] = ()) -> Rules:
    """One queue with everything, as for a lab with one group: ``own`` flavors with the total of their
    machines, then each pool, by priority and region."""
    rows = list(own)
    order = sorted(groups, key=lambda each: (-each.priority, each.order))
    for pool in dict.fromkeys(each.pool for each in order):
        those = [each for each in order if each.pool == pool]
        first, count = those[0], sum(each.max for each in those)
        gpus = first.allocatable.get(GPU, 0)
        flavor = Flavor(
            pool,
            pool,
            labels={POOL: pool},
            taints=first.taints,
            tolerations=(Toleration(GPU, "Exists"),) if gpus else (),
        )
        sites = frozenset(each.site for each in those)
        choice = Choice(flavor, topology=gpus > 0, checked=gpus > 0, gpus=gpus or None, sites=sites)
        rows.append((choice, {name: amount * count for name, amount in first.allocatable.items()}))
    shared = {choice.flavor.name: {name: has.get(name, 0) for name in _COVERED} for choice, has in rows}
    nothing = {name: dict.fromkeys(_COVERED, 0) for name in shared}
    return Rules(
        choices=tuple(choice for choice, _ in rows),
        queues={_SHARED: Queue(_SHARED, 1.0, nothing)},
        shared=shared,
        default=_SHARED,
    )
