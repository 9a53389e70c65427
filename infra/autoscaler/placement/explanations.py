"""Verdicts in words: what becomes of waiting pods, and what is in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from infra.autoscaler.decision import Obstacle, Verdict
from infra.autoscaler.observed.node_affinity import readable
from infra.autoscaler.observed.snapshot import DEVICES, GPU, PODS, Pod, Snapshot
from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.blockers import Blockers, clock, passes
from infra.autoscaler.placement.demand import Item, Kind
from infra.autoscaler.placement.node_matrix import COMING, READY
from infra.autoscaler.placement.scale_up_plan import Plan, Result
from infra.catalogue.labels import GPU_MODEL

Outcome = Literal["fits", "coming", "starting", "waits", "never"]


def verdicts(found: Plan, snapshot: Snapshot, failed: Mapping[str, str]) -> tuple[Verdict, ...]:
    """For all that waits, in the order in which it was placed."""
    explained: list[Verdict] = []
    blockers = Blockers(found.packer, snapshot)
    for result in found.results:
        if result.item.key is not None:
            explained.append(_of_gang(found, result, blockers, failed))
        else:
            explained.extend(_of_pods(found, result, blockers))
    return tuple(explained)


def _of_pods(found: Plan, result: Result, blockers: Blockers) -> Iterable[Verdict]:
    kind = result.item.wanted[0].kind
    pods = result.item.wanted[0].pods
    by: dict[Outcome, list[tuple[str, int, int]]] = {}
    for put in result.puts:
        for row, count in zip(put.rows.tolist(), put.counts.tolist(), strict=True):
            tier, name = found.what(row)
            by.setdefault(_outcome(tier), []).append((name, int(found.packer.matrix.group[row]), count))
    at = 0
    for outcome in ("fits", "coming", "starting"):
        places = by.get(outcome)
        if places:
            count = sum(number for _, _, number in places)
            yield _placed(found, outcome, pods[at : at + count], None, count, places)
            at += count
    if at < len(pods):
        yield _unplaced(found.packer, result.item, pods[at:], blockers.of(kind))


def _outcome(tier: int) -> Outcome:
    if tier <= READY:
        return "fits"
    return "coming" if tier <= COMING else "starting"


def _placed(
    found: Plan,
    outcome: Outcome,
    pods: tuple[Pod, ...],
    gang: str | None,
    count: int,
    places: list[tuple[str, int, int]],
    example: str = "",
) -> Verdict:
    groups = found.packer.groups
    them = "it" if count == 1 else "them"
    if outcome == "fits":
        where = tuple(sorted({name for name, _, _ in places}))
        text = f"{_some(where)} {'has' if len(where) == 1 else 'have'} room for {them}"
    else:
        machines = Counter(groups[group].group.name for _, group in {(name, at) for name, at, _ in places})
        where = tuple(sorted(machines))
        told = " and ".join(
            f"{number} machine{'s' if number > 1 else ''} of {name}"
            for name, number in sorted(machines.items())
        )
        one = machines.total() == 1
        if outcome == "coming":
            text = f"{told} {'is' if one else 'are'} on the way, with room for {them}"
        else:
            text = f"{told} start{'s' if one else ''} now"
    if gang is not None:
        text += f", for all {count} at once"
    return Verdict(
        tuple(pod.uid for pod in pods), gang, count, outcome, where, text, example=example or _example(pods)
    )


_LOW: Final = "its priority is too low to start machines for (autoscaler.min_priority)"


def _unplaced(packer: Packer, item: Item, pods: tuple[Pod, ...], obstacles: tuple[Obstacle, ...]) -> Verdict:
    kind = item.wanted[0].kind
    outcome: Outcome = "waits"
    asked = _asked(packer, kind, len(pods))
    if kind.lost:
        text = f"waits: {kind.lost}"
        obstacles = ()
    elif not possible(packer, kind):
        outcome = "never"
        why = _lacking(packer, kind) or _summary(packer, obstacles, temporary=False) or _no_groups(kind)
        text = f"fits nowhere as it stands: {why}"
    elif item.low:
        text, obstacles = f"waits for {asked} among what is free: {_LOW}", ()
    else:
        text = f"waits for {asked}: {_summary(packer, obstacles, temporary=True) or 'no machine has room'}"
    return Verdict(
        tuple(pod.uid for pod in pods), None, len(pods), outcome, (), text, obstacles, _example(pods)
    )


def _of_gang(found: Plan, result: Result, blockers: Blockers, failed: Mapping[str, str]) -> Verdict:
    item, packer = result.item, found.packer
    pods = tuple(pod for each in item.wanted for pod in each.pods)
    example = _example(pods) or (f"{item.gang.namespace}/{item.gang.name}" if item.gang else "")
    if result.count:
        places = [
            (name, int(packer.matrix.group[row]), tier)
            for put in result.puts
            for row in put.rows.tolist()
            for tier, name in (found.what(row),)
        ]
        last = max(_outcomes.index(_outcome(tier)) for _, _, tier in places)
        outcome: Outcome = _outcomes[last]
        shown = [each for each in places if _outcome(each[2]) == outcome]
        return _placed(found, outcome, pods, item.key, result.count, shown, example)
    never_text = never(packer, item)
    why = failed.get(item.key or "")
    obstacles = blockers.of_gang(item)
    kind = item.wanted[0].kind
    asked = _asked(packer, kind, item.least)
    if never_text:
        text = f"never fits as it stands: {never_text}"
    elif item.least > item.count:
        text = f"waits until all {item.least} of its pods are there; {item.count} are"
    elif why:
        at = f"; tries again at {clock(item.cooling)}" if item.cooling is not None else ""
        text = f"waits for {asked} together: {why}{at}"
    else:
        lost = next((each.kind.lost for each in item.wanted if each.kind.lost), "")
        reason = (
            lost
            or (item.low and _LOW)
            or _summary(packer, obstacles, temporary=True)
            or "no site has room for all of it"
        )
        text = f"waits for {asked} together: {reason}"
    return Verdict(
        tuple(pod.uid for pod in pods),
        item.key,
        item.count,
        "never" if never_text else "waits",
        (),
        text,
        obstacles,
        example,
    )


def name(item: Item) -> str:
    """Of a gang, or of the first of some pods."""
    return item.key or _example(item.wanted[0].pods)


def broken(item: Item, why: str) -> Verdict:
    """Of work that we failed at."""
    pods = tuple(pod for each in item.wanted for pod in each.pods)
    text = f"waits: the autoscaler failed at it ({why}); its log says more"
    uids = tuple(pod.uid for pod in pods)
    return Verdict(uids, item.key, item.count, "waits", (), text, example=_example(pods))


_outcomes: tuple[Outcome, ...] = ("fits", "coming", "starting")


# --- what is in the way -------------------------------------------------------------------------------------


def possible(packer: Packer, kind: Kind) -> bool:
    """Whether there is a group or a machine on which such a pod could be, were it empty."""
    return not kind.lost and (
        any(packer.groups[g].group.max > 0 for g in packer.choose.choice(kind).groups.tolist())
        or packer.choose.largest(kind) > 0
        or packer.choose.misfits.bars(kind)
    )


def never(packer: Packer, item: Item) -> str:
    """Why a gang can't have its places, whatever ends; empty where it might."""
    for each in item.wanted:
        if each.kind.lost or packer.choose.misfits.bars(each.kind):
            return ""
        if not possible(packer, each.kind):
            return _lacking(packer, each.kind) or (
                f"no group's machines and none of ours have {_asked(packer, each.kind, 1)}"
            )
    if len(item.wanted) == 1:
        most = packer.choose.most(item.wanted[0].kind, item.gang is not None and item.gang.across)
        if most < item.least:
            where = "all sites together have" if item.gang is not None and item.gang.across else "no site has"
            more = f" more than {most}" if where == "no site has" else f" {most}"
            return f"needs {item.least} places at once, and {where} ever{more}"
    return ""


