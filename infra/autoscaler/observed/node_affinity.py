"""Whether a pod may run on a machine, judged by the machine alone: labels, fields and taints.

Everything that depends on other pods (resources, ports, spread, numbers of volumes) is decided in
``placement``. The rules are those of the scheduler's helpers (component-helpers ``scheduling/corev1``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from infra.autoscaler.node_properties import Resources, Taint
from infra.autoscaler.observed.selectors import holds, integer, words
from infra.autoscaler.observed.snapshot import (
    DaemonSet,
    NodeTerm,
    Requirement,
    Shape,
    Toleration,
)
from infra.autoscaler.reasons import Reason

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
TYPE: Final = "node.kubernetes.io/instance-type"
HOSTNAME: Final = "kubernetes.io/hostname"
OS: Final = "kubernetes.io/os"
ARCH: Final = "kubernetes.io/arch"

CURRENT: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/instance-type": TYPE,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/arch": ARCH,
}
"""Deprecated labels → their current names."""
_FORMER: Final = {current: former for former, current in CURRENT.items()}

_PRESUMED: Final = {OS: "linux", ARCH: "amd64", HOSTNAME: ""}
"""Labels that the kubelet sets on each node, if a template lacks them: a node has a host name, whatever its
value."""

_EFFECTS: Final = ("NoSchedule", "NoExecute")


def obstacle(
    shape: Shape,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    *,
    name: str = "",
    zones: Iterable[str] = (),
    types: Iterable[str] = (),
) -> Reason | None:
    """Why such a pod cannot run on such a machine; None if it can.

    ``name`` is the node's, empty for a future machine. ``zones`` and ``types`` are the possible ones of a
    future machine; they are used if the labels lack them, and fitting one of them suffices.
    """
    if (against := _untolerated(shape.tolerations, taints)) is not None:
        return Reason("taint", what=_taint(against))
    if not shape.selector and shape.affinity is None:
        return None
    first: Reason | None = None
    for have in _possible(shape, labels, tuple(zones), tuple(types)):
        found = _unselected(shape, have, name)
        if found is None:
            return None
        first = first or found
    return first


def open_zones(shape: Shape, labels: Mapping[str, str], zones: Iterable[str]) -> tuple[str, ...]:
    """Which of these zones match the pod's selectors, for a machine with these labels."""
    return tuple(zone for zone in zones if _unselected(shape, {**labels, ZONE: zone}, "") is None)


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether all taints that keep pods off are tolerated."""
    return _untolerated(tolerations, taints) is None


def holds_term(term: NodeTerm, labels: Mapping[str, str], name: str = "") -> bool:
    """Whether a node selector term matches a node. An empty term never does."""
    if not term.labels and not term.fields:
        return False
    return all(_holds(each, labels) for each in term.labels) and all(
        each.key == "metadata.name"
        and each.operator in ("In", "NotIn")
        and len(each.values) == 1
        and holds(each, name)
        for each in term.fields
    )


def somewhere(terms: Iterable[NodeTerm], labels: Mapping[str, str], name: str = "") -> bool:
    """Whether one of the terms matches; True without terms, as for volumes."""
    terms = tuple(terms)
    return not terms or any(holds_term(each, labels, name) for each in terms)


def label(labels: Mapping[str, str], key: str) -> str | None:
    """A node's label, by its current or deprecated name; None if it has neither."""
    found = labels.get(key)
    if found is None:
        other = CURRENT.get(key) or _FORMER.get(key)
        if other is not None:
            found = labels.get(other)
        if found is None:
            found = _PRESUMED.get(CURRENT.get(key, key))
    return found


def overhead(
    daemons: Iterable[DaemonSet],
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    *,
    allocatable: Resources | None = None,
    zones: Iterable[str] = (),
    types: Iterable[str] = (),
) -> dict[str, int]:
    """The requests of the DaemonSets that run on such a machine, including ``pods``.

    One that requests a resource that the machine lacks never runs there, and takes nothing.
    """
    taints, zones, types = tuple(taints), tuple(zones), tuple(types)
    total: dict[str, int] = {}
    for daemon in daemons:
        if allocatable is not None and any(not allocatable.get(what) for what, _ in daemon.shape.requests):
            continue
        if obstacle(daemon.shape, labels, taints, zones=zones, types=types) is None:
            for what, amount in daemon.shape.requests:
                total[what] = total.get(what, 0) + amount
    return total


def shortage(requests: Iterable[tuple[str, int]], room: Resources) -> Reason | None:
    """Which resource is insufficient; None if all suffice."""
    for what, amount in requests:
        if amount > (have := room.get(what, 0)):
            return Reason("size", what=what, requested=amount, limit=max(have, 0))
    return None


def _possible(
    shape: Shape, labels: Mapping[str, str], zones: tuple[str, ...], types: tuple[str, ...]
) -> Iterable[Mapping[str, str]]:
    """The possible labels of such a machine, as far as the pod's selectors use them."""
    asked = {CURRENT.get(key, key) for key in _keys(shape)}
    open_zone = zones if ZONE in asked and label(labels, ZONE) is None else ()
    open_type = types if TYPE in asked and label(labels, TYPE) is None else ()
    if not open_zone and not open_type:
        return (labels,)
    return tuple(
        {**labels, **({ZONE: zone} if zone else {}), **({TYPE: kind} if kind else {})}
        for zone in open_zone or ("",)
        for kind in open_type or ("",)
    )


def _keys(shape: Shape) -> Iterable[str]:
    for key, _ in shape.selector:
        yield key
    for term in shape.affinity or ():
        for each in term.labels:
            yield each.key


def _unselected(shape: Shape, labels: Mapping[str, str], name: str) -> Reason | None:
    for key, value in shape.selector:
        if (found := label(labels, key)) != value:
            return Reason("label", what=f"{key}={value}", has=found)
    if shape.affinity is not None and not any(holds_term(term, labels, name) for term in shape.affinity):
        return Reason("affinity", what=" or ".join(map(_term, shape.affinity)) or "nothing")
    return None


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    return holds(requirement, label(labels, requirement.key))


def _untolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> Taint | None:
    for taint in taints:
        if taint.effect in _EFFECTS and not any(_tolerates(each, taint) for each in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            have, bound = integer(taint.value), integer(toleration.value)
            if have is None or bound is None:
                return False
            return have > bound if toleration.operator == "Gt" else have < bound
        case _:
            return False


def _taint(taint: Taint) -> str:
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"


def _term(term: NodeTerm) -> str:
    return " and ".join(map(words, (*term.labels, *term.fields))) or "nothing"
