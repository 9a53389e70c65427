"""Why each group cannot take a workload: one reason for each group, and when it is tried again."""

from __future__ import annotations

from msgspec.structs import replace

from infra.autoscaler.observed.cluster_state import GroupView
from infra.autoscaler.observed.node_affinity import ZONE, obstacle, shortage, somewhere
from infra.autoscaler.observed.snapshot import DEVICES, Snapshot
from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.demand import Item, Kind
from infra.autoscaler.reasons import Reason


class Blockers:
    """The obstacles of one plan. Results are cached, as they are equal for much work."""

    def __init__(self, packer: Packer, snapshot: Snapshot) -> None:
        self._packer = packer
        self._snapshot = snapshot
        self._now: dict[int, Reason] = {}
        self._never: dict[tuple[int, int], Reason | None] = {}
        self._rooms = [
            {
                name: amount - view.template.overhead.get(name, 0)
                for name, amount in view.template.allocatable.items()
            }
            for view in packer.groups
        ]

    def of(self, kind: Kind) -> tuple[Reason, ...]:
        """One reason per group, in the groups' order."""
        chosen = {*self._packer.choose.choice(kind).groups.tolist()}
        return tuple(
            self._one(kind, place, view, place in chosen) for place, view in enumerate(self._packer.groups)
        )

    def of_gang(self, item: Item) -> tuple[Reason, ...]:
        """The same for a gang; for a group with room for a part, how much."""
        kind = max((wanted.kind for wanted in item.wanted), key=lambda kind: kind.gpus)
        chosen = self._packer.choose.choice(kind)
        holds = dict(zip(chosen.groups.tolist(), chosen.holds.tolist(), strict=True))
        obstacles = []
        for place, why in enumerate(self.of(kind)):
            room = self._packer.capacity.room(place) if place in holds else 0
            if room > 0:
                why = Reason("part", why.group, why.site, requested=item.least, limit=room * holds[place])
            obstacles.append(why)
        return tuple(obstacles)

    def _one(self, kind: Kind, place: int, view: GroupView, chosen: bool) -> Reason:
        sign = id(self._packer.matrix.fits_templates(kind)), place
        if sign not in self._never:
            label = _label(kind, view)
            self._never[sign] = label and _of(view, label)
        if (why := self._never[sign]) is not None:
            return why
        if (why := shortage(kind.shape.requests, self._rooms[place])) is not None:
            return _of(view, why)
        if not chosen:
            matrix, misfits = self._packer.matrix, self._packer.choose.misfits
            why = matrix.crowded(kind, place) or misfits.why(kind, place) or Reason("gpus")
            return _of(view, why)
        if place not in self._now:
            self._now[place] = _of(view, _now(self._packer, place, self._snapshot))
        return self._now[place]


def _of(view: GroupView, why: Reason) -> Reason:
    return replace(why, group=view.group.name, site=view.group.site)


def _label(kind: Kind, view: GroupView) -> Reason | None:
    """Why no machine of a group ever fits, whatever its size."""
    template, shape = view.template, kind.shape
    if any(name == DEVICES for name, _ in shape.requests):
        return Reason("devices")
    placement = obstacle(shape, template.labels, template.taints, zones=view.group.zones)
    if placement is not None:
        return placement
    zones = view.group.zones or ("",)
    for terms in kind.volumes:
        if not any(somewhere(terms, {**template.labels, **({ZONE: z} if z else {})}) for z in zones):
            return Reason("volume-zone")
    return None


def _now(packer: Packer, place: int, snapshot: Snapshot) -> Reason:
    """Why a group does not fit at the moment."""
    view = packer.groups[place]
    name = view.group.name
    if view.state is None:
        region = f"aws/{view.group.region}"
        return Reason(
            "unreadable", what=snapshot.errors.get(f"{region}/{name}") or snapshot.errors.get(region, "")
        )
    if view.state.deleting:
        return Reason("deleting")
    if "Launch" in view.state.suspended:
        return Reason("suspended")
    if view.backoff is not None:
        return Reason("backoff", what=view.backoff.code, until=view.backoff.until)
    if (full := packer.capacity.ledger.full(name)) is not None:
        return full
    if view.closed_zones:
        zones = tuple((zone, bar.code) for zone, bar in sorted(view.closed_zones.items()))
        until = min(bar.until for bar in view.closed_zones.values())
        return Reason("closed-zones", zones=zones, until=until)
    return Reason("rules")