_EVERY: Final = frozenset({"cpu", "memory", "ephemeral-storage", PODS, DEVICES})
"""What each machine has; and claims, of which no machine says how many it has."""


def unknown(packer: Packer, item: Item) -> str:
    """What it asks for that nothing of the cluster has any of, whatever its labels and taints; else empty.

    Other than `never`, this holds for all flavours that Kueue might give it. What a node's plugin does not
    report for a while, its group's configuration has.
    """
    for each in item.wanted:
        told = [
            readable(name, amount)
            for name, amount in each.kind.shape.requests
            if name not in _EVERY and amount and not any(have.get(name) for have in packer.offered)
        ]
        if told:
            return f"nothing in this cluster has {' and '.join(told)}"
    return ""


def _lacking(packer: Packer, kind: Kind) -> str:
    """The resources without which there would be a machine for it; empty where it is not for them."""
    if any(name == DEVICES for name, _ in kind.shape.requests):
        return ""
    matrix = packer.matrix
    request, columns = matrix.request(kind)
    groups = {*matrix.template_group[matrix.fits_templates(kind)].tolist()}
    there = [matrix.offers[place] for place in sorted(groups) if packer.groups[place].group.max > 0]
    rows = matrix.fits(kind)[: matrix.whole.shape[1]]
    there += [*matrix.whole[:, rows].T]
    short = [tuple(column for column in columns if have[column] < request[column]) for have in there]
    fewest = min(short, key=len, default=())
    if not fewest:
        return ""
    told = []
    for column in fewest:
        most = max(int(have[column]) for have, lacks in zip(there, short, strict=True) if lacks == fewest)
        what = readable(matrix.resources[column], int(request[column]))
        told.append(what + (f" (at most {readable(matrix.resources[column], most)})" if most > 0 else ""))
    return f"no machine that it may be on has {' and '.join(told)}"


