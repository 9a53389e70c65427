"""Detects failed requests: launches that failed, machines that were not launched or did not join.

A group that failed as a whole is reduced to its current size: AWS stops trying, and the remaining work moves
to other groups in the same loop. If one of several zones failed, the group continues in the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from infra.autoscaler import backoff
from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import Notice
from infra.autoscaler.launch_failures.status_messages import (
    BOOT,
    CAPACITY,
    CLASSES,
    OTHER,
    SILENCE,
    UNFULFILLABLE,
    FailureClass,
    classify,
    zone_of,
)
from infra.autoscaler.memory import Backoff, Memory
from infra.autoscaler.observed.snapshot import GPU, Activity, GroupState, Node, Snapshot
from infra.autoscaler.observed.state_builder import present_units

__all__ = ["Learned", "classify", "learn", "words"]

_SKEW: Final = 5.0
"""Tolerated seconds by which AWS's clock may be behind ours."""
_LONGEST: Final = 240
"""Maximum characters of a message that are stored."""
_PEERS: Final = 600.0
"""Seconds between launches that count as one batch."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The results of our last writes."""

    memory: Memory
    """With updated back-offs and cursors."""
    shrink: Mapping[str, int]
    """Group → the size that it is reduced to, its current one."""
    lessons: Mapping[str, str]
    """Group → the reason in one line: ``no capacity in us-west-2a``."""
    notices: tuple[Notice, ...]
    counts: Mapping[str, int]
    """Group → failures that are new in this loop."""


