"""Demand: groups of equal pods, and the gangs that they form.

Pods are equal if their shapes are, and if the same of the relevant selectors (of spreads, affinities and
anti-affinities, also of running pods) match them. 50,000 pods of one job are one `Kind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.node_affinity import HOSTNAME
from infra.autoscaler.observed.selectors import matches, reaches
from infra.autoscaler.observed.snapshot import (
    ATTACHABLE,
    GPU,
    Attachments,
    Gang,
    NodeTerm,
    Pod,
    PodTerm,
    Selector,
    Shape,
    Snapshot,
)
from infra.autoscaler.reasons import Reason

ANYWHERE = ("*",)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pods that a selector matches."""

    namespaces: tuple[str, ...]
    selector: Selector


@dataclass(frozen=True, slots=True)
class Even:
    """A topology spread that must hold."""

    topology: str
    skew: int
    chosen: int
    least: int
    own: bool
    """Whether the pod itself is counted."""
    affinity: bool = True
    """Whether only nodes that match the pod's selectors are counted (``nodeAffinityPolicy``)."""
    taints: bool = False
    """Whether only nodes whose taints it tolerates are counted (``nodeTaintsPolicy``)."""


@dataclass(frozen=True, slots=True)
class Near:
    """Affinity or anti-affinity to other pods."""

    topology: str
    chosen: int
    own: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal pods."""

    index: int
    shape: Shape
    volumes: tuple[tuple[NodeTerm, ...], ...]
    """For each of its volumes with a location: one of the terms must match."""
    lost: Reason | None
    """Why no place will ever fit: a claim does not exist …"""
    chosen: tuple[int, ...]
    """The selectors that match it: indices of `Demand.chosen`."""
    even: tuple[Even, ...]
    together: tuple[Near, ...]
    apart: tuple[Near, ...]
    owned: tuple[int, ...]
    """Its own anti-affinity terms: indices of `Demand.terms`."""
    barred: tuple[int, ...]
    """Anti-affinity terms of other pods that repel it."""
    gpus: int
    attached: frozenset[tuple[str, str]] = frozenset()
    """Volumes that count against a CSI driver's limit, once per machine: (driver, volume)."""

    @property
    def plain(self) -> bool:
        """Whether it has no rules about other pods."""
        return not (self.even or self.together or self.apart or self.barred or self.shape.ports)

    @property
    def placed(self) -> bool:
        """Whether the zone or another domain of several nodes matters."""
        return any(topology != HOSTNAME for topology in self.topologies)

    @property
    def topologies(self) -> frozenset[str]:
        """The labels that its own rules use."""
        near = {each.topology for each in (*self.together, *self.apart)}
        return frozenset({*near, *(each.topology for each in self.even)})


@dataclass(slots=True)
class Wanted:
    """Pending pods of a kind: existing ones, and future ones of a gang."""

    kind: Kind
    pods: tuple[Pod, ...]
    virtual: int = 0
    """The number of future pods."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the future pods."""

    @property
    def count(self) -> int:
        return len(self.pods) + self.virtual


@dataclass(slots=True)
class Item:
    """A unit of placement: equal pods, each for itself, or a gang."""

    wanted: list[Wanted]
    priority: int
    created: float
    gang: Gang | None = None
    key: str | None = None
    least: int = 0
    """Of a gang: the minimum number that needs a place."""
    site: str | None = None
    """The site at which the rest of the gang is running."""
    booked: bool = False
    """Whether machines are reserved for it."""
    cooling: float | None = None
    """Until when it only gets running machines, as it has waited without success."""
    low: bool = False
    """Whether it never starts machines (``min_priority``)."""

    @property
    def count(self) -> int:
        return sum(each.count for each in self.wanted)