def _summary(packer: Packer, obstacles: tuple[Obstacle, ...], *, temporary: bool) -> str:
    """The reasons in one line: those that pass first; which group is tried next, and when."""
    sites = {view.group.name: view.group.site for view in packer.groups}
    if temporary:
        lasting = {view.group.name: view for view in packer.groups}
        told = [each for each in obstacles if each.until is not None]
        told += [each for each in obstacles if each.until is None and passes(each) and each.group in lasting]
    else:
        told = list(obstacles)
    parts: dict[str, list[str]] = {}
    for each in told or obstacles:
        who = sites[each.group] if each.until is not None else each.group
        parts.setdefault(each.text, [])
        if who not in parts[each.text]:
            parts[each.text].append(who)
    lines = [f"{_some(tuple(names))} {text}" for text, names in list(parts.items())[:3]]
    more = len(parts) - 3
    if more > 0:
        lines.append(f"{more} other reasons")
    text = ", ".join(lines)
    soon = [each for each in told if each.until is not None]
    if temporary and soon:
        first = min(soon, key=lambda each: each.until or 0.0)
        text += f", next try {sites[first.group]} at {clock(first.until or 0.0)}"
    return text


def _no_groups(kind: Kind) -> str:
    return f"there is no group, and no machine has {_each(kind)}"


def _asked(packer: Packer, kind: Kind, count: int) -> str:
    """``8 x v100``, or what a pod asks for."""
    if kind.gpus:
        chosen = dict(kind.shape.selector).get(GPU_MODEL)
        if chosen is None:
            models = {
                packer.groups[group].group.labels.get(GPU_MODEL, "")
                for group in packer.choose.choice(kind).groups.tolist()
            }
            chosen = models.pop() if len(models) == 1 else ""
        return f"{count * kind.gpus} x {chosen or 'GPU'}"
    return f"{count} x {_each(kind)}" if count > 1 else _each(kind)


def _each(kind: Kind) -> str:
    told = [readable(name, amount) for name, amount in kind.shape.requests if name not in (PODS, GPU)]
    if kind.gpus:
        told.insert(0, readable(GPU, kind.gpus))
    return f"({', '.join(told)})" if told else "a place"


def _some(names: tuple[str, ...]) -> str:
    if len(names) <= 3:
        return " and ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def _example(pods: tuple[Pod, ...]) -> str:
    return f"{pods[0].namespace}/{pods[0].name}" if pods else ""
