"""The checkpoints of a run in the store, formatted for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causeway.checkpoints import Checkpoint, Part, Policy, kept, whole

_RATE = 100e6
"""Bytes per second that a worker copies to the store, if it was not measured."""


@dataclass(frozen=True)
class Row:
    """A checkpoint in the store, complete or not."""

    name: str
    step: int
    size: int
    """Total size of its parts in bytes."""
    part_size: int
    """Size in bytes of the largest part, which one worker copies."""
    written: float
    """Seconds since the epoch."""
    site: str
    """The site where its first worker ran; empty if unknown."""
    state: str
    """``newest``, ``best``, ``kept``; ``1 of 2 parts`` if it is incomplete."""
    start: int
    """Start of the run that wrote it, counted from 1; each restart is a start."""

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "name": self.name, "step": self.step, "bytes": self.size, "written": self.written,
            "site": self.site, "state": self.state, "start": self.start,
        }  # fmt: skip


def rows(parts: Sequence[Part], policy: Policy) -> list[Row]:
    """Return complete checkpoints and those with missing parts, the newest first."""
    complete = whole(parts, policy.workers)
    best = next((each for each in kept(complete, policy) if each not in complete[: policy.keep]), None)
    found = [
        (
            each.order,
            _row(each.parts, "newest" if each is complete[0] else "best" if each is best else "kept"),
        )
        for each in complete
    ]
    used = {part.worker + part.id for each in complete for part in each.parts}
    groups: dict[tuple[int, str], list[Part]] = {}
    for part in parts:
        if part.worker in policy.workers and part.files and part.worker + part.id not in used:
            groups.setdefault((part.start, part.name), []).append(part)
    count = len(policy.workers)
    found += [
        (Checkpoint(tuple(group)).order, _row(group, f"{len(group)} of {count} parts"))
        for group in groups.values()
    ]
    return [row for _, row in sorted(found, key=lambda each: (each[0], each[1].name), reverse=True)]


def _row(parts: Sequence[Part], state: str) -> Row:
    first = parts[0]
    return Row(
        name=first.name,
        step=first.step,
        size=sum(part.size for part in parts),
        part_size=max(part.size for part in parts),
        written=max(part.written for part in parts) / 1e9,
        site=first.site,
        state=state,
        start=first.start,
    )


def copy_seconds(size: int, seconds: float = 0.0) -> float:
    """Estimate how long a worker copies ``size`` bytes: as long as measured, else by a typical rate."""
    return seconds or size / _RATE


def newest(parts: Sequence[Part], policy: Policy) -> Row | None:
    """Return the checkpoint that the run would resume from; None if there is none."""
    return next((each for each in rows(parts, policy) if not each.state.endswith("parts")), None)
