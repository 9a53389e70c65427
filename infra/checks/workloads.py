"""Which GPUs workloads may use, and how many are guaranteed to each group (WORK)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.catalogue import gpus
from infra.checks.facts import Facts
from infra.checks.phrases import listed
from infra.checks.registry import Finding, check
from infra.errors import Level
from infra.schema.addons import is_on

_OLDEST_FIRST: Final = ("old", "standard", "new")
_MOST_FLAVORS: Final = 64
"""Maximum flavors of a resource group (Kueue, ``ClusterQueue``)."""


def _gpus(facts: Facts) -> Iterator[tuple[str, int]]:
    """Every GPU model, and the maximum number of its GPUs."""
    for node in facts.nodes:
        if node.node.gpus is not None:
            yield node.node.gpus.model, node.node.gpus.count
    for group in facts.groups:
        has = [typed.type.gpus for typed in group.machines.with_gpus if typed.type.gpus]
        if has:
            yield has[0].model, min(each.count for each in has) * group.nodes


@check("WORK001", Level.ERROR, "A class of work whose oldest GPUs are newer than its newest.")
def no_gpus_left(facts: Facts) -> Iterator[Finding]:
    for name, each in facts.spec.kubernetes.priority_classes.items():
        newest, oldest = each.gpu_class or "new", each.at_least or "old"
        if _OLDEST_FIRST.index(oldest) > _OLDEST_FIRST.index(newest):
            path = ("kubernetes", "priority_classes", name, "at_least")
            message = f"no GPU is at least {oldest} and at most {newest}"
            yield Finding(path, message, f"lower it to {newest}, or raise gpu_class")


@check("WORK002", Level.WARNING, "A class of work is given GPUs that the spec does not have.")
def missing_gpus(facts: Facts) -> Iterator[Finding]:
    there = {gpu.gpu_class for model, count in _gpus(facts) if count and (gpu := gpus.find(model))}
    for name, each in facts.spec.kubernetes.priority_classes.items():
        newest = _OLDEST_FIRST.index(each.gpu_class or "new")
        oldest = _OLDEST_FIRST.index(each.at_least or "old")
        given = _OLDEST_FIRST[oldest : newest + 1]
        if there and given and not there & {*given}:
            path = ("kubernetes", "priority_classes", name, "at_least" if each.at_least else "gpu_class")
            message = (
                f"its work is given {listed(given)} GPUs, and there are only {listed(sorted(there))} ones"
            )
            yield Finding(path, message, "take it out, or its work with a use for GPUs waits for ever")


@check("WORK003", Level.WARNING, "Groups are guaranteed more GPUs than there are.")
def promised_twice(facts: Facts) -> Iterator[Finding]:
    quotas = {name: each.gpu_quota for name, each in facts.spec.access.groups.items() if each.gpu_quota}
    promised, there = sum(quotas.values()), sum(count for _, count in _gpus(facts))
    if promised > there:
        path = ("access", "groups", [*quotas][-1], "gpu_quota")
        message = f"{listed(quotas)} are sure of {promised} GPUs, and there are at most {there}"
        yield Finding(path, message, "lower it, or raise a pool's max")


@check("WORK004", Level.ERROR, "More kinds of machines than queues can tell apart.", waivable=False)
def many_kinds(facts: Facts) -> Iterator[Finding]:
    if not is_on(facts.spec, "kueue"):
        return
    pools = {group.machines.name for group in facts.groups if group.nodes}
    racks = {node.node.gpus.model if node.node.gpus else "" for node in facts.nodes}
    kinds = len(pools) + len(racks)
    if kinds > _MOST_FLAVORS:
        message = f"{kinds} pools and models of GPUs; Kueue tells {_MOST_FLAVORS} apart"
        yield Finding(
            ("pools",), message, "make one pool of several whose machines are alike, or turn kueue off"
        )


@check("WORK005", Level.ERROR, "A limit of each user's GPUs that no queue enforces.", waivable=False)
def limits_without_queues(facts: Facts) -> Iterator[Finding]:
    for name, group in facts.spec.access.groups.items():
        path = ("access", "groups", name, "gpu_limit_per_user")
        if group.gpu_limit_per_user is None:
            continue
        if not is_on(facts.spec, "kueue"):
            yield Finding(path, "kueue, which enforces it, is off", "turn kueue on, or remove the limit")
        members = sum(name in user.groups for user in facts.spec.access.users.values())
        if members >= _MOST_FLAVORS:
            message = (
                f"group {name} has {members} users; Kueue limits at most {_MOST_FLAVORS - 1} of one queue"
            )
            yield Finding(path, message, "split the group, or remove the limit")