def learn(snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Learned:
    """Back-offs for what failed since the last loop, and groups to be reduced.

    The memory of groups that could not be read is kept.
    """
    names = {group.name for group in config.groups}
    bars = {
        key: bar
        for key, bar in backoff.kept(memory.backoffs, config, now).items()
        if key.partition("/")[0] in names
    }
    seen = {name: at for name, at in memory.seen.items() if name in names}
    short = {name: at for name, at in memory.short.items() if name in names}
    shrink: dict[str, int] = {}
    lessons: dict[str, str] = {}
    notices: list[Notice] = []
    counts: dict[str, int] = {}
    nodes = {node.instance: node for node in snapshot.nodes if node.provider}

    for group in config.groups:
        state = snapshot.groups.get(group.name)
        if state is None:
            continue
        failures = [
            *_refused(group, state, memory, seen, config, now),
            *_late(group, state, nodes, memory, bars, config, now),
            *_silent(group, state, memory, short, config, now),
        ]
        for failure in failures:
            bars.update(_barred_by(failure, group, bars, config))
        if failures:
            counts[group.name] = len(failures)
            notices.append(_notice(group, failures[-1], bars, now))
        if (bar := backoff.barred(group, bars, now)) is not None:
            lessons[group.name] = words(group, bar)
            size = max(present_units(state), state.min)
            if state.desired > size and not state.deleting:
                shrink[group.name] = size
                short.pop(group.name, None)

    resizes = {name: each for name, each in memory.resizes.items() if name in names}
    kept = replace(memory, backoffs=bars, seen=seen, short=short, resizes=resizes)
    return Learned(kept, shrink, lessons, tuple(notices), counts)


def words(group: Group, bar: Backoff) -> str:
    """Why a group is avoided, and until when: ``us-west-2 has no capacity until 14:05 UTC``."""
    why = _class(bar.code).words
    if bar.code in (CAPACITY, UNFULFILLABLE):
        return f"{group.site} has {why} for {group.pool} until {backoff.clock(bar.until)}"
    return f"{group.pool} at {group.site}: {why}; tried again at {backoff.clock(bar.until)}"


@dataclass(frozen=True, slots=True)
class _Failure:
    when: float
    code: str
    message: str
    zone: str = ""


def _refused(
    group: Group,
    state: GroupState,
    memory: Memory,
    seen: dict[str, float],
    config: Config,
    now: float,
) -> list[_Failure]:
    """Failed launches, oldest first; `seen` is advanced.

    Only those after our last write count: earlier ones were requested by others, or are already processed.
    Without a known write (a lost memory), failures older than the minimum back-off are ignored.
    """
    resize = memory.resizes.get(group.name)
    since = now - config.backoff_min if resize is None else resize.at - _SKEW
    cursor = memory.seen.get(group.name, since)
    found = []
    for activity in state.activities:
        if activity.status != "Failed" or activity.description.startswith("Terminating"):
            continue
        # Ends are reported in whole seconds, and may seem earlier than starts.
        when = max(activity.start, activity.end or activity.start)
        if when > seen.get(group.name, 0.0):
            seen[group.name] = when
        if when <= cursor or when < since:
            continue
        code = classify(activity.message or activity.description, activity.cause)
        if code is not None:
            found.append(_Failure(when, code, _short(activity), zone_of(activity)))
    return sorted(found, key=lambda each: each.when)


def _late(
    group: Group,
    state: GroupState,
    nodes: Mapping[str, Node],
    memory: Memory,
    bars: Mapping[str, Backoff],
    config: Config,
    now: float,
) -> Iterable[_Failure]:
    """Machines that did not join in time, unless as many of the same batch did: those are isolated faults."""
    gpus = bool(group.allocatable.get(GPU))
    up, late = [], []
    for instance in state.instances:
        node = nodes.get(instance.id)
        if instance.leaving or instance.warm:
            continue
        if node is not None and node.ready and (not gpus or node.allocatable.get(GPU)):
            up.append(instance)
        elif (since := memory.boots.get(instance.id)) is not None and now - since >= config.boot_timeout:
            late.append((since + config.boot_timeout, instance))
    known = bars.get(group.name)
    fresh = [each for each in late if known is None or each[0] > known.last]
    if not fresh:
        return ()
    began = min(instance.launched or when - config.boot_timeout for when, instance in fresh)
    if sum((each.launched or 0.0) >= began - _PEERS for each in up) >= len(fresh):
        return ()
    names = ", ".join(instance.id for _, instance in fresh[:3]) + (" …" if len(fresh) > 3 else "")
    text = f"{names} did not join the cluster within {config.boot_timeout // 60} min"
    return (_Failure(max(when for when, _ in fresh), BOOT, text),)


def _silent(
    group: Group,
    state: GroupState,
    memory: Memory,
    short: dict[str, float],
    config: Config,
    now: float,
) -> Iterable[_Failure]:
    """A requested size without launches and without failures; `short` is updated."""
    missing = state.desired - present_units(state)
    if missing <= 0 or state.deleting:
        short.pop(group.name, None)
        return ()
    began = short.setdefault(group.name, now)
    resize = memory.resizes.get(group.name)
    moved = max(
        began,
        resize.at if resize is not None else began,
        max((each.launched or 0.0 for each in state.instances), default=0.0),
    )
    if now - moved < config.boot_timeout:
        return ()
    return (_Failure(now, SILENCE, f"{missing} did not come within {config.boot_timeout // 60} min"),)


def _barred_by(
    failure: _Failure, group: Group, bars: Mapping[str, Backoff], config: Config
) -> Mapping[str, Backoff]:
    """The resulting back-off, if any."""
    scope = _class(failure.code).bars
    if scope == "nothing":
        return {}
    zones = {*group.zones}
    by_zone = scope == "zone" and failure.zone in zones and len(zones) > 1
    key = f"{group.name}/{failure.zone}" if by_zone else group.name
    return {key: backoff.after(bars.get(key), failure.code, failure.message, failure.when, config)}


def _notice(group: Group, failure: _Failure, bars: Mapping[str, Backoff], now: float) -> Notice:
    bar = backoff.barred(group, bars, now)
    found = _class(failure.code)
    where = failure.zone or group.site
    then = "" if bar is None else f"; tried again at {backoff.clock(bar.until)}"
    return Notice(
        kind="launch",
        about=f"{group.name}/{failure.code}",
        level="error" if found.for_people else "warning",
        text=f"{group.pool} in {where}: {found.words}{then}. {failure.message}",
    )


def _class(code: str) -> FailureClass:
    return CLASSES.get(code, CLASSES[OTHER])


def _short(activity: Activity) -> str:
    text = (activity.message or activity.description).removesuffix(" Launching EC2 instance failed.")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
