"""Machines that turn out not to fit the work that they were launched for.

A group's spec and the catalogue predict its machines. If the latest ones offer less (missing GPUs, a missing
label, less allocatable, a taint that stays), machines for the same work would be launched in every loop, and
again after those were terminated as idle. So such a group is avoided for such work, with increasing
back-off, as after a failed launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2s
from typing import Final

import msgspec
import numpy as np

from infra.autoscaler import backoff
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Notice
from infra.autoscaler.memory import Backoff
from infra.autoscaler.observed.cluster_state import GroupView, Machine
from infra.autoscaler.observed.node_affinity import obstacle, shortage
from infra.autoscaler.observed.snapshot import Shape
from infra.autoscaler.placement.demand import Kind
from infra.autoscaler.placement.node_matrix import Flags, NodeMatrix
from infra.autoscaler.reasons import Reason
from infra.autoscaler.reporting import sentences

CODE: Final = "misfit"
_LAST: Final = 3
"""How many of a group's latest machines are considered: a problem of earlier ones may be fixed."""
_LEAST: Final = 2
"""A single machine may be broken."""
_MOST: Final = 500
"""Maximum entries in the memory."""


class TemplateMismatches:
    """The mismatches of one plan; `found` is filled during it."""

    def __init__(
        self,
        matrix: NodeMatrix,
        groups: Sequence[GroupView],
        machines: Sequence[Machine],
        known: Mapping[str, Backoff],
    ) -> None:
        """``machines``: the matrix's first rows. ``known``: remembered mismatches in force."""
        self._board = matrix
        self._groups = groups
        self._machines = machines
        self._known = known
        number = {each.group.name: place for place, each in enumerate(groups)}
        up: defaultdict[int, list[int]] = defaultdict(list)
        for row, machine in enumerate(machines):
            if machine.state == "ready" and machine.group is not None and machine.node is not None:
                up[number[machine.group]].append(row)
        rows: list[int] = []
        for some in up.values():
            if len(some) >= _LEAST:
                rows += sorted(some, key=lambda row: -_created(machines[row]))[:_LAST]
        self._rows = np.array(rows, np.int64)
        self._of = matrix.group[self._rows]
        self._like = np.array(
            [
                matrix.at.get((int(group), matrix.zones[row]), matrix.at[int(group), self._zone(group)])
                for row, group in zip(self._rows.tolist(), self._of.tolist(), strict=True)
            ],
            np.int64,
        )
        """The template of each machine."""
        self.found: dict[str, str] = {}
        """Key → the reason, for people."""

    def of(self, kind: Kind, templates: Flags) -> Flags:
        """Groups that are avoided for such pods. ``templates``: those that fit by their labels."""
        barred = np.zeros(len(self._groups), np.bool_)
        if self._known:
            sign = _sign(kind.shape)
            for place, each in enumerate(self._groups):
                barred[place] = f"{each.group.name}/{sign}" in self._known
        if not len(self._rows):
            return barred
        matrix = self._board
        here = templates[self._like]
        here &= matrix.promised(kind)[self._of] > 0
        if not here.any():
            return barred
        takes = matrix.fits(kind)[self._rows] & (matrix.empty(kind)[self._rows] > 0)
        size = len(self._groups)
        seen = np.bincount(self._of[here], minlength=size)
        good = np.bincount(self._of[here & takes], minlength=size)
        for place in np.nonzero((seen >= _LEAST) & (good == 0))[0].tolist():
            name = self._groups[place].group.name
            row = int(self._rows[here & (self._of == place)][0])
            self.found[f"{name}/{_sign(kind.shape)}"] = self._why(kind, row)
            barred[place] = True
        return barred

    def why(self, kind: Kind, group: int) -> Reason | None:
        """Why a group is avoided for such pods, and until when, if that was found earlier."""
        if not self._known and not self.found:
            return None
        key = f"{self._groups[group].group.name}/{_sign(kind.shape)}"
        if (bar := self._known.get(key)) is not None:
            return Reason("mismatch", what=bar.message, until=bar.until)
        return Reason("mismatch", what=self.found[key]) if key in self.found else None

    def bars(self, kind: Kind) -> bool:
        """Whether any group is avoided for such pods."""
        return any(self.why(kind, place) is not None for place in range(len(self._groups)))

    def _zone(self, group: int) -> str:
        zones = self._groups[group].group.zones
        return zones[0] if zones else ""

    def _why(self, kind: Kind, row: int) -> str:
        machine = self._machines[row]
        room = {
            name: int(self._board.whole[column, row]) for column, name in enumerate(self._board.resources)
        }
        why = obstacle(kind.shape, machine.labels, machine.taints, name=machine.name)
        return sentences.misfit(machine.name, why or shortage(kind.shape.requests, room))


def in_force(known: Mapping[str, Backoff], now: float) -> dict[str, Backoff]:
    """Those in force now."""
    return {key: each for key, each in known.items() if each.until > now}


def learned(
    known: Mapping[str, Backoff], found: Mapping[str, str], config: Config, now: float
) -> dict[str, Backoff]:
    """The updated memory."""
    names = {group.name for group in config.groups}
    kept = {
        key: each for key, each in backoff.kept(known, config, now).items() if key.rpartition("/")[0] in names
    }
    for key, why in sorted(found.items()):
        if key in kept or len(kept) < _MOST:
            kept[key] = backoff.after(kept.get(key), CODE, why, now, config)
    return kept


def notices(found: Mapping[str, str]) -> list[Notice]:
    """Notices for administrators, one per group, as waiting does not fix it."""
    by_group: dict[str, str] = {}
    for key, why in sorted(found.items()):
        by_group.setdefault(key.rpartition("/")[0], why)
    return [
        Notice(
            "misfit",
            name,
            "error",
            f"machines of {name} do not take work that they should have room for; no more are started for "
            f"such work for a while. {why}",
        )
        for name, why in by_group.items()
    ]


def _sign(shape: Shape) -> str:
    """A key that is the same for equal requests, selectors and tolerations, in every process."""
    said = msgspec.json.encode((shape.requests, shape.selector, shape.affinity, shape.tolerations))
    return blake2s(said, digest_size=8).hexdigest()


def _created(machine: Machine) -> float:
    return machine.node.created if machine.node is not None else 0.0