@dataclass(slots=True)
class Demand:
    """All pending work, and what must be counted to place it."""

    chosen: list[Chosen] = field(default_factory=list)
    terms: list[tuple[str, int]] = field(default_factory=list)
    """Anti-affinity terms: (topology, index of `chosen`)."""
    kinds: list[Kind] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    existing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """id of a running pod's shape → its own anti-affinity terms."""
    signer: Signer | None = None
    attachments: Attachments = field(default_factory=Attachments)

    @property
    def resources(self) -> tuple[str, ...]:
        """All requested resources, GPUs first, as most machines lack them."""
        names = {name for kind in self.kinds for name, _ in kind.shape.requests}
        names |= {ATTACHABLE + driver for kind in self.kinds for driver, _ in kind.attached}
        names |= {ATTACHABLE + each for kind in self.kinds for each in self.attachments.own(kind.shape)}
        return tuple(sorted(names, key=lambda name: (name != GPU, name)))


class Signer:
    """Which selectors match a pod; cached by labels."""

    def __init__(self, chosen: Sequence[Chosen]) -> None:
        self._chosen = chosen
        self._keys = tuple(
            sorted(
                {key for each in chosen for key, _ in each.selector.equals}
                | {asked.key for each in chosen for asked in each.selector.expressions}
            )
        )
        self._known: dict[tuple[str, tuple[str | None, ...]], tuple[int, ...]] = {}

    def __call__(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Indices of the selectors."""
        if not self._chosen:
            return ()
        sign = (namespace, tuple(map(labels.get, self._keys)))
        found = self._known.get(sign)
        if found is None:
            found = self._known[sign] = tuple(
                index
                for index, each in enumerate(self._chosen)
                if (each.namespaces == ANYWHERE or namespace in each.namespaces)
                and matches(each.selector, labels)
            )
        return found


class _Counted:
    """Numbers selectors and terms as they are found."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._namespaces = namespaces
        self.chosen: dict[Chosen, int] = {}
        self.terms: dict[tuple[str, int], int] = {}

    def select(self, namespaces: tuple[str, ...], selector: Selector) -> int:
        return self.chosen.setdefault(Chosen(namespaces, selector), len(self.chosen))

    def meant(self, term: PodTerm, selector: Selector) -> int:
        """The pods that a term selects."""
        if term.among is None:
            return self.select(term.namespaces, selector)
        names = {
            *term.namespaces,
            *(each for each in self._namespaces if reaches(term, each, self._namespaces)),
        }
        return self.select(tuple(sorted(names)), selector)

    def learn(self, shape: Shape) -> None:
        for even in shape.spread:
            if even.selector is not None:
                self.select((shape.namespace,), even.selector)
        for near in shape.together:
            if near.selector is not None:
                self.meant(near, near.selector)
        self.own(shape)

    def own(self, shape: Shape) -> tuple[int, ...]:
        """Its anti-affinity terms, which also apply to other pods."""
        return tuple(
            self.terms.setdefault((term.topology, self.meant(term, term.selector)), len(self.terms))
            for term in shape.apart
            if term.selector is not None
        )


def gather(view: ClusterState, snapshot: Snapshot, gangs: Iterable[Item]) -> Demand:
    """All pending work. ``gangs``: items whose pods are not placed one by one; their kinds are completed
    here.

    In the input items, `wanted` has incomplete kinds with only a shape: see `gangs.items`.
    """
    counted = _Counted(snapshot.namespaces)
    items = list(gangs)
    held = {pod.uid for item in items for each in item.wanted for pod in each.pods}
    single = [pod for pod in view.pending if pod.uid not in held]
    shapes = {id(pod.shape): pod.shape for pod in single}
    shapes.update({id(w.kind.shape): w.kind.shape for item in items for w in item.wanted})
    for shape in shapes.values():
        if shape.spread or shape.together or shape.apart:
            counted.learn(shape)
    running = {
        id(pod.shape): pod.shape for machine in view.machines for pod in machine.pods if pod.shape.apart
    }
    existing = {key: counted.own(shape) for key, shape in running.items()}
    demand = Demand(
        list(counted.chosen), list(counted.terms), existing=existing, attachments=snapshot.attachments
    )
    demand.signer = signer = Signer(demand.chosen)
    makers = _Kinds(counted, demand, snapshot)

    for item in items:
        item.wanted = [
            Wanted(makers.kind(old.kind.shape, signer(old.kind.shape.namespace, labels)), pods, virtual)
            for old in item.wanted
            for labels, pods, virtual in _split(old, signer)
        ]
    equal: dict[tuple[int, tuple[int, ...]], list[Pod]] = {}
    for pod in single:
        sign = signer(pod.namespace, pod.labels) if demand.chosen else ()
        equal.setdefault((id(pod.shape), sign), []).append(pod)
    merged: dict[int, list[Pod]] = {}
    for (_, sign), pods in equal.items():
        merged.setdefault(makers.kind(pods[0].shape, sign).index, []).extend(pods)
    for index, pods in merged.items():
        kind = demand.kinds[index]
        pods.sort(key=_age)
        items.append(Item([Wanted(kind, tuple(pods))], kind.shape.priority, pods[0].created))
    demand.items = items
    return demand


def bare(shape: Shape) -> Kind:
    """A kind with only a shape, to be completed by `gather`."""
    return Kind(-1, shape, (), None, (), (), (), (), (), (), 0)


def _split(wanted: Wanted, signer: Signer) -> Iterable[tuple[Mapping[str, str], tuple[Pod, ...], int]]:
    """Split by the selectors that match the pods."""
    namespace = wanted.kind.shape.namespace
    groups: dict[tuple[int, ...], list[Pod]] = {}
    for pod in wanted.pods:
        groups.setdefault(signer(namespace, pod.labels), []).append(pod)
    for pods in groups.values():
        yield pods[0].labels, tuple(sorted(pods, key=_age)), 0
    if wanted.virtual:
        yield wanted.labels, (), wanted.virtual


def _age(pod: Pod) -> tuple[float, str, str]:
    return pod.created, pod.namespace, pod.name


class _Kinds:
    """Kinds by their distinguishing attributes."""

    def __init__(self, counted: _Counted, demand: Demand, snapshot: Snapshot) -> None:
        self._counted = counted
        self._demand = demand
        self._claims = snapshot.claims
        self._by_id: dict[tuple[int, tuple[int, ...]], Kind] = {}
        self._known: dict[tuple[Shape, tuple[int, ...]], Kind] = {}
        self._of_chosen: dict[int, tuple[int, ...]] = {}
        for index, (_, chosen) in enumerate(demand.terms):
            self._of_chosen[chosen] = (*self._of_chosen.get(chosen, ()), index)

    def kind(self, shape: Shape, sign: tuple[int, ...]) -> Kind:
        found = self._by_id.get((id(shape), sign))
        if found is None:
            # Equal shapes should be the same object; if they are not, that is detected here.
            found = self._known.get((shape, sign))
            if found is None:
                found = self._known[shape, sign] = self._made(shape, sign)
                self._demand.kinds.append(found)
            self._by_id[id(shape), sign] = found
        return found

    def _made(self, shape: Shape, sign: tuple[int, ...]) -> Kind:
        volumes: list[tuple[NodeTerm, ...]] = []
        lost: Reason | None = None
        for claim in shape.claims:
            name = f"{shape.namespace}/{claim}"
            if name not in self._claims:
                lost = lost or Reason("no-claim", what=claim)
            elif terms := self._claims[name]:
                volumes.append(terms)
        if any(term.selector is None for term in shape.together):
            lost = lost or Reason("no-peers")
        select = self._counted.select
        owned = self._counted.own(shape)
        return Kind(
            index=len(self._demand.kinds),
            shape=shape,
            volumes=tuple(volumes),
            lost=lost,
            chosen=sign,
            even=tuple(
                Even(e.topology, e.max_skew, number, e.min_domains, number in sign, e.affinity, e.taints)
                for e in shape.spread
                if e.selector is not None
                for number in (select((shape.namespace,), e.selector),)
            ),
            together=tuple(
                Near(e.topology, number, number in sign)
                for e in shape.together
                if e.selector is not None
                for number in (self._counted.meant(e, e.selector),)
            ),
            apart=tuple(
                Near(e.topology, number, number in sign)
                for e in shape.apart
                if e.selector is not None
                for number in (self._counted.meant(e, e.selector),)
            ),
            owned=owned,
            barred=tuple(sorted(term for number in sign for term in self._of_chosen.get(number, ()))),
            gpus=dict(shape.requests).get(GPU, 0),
            attached=self._demand.attachments.shared(shape),
        )
