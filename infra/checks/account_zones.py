"""Compares the zones in the spec with those of an account, since zones differ between accounts.

Not in the table of checks: the data is from AWS (`infra.drive.account_zones`), in ``invoke doctor`` and
before the first plan of an environment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from infra.catalogue.regions import WITHOUT_NAT_GATEWAYS, is_zone_id
from infra.checks.phrases import listed
from infra.checks.registry import Finding
from infra.checks.sites import no_nat_gateway
from infra.errors import Level, Path, Position, Problem, dotted
from infra.model import Cluster
from infra.model.machines import Instance, NodePool
from infra.model.places import Region
from infra.schema import Spec
from infra.schema.sites import AwsSite

NO_ZONE: Final = "SITE034"
NO_NAT: Final = "SITE040"
NO_OFFER: Final = "POOL049"
SOME_OFFER: Final = "POOL050"
MACHINE: Final = "ACC029"


def instance_types(cluster: Cluster) -> dict[str, set[str]]:
    """AWS region → the instance types that the cluster may run there; empty if it runs none."""
    types: dict[str, set[str]] = {region.region: set() for region in cluster.regions}
    regions = {region.name: region.region for region in cluster.regions}
    for pool in cluster.pools:
        for group in pool.groups:
            types[regions[group.site]] |= {weighted.name for weighted in pool.instance_types}
    for machine in _machines(cluster):
        types[regions[machine.site]].add(machine.instance_type)
    return types


def problems(
    spec: Spec,
    cluster: Cluster,
    zones: Mapping[str, Collection[str]],
    offers: Mapping[str, Mapping[str, Collection[str]]],
    position_of: Callable[[Path], Position | None],
    ids: Mapping[str, str] | None = None,
) -> tuple[Problem, ...]:
    """All differences from the account, in the order of the file.

    ``zones``: AWS region → the account's zones, by name and by id. ``offers``: AWS region → instance type →
    the zones that offer it, likewise. Regions that could not be queried are in neither, and are not checked.
    ``ids``: a zone's name → its id in this account.
    """
    findings = [
        *_missing_zones(spec, cluster, zones),
        *_nat_gateways(spec, cluster, ids or {}),
        *_pools(spec, cluster, zones, offers),
        *_named_machines(cluster, zones, offers),
    ]
    found = [
        Problem(
            code,
            dotted(finding.path),
            finding.message,
            Level.WARNING if code == SOME_OFFER else Level.ERROR,
            position_of(finding.path),
            finding.hint,
        )
        for code, finding in findings
    ]
    return tuple(sorted(found, key=lambda each: (each.position or Position("", 0), each.code, each.path)))


def _missing_zones(
    spec: Spec, cluster: Cluster, zones: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, Finding]]:
    for region in cluster.regions:
        has = zones.get(region.region)
        site = spec.sites[region.name]
        assert isinstance(site, AwsSite)
        for zone in region.zones if has is not None else ():
            if has is not None and zone not in has:
                there = listed(_alike(has, zone), most=8) or "none"
                message = f"the account has no zone {zone}"
                hint = f"its zones in {region.region} are {there}"
                path: Path = ("sites", region.name)
                if site.zones is not None:
                    path = (*path, "zones", site.zones.index(zone))
                else:
                    message += f", which {region.name} uses by default"
                    hint += "; name those to use with 'zones:'"
                yield NO_ZONE, Finding(path, message, hint)


def _nat_gateways(spec: Spec, cluster: Cluster, ids: Mapping[str, str]) -> Iterator[tuple[str, Finding]]:
    """NAT gateways in zones in which AWS cannot create one. Zones that the spec names by id are covered by
    its checks."""
    for region in cluster.regions:
        for zone in sorted(set(region.nat.values())):
            if ids.get(zone) in WITHOUT_NAT_GATEWAYS:
                site = spec.sites[region.name]
                assert isinstance(site, AwsSite)
                path: Path = ("sites", region.name)
                if site.zones is not None:
                    path = (*path, "zones", site.zones.index(zone))
                message, hint = no_nat_gateway(f"{zone}, which is {ids[zone]} in this account")
                yield NO_NAT, Finding(path, message, hint)


def _pools(
    spec: Spec,
    cluster: Cluster,
    zones: Mapping[str, Collection[str]],
    offers: Mapping[str, Mapping[str, Collection[str]]],
) -> Iterator[tuple[str, Finding]]:
    regions = {region.name: region for region in cluster.regions}
    for pool in cluster.pools:
        for group in pool.groups:
            region = regions[group.site]
            used = _present(group.zones, region, zones)
            if group.max and used and region.region in offers:
                bounds = spec.pools[pool.name].regions[group.site]
                path: Path = ("pools", pool.name, "regions", group.site)
                if bounds.zones is not None:
                    path = (*path, "zones")
                yield from _group(pool, path, region, used, offers[region.region])


def _group(
    pool: NodePool,
    path: Path,
    region: Region,
    used: tuple[str, ...],
    offers: Mapping[str, Collection[str]],
) -> Iterator[tuple[str, Finding]]:
    """One Auto Scaling group. It launches in any zone that it can: it fails only if no zone has any of its
    types."""
    names = [weighted.name for weighted in pool.instance_types]
    absent = [name for name in names if not set(used) & set(offers.get(name, ()))]
    code = NO_OFFER if len(absent) == len(names) else SOME_OFFER
    for name in absent:
        message = f"the account is not offered {name} in {listed(used, most=8)}"
        yield code, Finding(path, message, _offered_in(name, region, used[0], offers))
    if code == NO_OFFER:
        return
    for zone in used:
        if not any(zone in offers.get(name, ()) for name in names):
            message = (
                f"the account is not offered {listed(names)} in {zone}: {pool.name} cannot use that zone"
            )
            elsewhere = _alike({place for name in names for place in offers.get(name, ())}, zone)
            hint = f"zones of {region.region} that offer one of them: {listed(elsewhere, most=8)}"
            yield SOME_OFFER, Finding(path, message, hint)


def _named_machines(
    cluster: Cluster,
    zones: Mapping[str, Collection[str]],
    offers: Mapping[str, Mapping[str, Collection[str]]],
) -> Iterator[tuple[str, Finding]]:
    regions = {region.name: region for region in cluster.regions}
    refused: defaultdict[tuple[Path, str, str, str], list[str]] = defaultdict(list)
    for machine in _machines(cluster):
        region = regions[machine.site]
        here = offers.get(region.region)
        if (
            here is not None
            and _present((machine.zone,), region, zones)
            and machine.zone not in here.get(machine.instance_type, ())
        ):
            key = _described(machine), machine.instance_type, machine.site, machine.zone
            refused[key].append(machine.hostname)
    for (path, kind, site, zone), hostnames in refused.items():
        region = regions[site]
        message = f"the account is not offered {kind} in {zone}, the zone of {listed(hostnames)}"
        yield MACHINE, Finding(path, message, _offered_in(kind, region, zone, offers[region.region]))


def _machines(cluster: Cluster) -> tuple[Instance, ...]:
    """The named instances."""
    masters = cluster.control_plane.masters if cluster.control_plane is not None else ()
    return (*masters, *cluster.ssh_nodes, *cluster.access_gateways)


def _described(machine: Instance) -> Path:
    """The path of a machine's instance type in the spec."""
    if machine.role == "control-plane":
        return ("kubernetes", "control_plane", "instance_type")
    if machine.role == "access-gateway":
        return ("access", "vpn", "instance_type")
    return ("access", "ssh_nodes", machine.hostname.rpartition("-")[0], "instance_type")


def _present(used: tuple[str, ...], region: Region, zones: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The zones without those that the account lacks, which are reported for their site."""
    has = zones.get(region.region)
    return used if has is None else tuple(zone for zone in used if zone in has)


def _alike(zones: Iterable[str], like: str) -> list[str]:
    """The zones in the notation of ``like``: by name or by id."""
    return sorted(zone for zone in zones if is_zone_id(zone) == is_zone_id(like))


def _offered_in(kind: str, region: Region, like: str, offers: Mapping[str, Collection[str]]) -> str:
    there = _alike(offers.get(kind, ()), like)
    if not there:
        return (
            f"{region.region} has it in no zone of this account: take another type, or leave the region out"
        )
    return (
        f"zones of {region.region} that offer it: {listed(there, most=8)}; use one of those, or another type"
    )
