"""What keeps each group from taking some work: one reason a group, and when it is tried again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypeAlias

from infra.autoscaler.decision import Obstacle, ObstacleCode
from infra.autoscaler.launch_failures.status_messages import CLASSES, OTHER, words
from infra.autoscaler.observed.cluster_state import GroupView
from infra.autoscaler.observed.node_affinity import ZONE, obstacle, shortage, somewhere
from infra.autoscaler.observed.snapshot import DEVICES, Snapshot
from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.demand import Item, Kind


def clock(at: float) -> str:
    """``14:05 UTC``."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")


_LASTING: Final = frozenset({"devices", "placement", "volume-zone", "size", "volumes", "gpus"})


def passes(each: Obstacle) -> bool:
    """Whether what is in the way may go away by itself."""
    return each.code not in _LASTING


_Why: TypeAlias = tuple[ObstacleCode, str]


class Blockers:
    """Obstacles of one plan. What is the same for much work is found once."""

    def __init__(self, packer: Packer, snapshot: Snapshot) -> None:
        self._packer = packer
        self._snapshot = snapshot
        self._now: dict[int, Obstacle] = {}
        self._never: dict[tuple[int, int], _Why | None] = {}
        self._rooms = [
            {
                name: amount - view.template.overhead.get(name, 0)
                for name, amount in view.template.allocatable.items()
            }
            for view in packer.groups
        ]

    def of(self, kind: Kind) -> tuple[Obstacle, ...]:
        """One reason a group, in the groups' order."""
        chosen = {*self._packer.choose.choice(kind).groups.tolist()}
        return tuple(
            self._one(kind, place, view, place in chosen) for place, view in enumerate(self._packer.groups)
        )

    def of_gang(self, item: Item) -> tuple[Obstacle, ...]:
        """The same; of a group with room for a part, for how much."""
        kind = max((wanted.kind for wanted in item.wanted), key=lambda kind: kind.gpus)
        chosen = self._packer.choose.choice(kind)
        holds = dict(zip(chosen.groups.tolist(), chosen.holds.tolist(), strict=True))
        obstacles = []
        for place, why in enumerate(self.of(kind)):
            room = self._packer.capacity.room(place) if place in holds else 0
            if room > 0:
                text = f"can start machines for {room * holds[place]} of its {item.least} pods"
                obstacles.append(Obstacle(why.group, "part", text))
            else:
                obstacles.append(why)
        return tuple(obstacles)

    def _one(self, kind: Kind, place: int, view: GroupView, chosen: bool) -> Obstacle:
        sign = id(self._packer.matrix.fits_templates(kind)), place
        if sign not in self._never:
            self._never[sign] = _label(kind, view)
        name, why = view.group.name, self._never[sign]
        if why is not None:
            return Obstacle(name, *why)
        if (short := shortage(kind.shape.requests, self._rooms[place])) is not None:
            return Obstacle(name, "size", f"is too small: {short}")
        if not chosen:
            if (crowded := self._packer.matrix.crowded(kind, place)) is not None:
                return Obstacle(name, "volumes", crowded)
            if (misfit := self._packer.choose.misfits.why(kind, place)) is not None:
                text, until = misfit
                return Obstacle(
                    name, "mismatch", f"has machines that turned out not to take it ({text})", until
                )
            text = "has GPUs, which are kept for work that asks for them: others take such pods"
            return Obstacle(name, "gpus", text)
        if place not in self._now:
            self._now[place] = _now(self._packer, place, self._snapshot)
        return self._now[place]


def _label(kind: Kind, view: GroupView) -> _Why | None:
    """Why no machine of a group will ever do, whatever its size."""
    template, shape = view.template, kind.shape
    if any(name == DEVICES for name, _ in shape.requests):
        return "devices", "does not support resource claims (DRA); request nvidia.com/gpu instead"
    placement = obstacle(shape, template.labels, template.taints, zones=view.group.zones)
    if placement is not None:
        return "placement", placement
    zones = view.group.zones or ("",)
    for terms in kind.volumes:
        if not any(somewhere(terms, {**template.labels, **({ZONE: z} if z else {})}) for z in zones):
            return "volume-zone", "is not where its volume is"
    return None


def _now(packer: Packer, place: int, snapshot: Snapshot) -> Obstacle:
    """Why a group takes none at the moment."""
    view = packer.groups[place]
    name = view.group.name
    if view.state is None:
        why = snapshot.errors.get(f"aws/{view.group.region}/{name}") or snapshot.errors.get(
            f"aws/{view.group.region}"
        )
        return Obstacle(name, "unreadable", "can't be read" + (f": {why}" if why else ""))
    if view.state.deleting:
        return Obstacle(name, "deleting", "is being deleted")
    if "Launch" in view.state.suspended:
        return Obstacle(name, "suspended", "may not launch: its process Launch is suspended")
    if view.backoff is not None:
        failure = CLASSES.get(view.backoff.code, CLASSES[OTHER])
        text = f"{failure.verdict} until {clock(view.backoff.until)}"
        return Obstacle(name, "backoff", text, view.backoff.until)
    full = packer.capacity.ledger.full(name)
    if full is not None:
        return Obstacle(name, full.code, full.text)
    if view.closed_zones:
        zones = [f"{zone} ({words(bar.code)})" for zone, bar in sorted(view.closed_zones.items())]
        until = min(bar.until for bar in view.closed_zones.values())
        text = f"starts none in {', '.join(zones)} until {clock(until)}"
        return Obstacle(name, "closed-zones", text, until)
    return Obstacle(name, "rules", "has no place in a zone, or beside other pods, that its rules allow")
