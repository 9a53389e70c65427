"""Compares the account quotas in the spec with the maximum size of its pools (QUOTA)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import ceil

from infra.catalogue import quotas
from infra.catalogue.quotas import Market
from infra.checks.facts import Facts, Group, Place
from infra.checks.phrases import listed, meant, meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level
from infra.schema.sites import Nat


@check("QUOTA001", Level.ERROR, "Quotas of a region that is not an AWS site of the spec.")
def known_site(facts: Facts) -> Iterator[Finding]:
    for site in facts.spec.quotas:
        if site not in facts.places:
            message = f"{site} is not an AWS site of this spec"
            yield Finding(("quotas", site), message, meant_one_of(site, facts.places))


@check("QUOTA002", Level.ERROR, "A quota that does not exist, or does not count vCPUs.")
def known_quota(facts: Facts) -> Iterator[Finding]:
    for site, stated in facts.spec.quotas.items():
        for name in stated:
            found = quotas.find(name)
            if found is None:
                hint = meant(quotas.suggest(name))
                yield Finding(("quotas", site, name), f"quota {name} not found", hint)
            elif not found.vcpus:
                message = f"{name} does not count vCPUs of instances, which are what is held against it"
                yield Finding(("quotas", site, name), message, "take it out")


@check("QUOTA003", Level.ERROR, "A quota below zero.")
def negative(facts: Facts) -> Iterator[Finding]:
    for site, stated in facts.spec.quotas.items():
        for name, limit in stated.items():
            if limit < 0:
                yield Finding(("quotas", site, name), f"{limit} vCPUs", "0 is the least")


@check("QUOTA004", Level.ERROR, "What may run in a region passes a quota of the account.")
def passed(facts: Facts) -> Iterator[Finding]:
    wanted = may_run(facts)
    for site, stated in facts.spec.quotas.items():
        for name, limit in stated.items():
            owners: Mapping[str, int] = wanted.get((site, name), {})
            total = sum(owners.values())
            if total > limit >= 0:
                largest = sorted(owners, key=lambda owner: -owners[owner])
                shares = listed([f"{owner} {owners[owner]:,}" for owner in largest], most=4)
                message = f"up to {total:,} vCPUs may run in {site}, the quota is {limit:,}: {shares}"
                found = quotas.find(name)
                code = f" ({found.code})" if found else ""
                yield Finding(("quotas", site, name), message, f"lower a max, or ask AWS for more{code}")


@check("QUOTA005", Level.WARNING, "More elastic addresses in a region than AWS gives without asking.")
def elastic_addresses(facts: Facts) -> Iterator[Finding]:
    quota = quotas.known("elastic-ips")
    wanted: defaultdict[str, int] = defaultdict(int)
    for place in facts.places.values():
        wanted[place.name] += {Nat.NONE: 0, Nat.ONE: 1, Nat.ONE_PER_ZONE: len(place.zones)}[place.site.nat]
        wanted[place.name] += place.name in facts.vpn_sites
    primary = facts.primary.name if facts.primary else ""
    for node in facts.spec.access.ssh_nodes.values():
        wanted[node.site or primary] += node.count if node.public else 0
    # The quota is per region, which sites may share: reported for the site that uses most of it.
    regions: defaultdict[str, list[Place]] = defaultdict(list)
    for place in facts.places.values():
        regions[place.region].append(place)
    for region, places in regions.items():
        addresses = sum(wanted[place.name] for place in places)
        if addresses > quota.default:
            message = (
                f"NAT gateways, VPN servers and public SSH nodes take {addresses} elastic addresses in "
                f"{region}; an account has {quota.default} unless AWS raises it"
            )
            most = max(places, key=lambda place: wanted[place.name])
            yield Finding(most.at("nat"), message, f"ask AWS for more: {quota.named}")


def may_run(facts: Facts) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """(AWS site, quota) → owner → the maximum number of vCPUs that it may use."""
    wanted: defaultdict[tuple[str, str], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for group in facts.groups:
        for quota, vcpus in _most(group).items():
            wanted[group.place.name, quota][f"pool {group.machines.name}"] += vcpus
    for single in facts.singles:
        counted = quotas.quota_for(single.type_name, "on-demand")
        if single.type is not None and single.site is not None and counted is not None:
            wanted[single.site, counted.name][single.owner] += single.count * single.type.vcpus
    return wanted


def _most(group: Group) -> dict[str, int]:
    """Quota → the maximum number of vCPUs of a group, whichever types AWS selects."""
    market, units = group.machines.pool.market, group.bounds.max
    if market.kind == "capacity-block":
        return {}  # reserved capacity does not count against On-Demand quotas
    spot = 0
    if market.kind == "spot":
        spot = units
    elif market.kind == "mixed":
        above = max(units - market.base, 0)
        spot = above - ceil(above * market.on_demand_percent / 100)
    found: dict[str, int] = {}
    bought: tuple[tuple[Market, int], ...] = (("on-demand", units - spot), ("spot", spot))
    for kind, share in bought:
        for typed in group.machines.types if share else ():
            quota = quotas.quota_for(typed.type.name, kind)
            if quota is not None:
                vcpus = ceil(share / typed.weight) * typed.type.vcpus
                found[quota.name] = max(found.get(quota.name, 0), vcpus)
    return found
