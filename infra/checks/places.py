"""Sites and regions: what exists, and which one leads."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalogue import regions
from infra.checks.registry import Finding, check
from infra.errors import Level, dotted
from infra.spec import Spec
from infra.spec.sites import AwsSite


def aws_sites(spec: Spec) -> Iterator[tuple[str, AwsSite, str]]:
    """Name, site and AWS region of each AWS site."""
    for name, site in spec.sites.items():
        if isinstance(site, AwsSite):
            yield name, site, site.region or name


@check("SITE001", Level.ERROR, "More than one region is primary.")
def one_primary(spec: Spec) -> Iterator[Finding]:
    primaries = [name for name, site, _ in aws_sites(spec) if site.primary]
    for name in primaries[1:]:
        first = dotted(("sites", primaries[0]))
        yield Finding(("sites", name, "primary"), f"{first} is primary already; a cluster has one")


@check("SITE002", Level.ERROR, "Of several regions none is primary.")
def some_primary(spec: Spec) -> Iterator[Finding]:
    found = list(aws_sites(spec))
    if len(found) > 1 and not any(site.primary for _, site, _ in found):
        names = ", ".join(name for name, _, _ in found)
        yield Finding(("sites",), f"none of the regions {names} is primary", "add 'primary: true' to one")


@check("SITE003", Level.ERROR, "An AWS region does not exist.")
def known_region(spec: Spec) -> Iterator[Finding]:
    for name, site, region in aws_sites(spec):
        if regions.find(region) is None:
            near = regions.suggest_region(region)
            path = ("sites", name, "region") if site.region else ("sites", name)
            yield Finding(path, f"{region} is no AWS region", f"did you mean {near}?" if near else "")


@check("SITE004", Level.ERROR, "A zone is not in its region.")
def known_zone(spec: Spec) -> Iterator[Finding]:
    for name, site, region in aws_sites(spec):
        known = regions.find(region)
        for index, zone in enumerate(site.zones or ()):
            if known is not None and zone not in known.zones:
                near = regions.suggest_zone(region, zone)
                hint = f"did you mean {near}?" if near else f"it has {', '.join(known.zones)}"
                yield Finding(("sites", name, "zones", index), f"{zone} is no zone of {region}", hint)
