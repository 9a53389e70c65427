"""Add-ons of the cluster (ADD)."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalogue import addons
from infra.catalogue.addons import AddOn
from infra.checks.facts import Facts
from infra.checks.phrases import meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level, Path
from infra.schema import kubernetes as written
from infra.schema.addons import EFA, INGRESS, is_on, page_domain, split_path


def _stated(facts: Facts) -> Iterator[tuple[Path, written.AddOn, AddOn]]:
    """Add-ons in the spec that exist."""
    for name, each in facts.spec.kubernetes.addons.items():
        known = addons.find(name)
        if known is not None:
            yield ("kubernetes", "addons", name), each, known


@check("ADD001", Level.ERROR, "An add-on that does not exist.")
def known_addon(facts: Facts) -> Iterator[Finding]:
    for name in facts.spec.kubernetes.addons:
        if addons.find(name) is None:
            hint = meant_one_of(name, addons.names())
            yield Finding(("kubernetes", "addons", name), f"add-on {name} not found", hint)


@check("ADD002", Level.ERROR, "An add-on that another needs is off.")
def needed(facts: Facts) -> Iterator[Finding]:
    for name in addons.names():
        known = addons.find(name)
        if known is None or not is_on(facts.spec, name):
            continue
        for other in known.needs:
            if not is_on(facts.spec, other):
                message = f"{name} needs {other}, which is off"
                yield Finding(
                    ("kubernetes", "addons", other, "enabled"), message, f"turn {other} on, or {name} off too"
                )


@check("ADD003", Level.WARNING, "Another version of an add-on than the tested one.")
def other_version(facts: Facts) -> Iterator[Finding]:
    for path, each, known in _stated(facts):
        tested = addons.tested(known)
        if each.version is not None and known.part_of is None and each.version != tested:
            message = f"{known.name} is tested in {tested}, and not in {each.version}"
            yield Finding((*path, "version"), message, "take it out, or waive this")


@check("ADD004", Level.ERROR, "A version of an add-on that comes with another.")
def version_of_part(facts: Facts) -> Iterator[Finding]:
    for path, each, known in _stated(facts):
        if each.version is not None and known.part_of is not None:
            message = f"{known.name} comes with the chart of {known.part_of}, in that one's version"
            yield Finding((*path, "version"), message, f"set the version of {known.part_of}")


@check("ADD005", Level.ERROR, "Values for an add-on that is not installed from a Helm chart.")
def no_chart(facts: Facts) -> Iterator[Finding]:
    for path, each, known in _stated(facts):
        if each.values and known.chart is None and known.part_of is None:
            message = f"{known.name} is not a Helm chart: nothing reads values"
            yield Finding((*path, "values"), message, "take them out")


@check("ADD006", Level.ERROR, "A value's path that has no place in a chart's values.")
def value_path(facts: Facts) -> Iterator[Finding]:
    for path, each, known in _stated(facts):
        if known.chart is None and known.part_of is None:
            continue
        split = {key: split_path(key) for key in each.values}
        for key, parts in split.items():
            at = (*path, "values", key)
            if not all(parts):
                yield Finding(
                    at, f"{key!r} has an empty part", "as in grafana.persistence.size; \\. is a dot"
                )
                continue
            above = [other for other, them in split.items() if them == parts[: len(them)] and other != key]
            if above:
                message = f"{above[0]} is a value of its own: nothing can stand below it"
                yield Finding(at, message, "keep one of the two")


@check("ADD007", Level.ERROR, "Internal pages in a domain that is not the private zone's.")
def pages_outside(facts: Facts) -> Iterator[Finding]:
    zone = facts.spec.dns.zone or facts.spec.domain
    domain = page_domain(facts.spec)
    if not is_on(facts.spec, INGRESS) or not facts.places:
        return
    if domain != zone and not domain.endswith(f".{zone}"):
        message = f"names in {domain} can't be in the private zone {zone}"
        yield Finding(("access", "internal_domain"), message, f"take {zone}, or a name below it")


@check("ADD009", Level.ERROR, "A secret's value where its name belongs.", waivable=False)
def alert_secrets(facts: Facts) -> Iterator[Finding]:
    for field, text in _receivers(facts):
        if "://" in text or text.startswith(("xoxb-", "xoxp-")):
            message = "this is the secret itself: anyone who reads this file may write there"
            hint = "name it here, and store it with `invoke cluster.alert-secret`"
            yield Finding(("kubernetes", "alerts", field), message, hint)


@check("ADD010", Level.ERROR, "Alerts that nothing sends.")
def alerts_unsent(facts: Facts) -> Iterator[Finding]:
    if not is_on(facts.spec, "prometheus"):
        for field, _ in _receivers(facts):
            message = "the add-on prometheus is off, of which Alertmanager is a part"
            yield Finding(("kubernetes", "alerts", field), message, "turn it on, or take this out")


@check("ADD011", Level.ERROR, "Two receivers of alerts have the same secret.", waivable=False)
def alert_secrets_shared(facts: Facts) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for field, name in _receivers(facts):
        other = first.setdefault(name, field)
        if other != field:
            message = f"{other} already uses the secret {name}, and each receiver needs its own"
            yield Finding(("kubernetes", "alerts", field), message, "give this one another name")


def _receivers(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from facts.spec.kubernetes.alerts.model_dump(exclude_none=True).items()


@check("ADD008", Level.ERROR, "Elastic Fabric Adapters that nothing offers to pods.")
def adapters_unoffered(facts: Facts) -> Iterator[Finding]:
    if is_on(facts.spec, EFA):
        return
    for one in facts.machines:
        if one.pool.efa:
            message = (
                f"{EFA} is off: pods get none of the adapters, and no job that asks for them ever starts"
            )
            yield Finding(one.at("efa"), message, f"turn {EFA} on, or drop 'efa'")
