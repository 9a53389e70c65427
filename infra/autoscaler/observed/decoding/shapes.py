"""Shapes of pods and of templates. Equal ones are the same object.

Parts that many pods share stay raw bytes and are used as keys: of ten thousand equal pods, one is parsed and
the others are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

import msgspec
from msgspec import Raw

from infra.autoscaler.observed.decoding import wire
from infra.autoscaler.observed.decoding.resource_requests import Container, amounts, requested, total
from infra.autoscaler.observed.node_affinity import CURRENT
from infra.autoscaler.observed.snapshot import (
    DEVICES,
    NodeTerm,
    PodTerm,
    Requirement,
    Selector,
    Shape,
    Spread,
    Toleration,
)

_MOST: Final = 65_536
"""Number of keys after which those of unused shapes are removed."""
_EMPTY: Final = (b"", b"null", b"{}", b"[]")

_T = TypeVar("_T")
_resources = msgspec.json.Decoder(wire.Resources | None)
_amounts = msgspec.json.Decoder(wire.Amounts | None)
_ports = msgspec.json.Decoder(list[wire.Port] | None)
_labels = msgspec.json.Decoder(dict[str, str] | None)
_affinity = msgspec.json.Decoder(wire.Affinity | None)
_tolerations = msgspec.json.Decoder(list[wire.Toleration] | None)
_spreads = msgspec.json.Decoder(list[wire.SpreadConstraint] | None)

_DAEMONS: Final = tuple(
    Toleration(f"node.kubernetes.io/{what}", "Exists", "", effect)
    for what, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""Tolerations that the DaemonSet controller adds to its pods (``pkg/controller/daemon/util``)."""
_NETWORK: Final = Toleration("node.kubernetes.io/network-unavailable", "Exists", "", "NoSchedule")


class Shapes:
    """The shapes in use. Shapes without references are dropped."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], ReferenceType[Shape]] = {}
        self._known: WeakKeyDictionary[Shape, ReferenceType[Shape]] = WeakKeyDictionary()
        self._room = _MOST

    def one(self, shape: Shape) -> Shape:
        """The shared instance of an equal shape."""
        known = self._known.get(shape)
        found = known() if known is not None else None
        if found is None:
            self._known[shape] = ref(shape)
            return shape
        return found

    def of_pod(self, namespace: str, spec: wire.PodSpec, labels: Raw, status: wire.PodStatus | None) -> Shape:
        """The shape of a pod. Raises ValueError or msgspec's errors if it is invalid."""
        statuses: tuple[wire.ContainerStatus, ...] = ()
        if status is not None:
            statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        key = _key(namespace, spec, labels, statuses)
        known = self._by_key.get(key)
        found = known() if known is not None else None
        if found is None:
            found = self.one(_shape(namespace, spec, labels, statuses))
            self._keep(key, found)
        return found

    def of_template(
        self, namespace: str, template: wire.Template, *, daemon: bool = False, priority: int | None = None
    ) -> Shape:
        """The shape of a template's future pods, with what the API server adds to them."""
        labels = template.metadata.labels if template.metadata is not None else wire.NOTHING
        shape = _shape(namespace, template.spec, labels, ())
        added = [
            Toleration(name, "Exists", "", "NoSchedule") for name, _ in shape.requests if _extended(name)
        ]
        if daemon:
            added += [*_DAEMONS, *([_NETWORK] if template.spec.host_network else [])]
        return self.one(
            msgspec.structs.replace(
                shape,
                tolerations=_sorted({*shape.tolerations, *added}),
                priority=shape.priority if priority is None else priority,
            )
        )

    def _keep(self, key: tuple[object, ...], shape: Shape) -> None:
        if len(self._by_key) >= self._room:
            self._by_key = {each: known for each, known in self._by_key.items() if known() is not None}
            self._room = max(_MOST, 2 * len(self._by_key))
        self._by_key[key] = ref(shape)

    def __len__(self) -> int:
        return len(self._known)


