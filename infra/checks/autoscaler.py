"""The autoscaler: limits that allow it to work (AUT)."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalogue import prices
from infra.checks.facts import Facts, Group
from infra.checks.phrases import meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level
from infra.schema.types import IMAGE_REFERENCE


@check("AUT001", Level.ERROR, "Spare nodes of a pool that does not exist.")
def spare_pool(facts: Facts) -> Iterator[Finding]:
    for name in facts.spec.autoscaler.spare:
        if name not in facts.spec.pools:
            path = ("autoscaler", "spare", name)
            yield Finding(path, f"pool {name} not found", meant_one_of(name, facts.spec.pools))


@check("AUT002", Level.ERROR, "More spare nodes than the pool may have, or a negative number.")
def spare_bounds(facts: Facts) -> Iterator[Finding]:
    for name, spare in facts.spec.autoscaler.spare.items():
        pool = facts.spec.pools.get(name)
        if pool is None:
            continue
        most = sum(bound.max for bound in pool.regions.values())
        if not 0 <= spare <= most:
            message = f"{spare} spare nodes; {name} may have 0 to {most} in all its regions"
            yield Finding(("autoscaler", "spare", name), message, "change it, or a max")


@check("AUT003", Level.ERROR, "The minimum back-off is longer than the maximum.")
def backoff(facts: Facts) -> Iterator[Finding]:
    scaler = facts.spec.autoscaler
    if scaler.backoff_min > scaler.backoff_max:
        message = f"{scaler.backoff_min} s is above backoff_max, {scaler.backoff_max} s"
        field = "backoff_min" if "backoff_min" in scaler.model_fields_set else "backoff_max"
        yield Finding(("autoscaler", field), message, "make the first the shorter one")


@check("AUT004", Level.WARNING, "A node counts as idle before the autoscaler has checked twice.")
def idle(facts: Facts) -> Iterator[Finding]:
    scaler = facts.spec.autoscaler
    if scaler.idle < 2 * scaler.interval:
        message = (
            f"idle after {scaler.idle} s, looked at every {scaler.interval} s: nodes end between two jobs"
        )
        field = "idle" if "idle" in scaler.model_fields_set else "interval"
        yield Finding(("autoscaler", field), message, "make idle two intervals or more")


@check("AUT005", Level.ERROR, "The pools' minimum alone costs more than the limit.")
def minimum_cost(facts: Facts) -> Iterator[Finding]:
    limit, least = facts.spec.autoscaler.max_hourly_cost, _minimum(facts)
    if limit is not None and least > limit:
        message = f"the nodes that always run cost about {least:.2f} USD an hour, the limit is {limit:g}"
        yield Finding(("autoscaler", "max_hourly_cost"), message, "raise it, or lower a pool's min")


@check("AUT006", Level.WARNING, "The limit on cost leaves no room for another node.")
def no_room(facts: Facts) -> Iterator[Finding]:
    limit, least = facts.spec.autoscaler.max_hourly_cost, _minimum(facts)
    growing = [
        (price, group)
        for group in facts.groups
        if group.bounds.max > group.bounds.min and (price := _price(group))
    ]
    if limit is None or least > limit or not growing:
        return
    price, group = min(growing, key=lambda one: one[0])
    if least + price > limit:
        beside = f" beside {least:.2f} for those that always run" if least else ""
        message = f"the cheapest node, of {group.machines.name}, costs about {price:.3g} USD an hour{beside}"
        yield Finding(("autoscaler", "max_hourly_cost"), message, f"{limit:g} is less: raise it")


def _minimum(facts: Facts) -> float:
    """USD per hour of the nodes that always run, as far as prices are known."""
    return sum(
        group.machines.nodes(group.bounds.min) * (_price(group) or 0.0)
        for group in facts.groups
        if group.bounds.min
    )


def _price(group: Group) -> float | None:
    """USD per hour of a group's cheapest node."""
    ask = prices.spot if group.machines.pool.market.kind == "spot" else prices.on_demand
    known = [ask(typed.type.name, group.place.region) for typed in group.machines.types]
    return min((price for price in known if price), default=None)


@check("AUT008", Level.ERROR, "An image without a version.")
def image(facts: Facts) -> Iterator[Finding]:
    text = facts.spec.autoscaler.image
    if text is None:
        return
    found = IMAGE_REFERENCE.fullmatch(text)
    if found and found["digest"] is None and found["tag"] in (None, "latest"):
        message = f"{text} is another image tomorrow, and another on each master"
        hint = "name a version or a digest, as registry.lab.example/causeway/autoscaler:1.0.0"
        yield Finding(("autoscaler", "image"), message, hint)
