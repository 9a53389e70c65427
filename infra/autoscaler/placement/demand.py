"""Demand: equal pods grouped together, and the gangs that they form.

Pods are equal where their shapes are, and where the same of the selectors that matter now (of spreads,
affinities and anti-affinities, also of pods that run) select them. 50,000 pods of one job are one `Kind`.
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
    """Pods that a selector is about."""

    namespaces: tuple[str, ...]
    selector: Selector


@dataclass(frozen=True, slots=True)
class Even:
    """A spread that must hold."""

    topology: str
    skew: int
    chosen: int
    least: int
    own: bool
    """Whether the pod is one of those that are counted."""
    affinity: bool = True
    """Whether it is counted over nodes alone that the pod's selectors are about (``nodeAffinityPolicy``)."""
    taints: bool = False
    """And whose taints it tolerates (``nodeTaintsPolicy``)."""


@dataclass(frozen=True, slots=True)
class Near:
    """Other pods to be with, or apart from."""

    topology: str
    chosen: int
    own: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal pods."""

    index: int
    shape: Shape
    volumes: tuple[tuple[NodeTerm, ...], ...]
    """For each of its volumes that is somewhere: one of the terms holds."""
    lost: Reason | None
    """Why no place will ever do: a claim of its does not exist …"""
    chosen: tuple[int, ...]
    """Which selectors are about it: indices of `Demand.chosen`."""
    even: tuple[Even, ...]
    together: tuple[Near, ...]
    apart: tuple[Near, ...]
    owned: tuple[int, ...]
    """Its own terms of anti-affinity: indices of `Demand.terms`."""
    barred: tuple[int, ...]
    """Terms of others that keep it away."""
    gpus: int
    attached: frozenset[tuple[str, str]] = frozenset()
    """Volumes that count against a CSI driver's limit, once a machine: (driver, volume)."""

    @property
    def plain(self) -> bool:
        """Whether it does not matter who else is there."""
        return not (self.even or self.together or self.apart or self.barred or self.shape.ports)

    @property
    def placed(self) -> bool:
        """Whether it matters in which zone or other place of many nodes it is."""
        return any(topology != HOSTNAME for topology in self.topologies)

    @property
    def topologies(self) -> frozenset[str]:
        """Labels that its own rules go by."""
        near = {each.topology for each in (*self.together, *self.apart)}
        return frozenset({*near, *(each.topology for each in self.even)})


@dataclass(slots=True)
class Wanted:
    """Pods of a kind that want a place: those that exist, and of a gang those that will."""

    kind: Kind
    pods: tuple[Pod, ...]
    virtual: int = 0
    """How many more there will be."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of those."""

    @property
    def count(self) -> int:
        return len(self.pods) + self.virtual


@dataclass(slots=True)
class Item:
    """What is placed in one go: equal pods, each for itself, or a gang."""

    wanted: list[Wanted]
    priority: int
    created: float
    gang: Gang | None = None
    key: str | None = None
    least: int = 0
    """Of a gang: how many of these must have a place."""
    site: str | None = None
    """Where the rest of the gang runs already."""
    booked: bool = False
    """Whether its machines are promised."""
    cooling: float | None = None
    """Until when it gets no machines but those that are up, as it has waited without success."""
    low: bool = False
    """Whether it never gets others (``min_priority``)."""

    @property
    def count(self) -> int:
        return sum(each.count for each in self.wanted)


@dataclass(slots=True)
class Demand:
    """Everything that waits, and what has to be counted to place it."""

    chosen: list[Chosen] = field(default_factory=list)
    terms: list[tuple[str, int]] = field(default_factory=list)
    """Terms of anti-affinity: (topology, index of `chosen`)."""
    kinds: list[Kind] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    existing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """id of a running pod's shape → its own terms of anti-affinity."""
    signer: Signer | None = None
    attachments: Attachments = field(default_factory=Attachments)

    @property
    def resources(self) -> tuple[str, ...]:
        """What is asked for at all, GPUs first: most places lack those."""
        names = {name for kind in self.kinds for name, _ in kind.shape.requests}
        names |= {ATTACHABLE + driver for kind in self.kinds for driver, _ in kind.attached}
        names |= {ATTACHABLE + each for kind in self.kinds for each in self.attachments.own(kind.shape)}
        return tuple(sorted(names, key=lambda name: (name != GPU, name)))


class Signer:
    """Which selectors are about a pod; equal answers are found without asking again."""

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
    """Selectors and terms by number, as they are come upon."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._namespaces = namespaces
        self.chosen: dict[Chosen, int] = {}
        self.terms: dict[tuple[str, int], int] = {}

    def select(self, namespaces: tuple[str, ...], selector: Selector) -> int:
        return self.chosen.setdefault(Chosen(namespaces, selector), len(self.chosen))

    def meant(self, term: PodTerm, selector: Selector) -> int:
        """The pods that a term is about."""
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
        """Its terms of anti-affinity: they count for others too."""
        return tuple(
            self.terms.setdefault((term.topology, self.meant(term, term.selector)), len(self.terms))
            for term in shape.apart
            if term.selector is not None
        )


def gather(view: ClusterState, snapshot: Snapshot, gangs: Iterable[Item]) -> Demand:
    """All that waits. ``gangs``: items whose pods are not to be placed one by one; their kinds are made here.

    Of an item that comes in, `wanted` has a kind for each shape only in name: see `gangs.items`.
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
    """A kind that says nothing but its shape, for `gather` to make whole."""
    return Kind(-1, shape, (), None, (), (), (), (), (), (), 0)


def _split(wanted: Wanted, signer: Signer) -> Iterable[tuple[Mapping[str, str], tuple[Pod, ...], int]]:
    """By the selectors that are about them."""
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
    """Kinds by what tells them apart."""

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
            # Shapes that are equal should be one object; where they are not, they are found to be here.
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