def _key(
    namespace: str, spec: wire.PodSpec, labels: Raw, statuses: Sequence[wire.ContainerStatus]
) -> tuple[object, ...]:
    """All parts of a pod that determine its shape: equal keys give equal shapes."""
    spread, affinity = bytes(spec.topology_spread_constraints), bytes(spec.affinity)
    return (
        namespace,
        spec.priority,
        spec.host_network,
        bytes(spec.node_selector),
        affinity,
        bytes(spec.tolerations),
        spread,
        bytes(labels) if b"LabelKeys" in spread or b"LabelKeys" in affinity else None,
        bytes(spec.overhead),
        bytes(spec.resources),
        bool(spec.resource_claims),
        claims(spec),
        ephemeral(spec),
        tuple([(each.name, bytes(each.resources), bytes(each.ports)) for each in spec.containers or ()]),
        tuple(
            [
                (each.name, bytes(each.resources), bytes(each.ports), each.restart_policy)
                for each in spec.init_containers
            ]
        )
        if spec.init_containers
        else (),
        tuple([(each.name, bytes(each.allocated_resources), bytes(each.resources)) for each in statuses])
        if statuses
        else (),
    )


def _shape(
    namespace: str, spec: wire.PodSpec, labels: Raw, statuses: Iterable[wire.ContainerStatus]
) -> Shape:
    affinity = _read(_affinity, spec.affinity) or wire.Affinity()
    node = affinity.node_affinity or wire.NodeAffinity()
    spread = _read(_spreads, spec.topology_spread_constraints) or ()
    own: dict[str, str] = _read(_labels, labels) or {}
    by_name = {each.name: each for each in statuses}
    inits = spec.init_containers or ()
    return Shape(
        namespace=namespace,
        requests=total(
            [_container(each, by_name) for each in spec.containers or ()],
            [_container(each, by_name) for each in inits],
            whole=_read(_resources, spec.resources),
            overhead=_read(_amounts, spec.overhead),
            devices=bool(spec.resource_claims),
        ),
        priority=spec.priority or 0,
        selector=tuple(
            sorted(
                {CURRENT.get(k, k): v for k, v in (_read(_labels, spec.node_selector) or {}).items()}.items()
            )
        ),
        affinity=node_terms(node.required.node_selector_terms) if node.required is not None else None,
        preferred=tuple(
            (each.weight, term)
            for each in node.preferred or ()
            if each.weight and ((term := node_term(each.preference)).labels or term.fields)
        ),
        tolerations=_sorted(
            {toleration(each) for each in _read(_tolerations, spec.tolerations) or () if not _passing(each)}
        ),
        ports=_host_ports(spec),
        spread=tuple(
            Spread(
                topology=CURRENT.get(each.topology_key, each.topology_key),
                max_skew=each.max_skew,
                selector=_narrowed(each.label_selector, own, each.match_label_keys),
                min_domains=each.min_domains or 1,
                affinity=each.node_affinity_policy != "Ignore",
                taints=each.node_taints_policy == "Honor",
            )
            for each in spread
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
        together=_pod_terms(affinity.pod_affinity, namespace, own),
        apart=_pod_terms(affinity.pod_anti_affinity, namespace, own),
        claims=claims(spec),
        ephemeral=ephemeral(spec),
    )


def claims(spec: wire.PodSpec) -> tuple[str, ...]:
    """The claims that a pod uses, in order."""
    found = [
        each.persistent_volume_claim.claim_name
        for each in spec.volumes or ()
        if each.persistent_volume_claim is not None
    ]
    return tuple(sorted({*found})) if found else ()


def ephemeral(spec: wire.PodSpec) -> tuple[str | None, ...]:
    """The StorageClasses of a pod's generic ephemeral volumes, in order."""
    found = [
        template.spec.storage_class_name if template.spec is not None else None
        for each in spec.volumes or ()
        if each.ephemeral is not None and (template := each.ephemeral.volume_claim_template) is not None
    ]
    return tuple(sorted(found, key=lambda name: name or "")) if found else ()


def toleration(found: wire.Toleration) -> Toleration:
    """A toleration with the API's defaults."""
    return Toleration(found.key or "", found.operator or "Equal", found.value or "", found.effect or "")


def node_terms(terms: Iterable[wire.NodeSelectorTerm] | None) -> tuple[NodeTerm, ...]:
    """Node selector terms, of which one must match."""
    return tuple(node_term(each) for each in terms or ())


def node_term(term: wire.NodeSelectorTerm) -> NodeTerm:
    """A node selector term, with labels by their current names."""
    return NodeTerm(
        labels=tuple(
            Requirement(CURRENT.get(each.key, each.key), each.operator, tuple(each.values or ()))
            for each in term.match_expressions or ()
        ),
        fields=_requirements(term.match_fields),
    )


def selector(found: wire.LabelSelector | None) -> Selector | None:
    """A label selector."""
    if found is None:
        return None
    return Selector(
        equals=tuple(sorted((found.match_labels or {}).items())),
        expressions=_requirements(found.match_expressions),
    )


def _requirements(found: Iterable[wire.Expression] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(each.key, each.operator, tuple(each.values or ())) for each in found or ())


def _container(found: wire.Container, statuses: dict[str, wire.ContainerStatus]) -> Container:
    asked = requested(_read(_resources, found.resources) or wire.Resources())
    sidecar = found.restart_policy == "Always"
    status = statuses.get(found.name)
    if status is None:
        return Container(asked, sidecar)
    allocated = _read(_amounts, status.allocated_resources)
    actual = _read(_resources, status.resources)
    return Container(
        asked,
        sidecar,
        amounts(allocated) if allocated else None,
        amounts(actual.requests) if actual is not None and actual.requests else None,
    )


def _host_ports(spec: wire.PodSpec) -> tuple[tuple[str, str, int], ...]:
    sidecars = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    found: set[tuple[str, str, int]] = set()
    for container in (*(spec.containers or ()), *sidecars):
        for port in _read(_ports, container.ports) or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found.add((port.protocol or "TCP", port.host_ip or "0.0.0.0", number))  # noqa: S104 - every address
    return tuple(sorted(found))


def _pod_terms(affinity: wire.PodAffinity | None, namespace: str, own: dict[str, str]) -> tuple[PodTerm, ...]:
    if affinity is None:
        return ()
    return tuple(_pod_term(each, namespace, own) for each in affinity.required or ())


def _pod_term(term: wire.PodAffinityTerm, namespace: str, own: dict[str, str]) -> PodTerm:
    among = selector(term.namespace_selector)
    namespaces = tuple(sorted({*(term.namespaces or ())}))
    if among == Selector():
        namespaces, among = ("*",), None
    elif among is None and not namespaces:
        namespaces = (namespace,)
    return PodTerm(
        topology=CURRENT.get(term.topology_key, term.topology_key),
        selector=_narrowed(term.label_selector, own, term.match_label_keys, term.mismatch_label_keys),
        namespaces=namespaces,
        among=among,
    )


def _narrowed(
    found: wire.LabelSelector | None,
    own: dict[str, str],
    same: Iterable[str] | None,
    other: Iterable[str] | None = None,
) -> Selector | None:
    """The selector, limited to pods with the same values of some labels as this one, or with other values."""
    base = selector(found)
    if base is None:
        return None
    more = [Requirement(key, "In", (own[key],)) for key in same or () if key in own]
    more += [Requirement(key, "NotIn", (own[key],)) for key in other or () if key in own]
    more = [each for each in more if each not in base.expressions]  # newer API servers add them themselves
    return msgspec.structs.replace(base, expressions=(*base.expressions, *more)) if more else base


def _passing(toleration: wire.Toleration) -> bool:
    """Whether it is a default toleration of a node that fails for some minutes: it limits how long a pod
    stays, and does not make it fit other nodes."""
    return toleration.toleration_seconds is not None and toleration.key in (
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    )


def _sorted(found: Iterable[Toleration]) -> tuple[Toleration, ...]:
    return tuple(sorted(found, key=lambda each: (each.key, each.operator, each.value, each.effect)))


def _extended(name: str) -> bool:
    """Whether it is an extended resource, for which a toleration with its name is added to pods."""
    return "/" in name and "kubernetes.io/" not in name and name != DEVICES


def _read(decoder: msgspec.json.Decoder[_T], raw: Raw) -> _T | None:
    return None if bytes(raw) in _EMPTY else decoder.decode(raw)
