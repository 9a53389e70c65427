"""Verdicts on pending pods, and their obstacles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from infra.autoscaler.decision import Outcome, Verdict
from infra.autoscaler.observed.snapshot import DEVICES, PODS, Pod, Snapshot
from infra.autoscaler.placement.bin_packing import Packer
from infra.autoscaler.placement.blockers import Blockers
from infra.autoscaler.placement.demand import Item, Kind
from infra.autoscaler.placement.node_matrix import COMING, READY
from infra.autoscaler.placement.scale_up_plan import Plan, Result
from infra.autoscaler.reasons import Reason, Request
from infra.catalogue.labels import GPU_MODEL


def of_plan(found: Plan, snapshot: Snapshot, failed: Mapping[str, Reason]) -> tuple[Verdict, ...]:
    """The verdicts on all pending work, in the order of placement."""
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
    machines: Counter[str] = Counter()
    if outcome == "fits":
        where = sorted({name for name, _, _ in places})
    else:
        machines.update(groups[group].group.name for _, group in {(name, at) for name, at, _ in places})
        where = sorted(machines)
    return Verdict(
        tuple(pod.uid for pod in pods),
        gang,
        count,
        outcome,
        tuple(where),
        tuple(machines[name] for name in where if name in machines),
        example=example or _example(pods),
    )


def _unplaced(packer: Packer, item: Item, pods: tuple[Pod, ...], obstacles: tuple[Reason, ...]) -> Verdict:
    kind = item.wanted[0].kind
    outcome: Outcome = "waits"
    reason = Reason("blocked", request=_request(packer, kind, len(pods)))
    if kind.lost is not None:
        reason, obstacles = kind.lost, ()
    elif not possible(packer, kind):
        outcome, reason = "never", _lacking(packer, kind) or reason
    elif item.low:
        reason, obstacles = replace(reason, code="low-priority"), ()
    return Verdict(
        tuple(pod.uid for pod in pods),
        None,
        len(pods),
        outcome,
        (),
        reason=reason,
        obstacles=obstacles,
        example=_example(pods),
    )


def _of_gang(found: Plan, result: Result, blockers: Blockers, failed: Mapping[str, Reason]) -> Verdict:
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
    ruled_out = never(packer, item)
    reason = ruled_out or _of_waiting(item, failed.get(item.key or ""))
    if ruled_out is None:
        reason = replace(reason, request=_request(packer, item.wanted[0].kind, item.least))
    return Verdict(
        tuple(pod.uid for pod in pods),
        item.key,
        item.count,
        "waits" if ruled_out is None else "never",
        (),
        reason=reason,
        obstacles=blockers.of_gang(item),
        example=example,
    )


def _of_waiting(item: Item, late: Reason | None) -> Reason:
    """Why a gang that could fit has no places."""
    if item.least > item.count:
        return Reason("incomplete")
    if late is not None:
        return late
    lost = next((each.kind.lost for each in item.wanted if each.kind.lost is not None), None)
    return lost or Reason("low-priority" if item.low else "blocked")


def name(item: Item) -> str:
    """The name of a gang, or of the first of some pods."""
    return item.key or _example(item.wanted[0].pods)


def broken(item: Item, why: str) -> Verdict:
    """The verdict on work that caused an error."""
    pods = tuple(pod for each in item.wanted for pod in each.pods)
    uids = tuple(pod.uid for pod in pods)
    reason = Reason("fault", what=why)
    return Verdict(uids, item.key, item.count, "waits", (), reason=reason, example=_example(pods))


_outcomes: tuple[Outcome, ...] = ("fits", "coming", "starting")


# --- what is in the way -------------------------------------------------------------------------------------


def possible(packer: Packer, kind: Kind) -> bool:
    """Whether any group or machine fits such a pod if it is empty."""
    return not kind.lost and (
        any(packer.groups[g].group.max > 0 for g in packer.choose.choice(kind).groups.tolist())
        or packer.choose.largest(kind) > 0
        or packer.choose.misfits.bars(kind)
    )


def never(packer: Packer, item: Item) -> Reason | None:
    """Why a gang can never fit, whatever else ends; None if it might."""
    for each in item.wanted:
        if each.kind.lost or packer.choose.misfits.bars(each.kind):
            return None
        if not possible(packer, each.kind):
            nowhere = Reason("blocked", request=_request(packer, each.kind, 1))
            return _lacking(packer, each.kind) or nowhere
    if len(item.wanted) == 1:
        across = item.gang is not None and item.gang.across
        most = packer.choose.most(item.wanted[0].kind, across)
        if most < item.least:
            return Reason("places" if across else "site-places", requested=item.least, limit=most)
    return None


_EVERY: Final = frozenset({"cpu", "memory", "ephemeral-storage", PODS, DEVICES})
"""Resources that every machine has; and resource claims, of which machines report no amounts."""


def unknown(packer: Packer, item: Item) -> Reason | None:
    """A requested resource that no machine in the cluster has, whatever its labels and taints; else None.

    Unlike `never`, this holds for every flavor that Kueue might assign. Resources that a node's plugin does
    not report for a while are taken from its group's configuration.
    """
    for each in item.wanted:
        short = tuple(
            Reason("size", what=name, requested=amount, limit=0)
            for name, amount in each.kind.shape.requests
            if name not in _EVERY and amount and not any(have.get(name) for have in packer.offered)
        )
        if short:
            return Reason("unknown-resources", short=short)
    return None


def _lacking(packer: Packer, kind: Kind) -> Reason | None:
    """The insufficient resources without which a machine would fit; None if that is not the reason."""
    if any(name == DEVICES for name, _ in kind.shape.requests):
        return None
    matrix = packer.matrix
    request, columns = matrix.request(kind)
    groups = {*matrix.template_group[matrix.fits_templates(kind)].tolist()}
    there = [matrix.offers[place] for place in sorted(groups) if packer.groups[place].group.max > 0]
    rows = matrix.fits(kind)[: matrix.whole.shape[1]]
    there += [*matrix.whole[:, rows].T]
    short = [tuple(column for column in columns if have[column] < request[column]) for have in there]
    fewest = min(short, key=len, default=())
    if not fewest:
        return None
    nearest = [have for have, lacks in zip(there, short, strict=True) if lacks == fewest]
    sizes = (
        Reason(
            "size",
            what=matrix.resources[column],
            requested=int(request[column]),
            limit=max(int(have[column]) for have in nearest),
        )
        for column in fewest
    )
    return Reason("resources", short=tuple(sizes))


def _request(packer: Packer, kind: Kind, count: int) -> Request:
    model = dict(kind.shape.selector).get(GPU_MODEL, "") if kind.gpus else ""
    if kind.gpus and not model:
        models = {
            packer.groups[group].group.labels.get(GPU_MODEL, "")
            for group in packer.choose.choice(kind).groups.tolist()
        }
        model = models.pop() if len(models) == 1 else ""
    return Request(count, kind.shape.requests, model)


def _example(pods: tuple[Pod, ...]) -> str:
    return f"{pods[0].namespace}/{pods[0].name}" if pods else ""
