"""Whether a pod may run on a machine, judged by the machine alone: labels, fields and taints.

Everything that depends on other pods (room, ports, spread, numbers of volumes) is decided in placement. The
rules are those of the scheduler's own helpers (component-helpers ``scheduling/corev1``).
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
"""Labels of old → what they are called now."""
_FORMER: Final = {current: former for former, current in CURRENT.items()}

_PRESUMED: Final = {OS: "linux", ARCH: "amd64", HOSTNAME: ""}
"""What kubelet says of each node, where a template does not: it has a host name, whichever that is."""

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

    ``name`` is the node's, empty for one that is still to come. ``zones`` and ``types`` are those of which a
    machine still to come may be; they count where the labels do not tell, and to fit one of them is to fit.
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
    """In which of these zones a machine with these labels is where the pod wants to be."""
    return tuple(zone for zone in zones if _unselected(shape, {**labels, ZONE: zone}, "") is None)


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether all taints that keep pods off are tolerated."""
    return _untolerated(tolerations, taints) is None


def holds_term(term: NodeTerm, labels: Mapping[str, str], name: str = "") -> bool:
    """Whether a node selector term holds for a node. An empty one never does."""
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
    """Whether one of the terms holds; where there are none, anywhere will do (as volumes have it)."""
    terms = tuple(terms)
    return not terms or any(holds_term(each, labels, name) for each in terms)


def label(labels: Mapping[str, str], key: str) -> str | None:
    """A node's label, by its current name or by the one of old; None where it has neither."""
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
    """What the DaemonSets that come with such a machine take of it, ``pods`` among it.

    One that asks for something that such a machine does not have at all never runs there, and takes nothing.
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
    """What there is too little of; None if there is enough of everything."""
    for what, amount in requests:
        if amount > (have := room.get(what, 0)):
            return Reason("size", what=what, requested=amount, limit=max(have, 0))
    return None


def _possible(
    shape: Shape, labels: Mapping[str, str], zones: tuple[str, ...], types: tuple[str, ...]
) -> Iterable[Mapping[str, str]]:
    """The labels that such a machine may have in the end, as far as the pod cares."""
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
