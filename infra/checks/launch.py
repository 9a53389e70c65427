"""Purchase options, launch settings and disks of pools (POOL)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from infra.catalogue import instances, prices
from infra.checks.facts import Facts, Group, Machines, Typed
from infra.checks.phrases import listed
from infra.checks.registry import Finding, check
from infra.errors import Level, Path
from infra.schema.defaults import SPOT
from infra.schema.pools import Disk

_PRICE: Final = re.compile(r"\d+(\.\d{1,6})?")
_RESERVATION: Final = re.compile(r"cr-[0-9a-f]{8,17}")
_GROUP_ARN: Final = re.compile(r"arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:\d{12}:group/.+")


def _spot(one: Machines) -> bool:
    return one.pool.market.kind in SPOT


@check("POOL024", Level.WARNING, "A setting of a market that the pool does not buy on has no effect.")
def market_unused(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        market = one.pool.market
        all_fields = ("strategy", "max_price", "base", "on_demand_percent")
        idle = {"spot": ("base", "on_demand_percent"), "mixed": ()}
        for field in idle.get(market.kind, all_fields):
            if field in market.model_fields_set:
                message = f"{field} has no effect on a market of kind {market.kind}"
                yield Finding(one.at("market", field), message, "take it out, or say 'kind: mixed'")


@check("POOL025", Level.ERROR, "A type is requested on the spot market that AWS does not offer there.")
def spot_type(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for typed in one.types if _spot(one) else ():
            if not typed.type.spot:
                yield Finding(typed.path, f"AWS sells no {typed.type.name} as spot", "take 'on-demand'")


@check("POOL026", Level.ERROR, "The maximum price of a spot instance is not a price.", waivable=False)
def price_form(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        text = one.pool.market.max_price
        if _spot(one) and text is not None and (not _PRICE.fullmatch(text) or not float(text)):
            message = f"{text!r} is not a price in USD an hour"
            yield Finding(one.at("market", "max_price"), message, "write it as 0.35, or leave it out")


@check("POOL027", Level.WARNING, "A spot price above on demand, or below what spot usually costs.")
def price_range(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        text = group.machines.pool.market.max_price
        if not _spot(group.machines) or text is None or not _PRICE.fullmatch(text) or not float(text):
            continue
        names = [typed.type.name for typed in group.machines.types]
        dearest = max((prices.on_demand(name, group.place.region) or 0.0 for name in names), default=0.0)
        usual = [price for name in names if (price := prices.spot(name, group.place.region))]
        path = group.machines.at("market", "max_price")
        where = f"in {group.place.region}"
        if dearest and float(text) > dearest:
            message = f"{text} is above the on-demand price {where}, {dearest:g}"
            yield Finding(path, message, "leave it out: that price is the limit by default")
            break
        if usual and float(text) < min(usual) / 2:
            message = f"{text} is far below what spot usually costs {where}, about {min(usual):g}"
            yield Finding(path, message, "leave it out, or nothing may ever be started")
            break


@check("POOL028", Level.WARNING, "The on-demand base is larger than the pool's max, so no capacity is spot.")
def base_above_max(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        market = one.pool.market
        most = max(bound.max for bound in one.pool.regions.values())
        if market.kind == "mixed" and most and (market.base >= most or market.on_demand_percent == 100):
            field = "base" if market.base >= most else "on_demand_percent"
            yield Finding(one.at("market", field), "nothing is left for spot", "take 'market: on-demand'")


_NOT_IN_CONFIGURATIONS: Final = frozenset({"io2"})
"""Volume types that launch configurations do not have (provider aws, aws_launch_configuration)."""


@check("POOL029", Level.ERROR, "A launch configuration can't express the pool's settings.")
def configuration(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for path, what in _beyond_configurations(one):
            yield Finding(path, f"a launch configuration can't have {what}", "take 'launch: template'")


def _beyond_configurations(one: Machines) -> list[tuple[Path, str]]:
    """The settings of a pool that need a launch template, if it has a launch configuration."""
    pool = one.pool
    if pool.launch != "configuration":
        return []
    wants: list[tuple[Path, str]] = []
    if len(pool.instance_types) > 1:
        wants.append((one.at("instance_types", 1), "several instance types"))
    if pool.instance_types[0].weight != 1:
        wants.append((one.at("instance_types", 0, "weight"), "weights"))
    if pool.market.kind in ("mixed", "capacity-block"):
        wants.append((one.at("market"), f"a market of kind {pool.market.kind}"))
    if pool.efa:
        wants.append((one.at("efa"), "Elastic Fabric Adapters"))
    wants += [
        (("pools", one.name, "regions", site, "capacity_reservation"), "capacity reservations")
        for site, bound in pool.regions.items()
        if bound.capacity_reservation is not None
    ]
    wants += [
        (path, f"{disk.type} volumes") for path, disk in _disks(one) if disk.type in _NOT_IN_CONFIGURATIONS
    ]
    return wants


def _newer(one: Machines) -> list[Typed]:
    """Types that launch configurations do not support."""
    return [typed for typed in one.types if typed.type.family not in instances.BEFORE_2023]


@check("POOL043", Level.WARNING, "A launch configuration, which AWS refuses in newer accounts.")
def configuration_deprecated(facts: Facts) -> Iterator[Finding]:
    # EC2 Auto Scaling User Guide, "Auto Scaling launch configurations"
    with_key = {group.machines.name for group in facts.groups if group.place.site.kms_key is not None}
    for one in facts.machines:
        pool = one.pool
        unpriced = pool.market.kind == "spot" and pool.market.max_price is None
        refused = unpriced or one.name in with_key or _newer(one) or _beyond_configurations(one)
        if pool.launch == "configuration" and not refused:
            message = "AWS refuses launch configurations in accounts created on or after 2024-10-01"
            hint = "take 'launch: template', or waive this for an older account"
            yield Finding(one.at("launch"), message, hint)


@check("POOL044", Level.ERROR, "A launch configuration of an instance type that AWS released since 2023.")
def configuration_type(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.launch == "configuration" and not _beyond_configurations(one):
            for typed in _newer(one):
                message = f"launch configurations do not take {typed.type.name}, released after 2022-12-31"
                yield Finding(typed.path, message, "take 'launch: template'")


@check("POOL048", Level.ERROR, "A Capacity Block without its reservation, or with what it cannot have.")
def capacity_block(facts: Facts) -> Iterator[Finding]:
    # EC2 Auto Scaling User Guide, "Use Capacity Blocks for machine learning workloads"
    for one in facts.machines:
        pool = one.pool
        if pool.market.kind != "capacity-block" or pool.launch == "configuration":
            continue
        if len(pool.instance_types) > 1:
            message = "a Capacity Block is of one instance type"
            yield Finding(one.at("instance_types", 1), message, "take it out")
        if pool.instance_types[0].weight != 1:
            message = "instances of a Capacity Block have no weight"
            yield Finding(one.at("instance_types", 0, "weight"), message, "take it out")
        if pool.warm_pool is not None:
            message = "a Capacity Block is paid as a whole: instances that wait save nothing"
            yield Finding(one.at("warm_pool"), message, "take it out")
    for group in facts.groups:
        if group.machines.pool.market.kind != "capacity-block":
            continue
        reserved = group.bounds.capacity_reservation
        if reserved is None or not (reserved.id or reserved.resource_group):
            message = "the Capacity Block's reservation is missing"
            hint = "add 'capacity_reservation: {id: cr-…}'; describe-capacity-reservations lists it"
            yield Finding(group.at(), message, hint)
        elif reserved.id and len(group.zones) > 1:
            message = f"a Capacity Block is in one zone; the pool may use {listed(group.zones)}"
            yield Finding(group.at(), message, f"name its zone: 'zones: [{group.zones[0]}]'")


@check("POOL047", Level.WARNING, "Capacity Rebalancing has no effect without spot instances.")
def rebalance_unused(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.capacity_rebalance and not _spot(one):
            message = f"nothing is rebalanced on a market of kind {one.pool.market.kind}"
            yield Finding(one.at("capacity_rebalance"), message, "take it out")


@check("POOL030", Level.ERROR, "A spot pool's launch configuration needs a price.", waivable=False)
def configuration_price(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        pool = one.pool
        if pool.launch == "configuration" and pool.market.kind == "spot" and pool.market.max_price is None:
            message = "a launch configuration asks for spot only by its price"
            yield Finding(one.at("market"), message, "add max_price, or take 'launch: template'")


@check("POOL031", Level.ERROR, "A warm pool of spot instances.")
def warm_spot(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.warm_pool is not None and _spot(one):
            message = "AWS keeps no spot instances in a warm pool"
            yield Finding(one.at("warm_pool"), message, "take 'market: on-demand', or no warm pool")


@check("POOL032", Level.ERROR, "A warm pool's min is above the most it may prepare.")
def warm_bounds(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        warm = one.pool.warm_pool
        if warm is not None and warm.max_prepared is not None and warm.min > warm.max_prepared:
            message = f"min {warm.min} is above max_prepared {warm.max_prepared}"
            yield Finding(one.at("warm_pool", "min"), message, "lower min, or raise max_prepared")


HIBERNATION_MIB: Final = 150 * 1024
"""Linux instances with less memory hibernate (EC2 User Guide, "Prerequisites for hibernation")."""


@check("POOL033", Level.ERROR, "Hibernation is requested for a type that does not support it.")
def hibernation(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.warm_pool is None or one.pool.warm_pool.state != "Hibernated":
            continue
        for typed in one.types:
            kind = typed.type
            why = (
                "has GPUs" if kind.gpus
                else "is bare metal" if kind.bare_metal
                else "has 150 GiB of memory or more" if kind.memory_mib >= HIBERNATION_MIB
                else ""
            )  # fmt: skip
            if why:
                yield Finding(
                    typed.path, f"{kind.name} {why}, so it can't hibernate", "take 'state: Stopped'"
                )


def _reserving(facts: Facts) -> Iterator[Group]:
    """Groups with their own capacity reservation."""
    for group in facts.groups:
        reserved = group.bounds.capacity_reservation
        if reserved is not None and (reserved.id or reserved.resource_group):
            yield group


@check("POOL034", Level.ERROR, "A capacity reservation has two targets.")
def reservation_conflict(facts: Facts) -> Iterator[Finding]:
    for group in _reserving(facts):
        reserved = group.bounds.capacity_reservation
        assert reserved is not None
        if reserved.id and reserved.resource_group:
            path = group.at("capacity_reservation", "resource_group")
            yield Finding(path, "an id is given already; AWS takes one of the two", "take one out")
        elif reserved.preference == "none":
            path = group.at("capacity_reservation", "preference")
            yield Finding(path, "no reservation is to be used, and one is named", "take one out")


@check("POOL035", Level.ERROR, "The id of a capacity reservation, or the ARN of a group of them, is invalid.")
def reservation_form(facts: Facts) -> Iterator[Finding]:
    for group in _reserving(facts):
        reserved = group.bounds.capacity_reservation
        assert reserved is not None
        if reserved.id and not _RESERVATION.fullmatch(reserved.id):
            path = group.at("capacity_reservation", "id")
            yield Finding(
                path, f"{reserved.id!r} is not the id of a reservation", "as in cr-0123456789abcdef0"
            )
        if reserved.resource_group and not _GROUP_ARN.fullmatch(reserved.resource_group):
            path = group.at("capacity_reservation", "resource_group")
            message = f"{reserved.resource_group!r} is not the ARN of a resource group"
            yield Finding(path, message, "as in arn:aws:resource-groups:<region>:<account>:group/<name>")


@check("POOL036", Level.ERROR, "A capacity reservation for spot instances.")
def reservation_spot(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        reserved = group.bounds.capacity_reservation
        if reserved is None or group.machines.pool.market.kind != "spot":
            continue
        if reserved.id or reserved.resource_group or reserved.preference == "capacity-reservations-only":
            message = "spot instances never run in reserved capacity"
            yield Finding(group.at("capacity_reservation"), message, "take 'market: on-demand'")


@check("POOL037", Level.WARNING, "One capacity reservation for several zones or types.")
def reservation_spread(facts: Facts) -> Iterator[Finding]:
    for group in _reserving(facts):
        reserved = group.bounds.capacity_reservation
        assert reserved is not None
        names = [typed.type.name for typed in group.machines.types]
        several = group.zones if len(group.zones) > 1 else names
        block = group.machines.pool.market.kind == "capacity-block"  # reported by POOL048
        if reserved.id and len(several) > 1 and not block:
            message = f"a reservation is for one type in one zone; the pool may use {listed(several)}"
            yield Finding(
                group.at("capacity_reservation", "id"), message, "name one, or take a group of them"
            )


@dataclass(frozen=True, slots=True)
class _Volume:
    """Limits of an EBS volume type (EBS User Guide, "Amazon EBS volume types"). Sizes in GiB, throughput in
    MiB/s."""

    least: int
    most: int
    iops: tuple[int, int] | None = None
    iops_per_gib: int = 0
    root: bool = True


_VOLUMES: Final = {
    "gp2": _Volume(1, 16384),
    "gp3": _Volume(1, 65536, (3000, 80000), 500),
    "io2": _Volume(4, 65536, (100, 256000), 1000),
    "st1": _Volume(125, 16384, root=False),
}
_TEMPLATE_THROUGHPUT: Final = 1000
"""MiB/s."""
_FREE_IOPS: Final = 3000
"""Included with a gp3 volume of any size."""
_MIB_PER_IO: Final = 0.25
"""The maximum throughput of a gp3 volume per provisioned IOPS, in MiB/s."""


def _disks(one: Machines) -> Iterator[tuple[Path, Disk]]:
    if one.pool.root_disk is not None:
        yield one.at("root_disk"), one.pool.root_disk
    for index, disk in enumerate(one.pool.scratch_disks):
        yield one.at("scratch_disks", index), disk


@check("POOL038", Level.ERROR, "A disk is smaller or larger than its volume type allows.")
def disk_size(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for path, disk in _disks(one):
            kind, gib = _VOLUMES[disk.type], -(-disk.size // 1024)
            if not kind.least <= gib <= kind.most:
                message = f"{gib:,} GiB; a {disk.type} volume has {kind.least:,} to {kind.most:,}"
                yield Finding((*path, "size"), message, "change its size, or its type")


@check("POOL039", Level.ERROR, "A disk's IOPS or throughput are not available for its volume type.")
def disk_speed(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for path, disk in _disks(one):
            yield from _speed(path, disk)


def _speed(path: Path, disk: Disk) -> Iterator[Finding]:
    kind, gib = _VOLUMES[disk.type], -(-disk.size // 1024)
    if disk.throughput is not None and disk.type != "gp3":
        message = f"a {disk.type} volume has no throughput to set"
        yield Finding((*path, "throughput"), message, "take gp3, or leave it out")
    elif disk.throughput is not None and disk.throughput > (disk.iops or _FREE_IOPS) * _MIB_PER_IO:
        needed = round(disk.throughput / _MIB_PER_IO)
        message = f"{disk.throughput} MiB/s takes {needed:,} iops at least"
        yield Finding((*path, "throughput"), message, f"add 'iops: {needed}'")
    if disk.iops is None:
        if disk.type == "io2":
            yield Finding(path, "an io2 volume must say its iops", "add 'iops:', or take gp3")
    elif kind.iops is None:
        yield Finding(
            (*path, "iops"), f"a {disk.type} volume has no iops to set", "take gp3, or leave it out"
        )
    else:
        least, most = kind.iops
        most = min(most, max(gib * kind.iops_per_gib, least))
        if not least <= disk.iops <= most:
            message = f"{disk.iops:,} iops; {gib:,} GiB of {disk.type} have {least:,} to {most:,}"
            yield Finding((*path, "iops"), message, "change them, or the size")


@check("POOL045", Level.ERROR, "A disk's throughput is more than the provider takes in a launch template.")
def template_throughput(facts: Facts) -> Iterator[Finding]:
    """Accepted by EC2, but not by version 5 of Terraform's AWS provider, which fails in the plan."""
    for one in facts.machines:
        if one.pool.launch != "template":
            continue
        for path, disk in _disks(one):
            if disk.throughput is not None and disk.throughput > _TEMPLATE_THROUGHPUT:
                message = (
                    f"{disk.throughput:,} MiB/s; Terraform's AWS provider takes {_TEMPLATE_THROUGHPUT:,} "
                    "in a launch template"
                )
                yield Finding((*path, "throughput"), message, "take less, or several scratch disks")


@check("POOL046", Level.ERROR, "A launch configuration in a region whose disks have a KMS key of their own.")
def configuration_with_key(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        if group.machines.pool.launch == "configuration" and group.place.site.kms_key is not None:
            message = f"{group.place.name} has a kms_key, which a launch configuration can't name"
            yield Finding(group.at(), message, "take launch: template, which can")


@check("POOL040", Level.ERROR, "A root disk of a kind that machines can't start from.")
def root_kind(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        disk = one.pool.root_disk
        if disk is not None and not _VOLUMES[disk.type].root:
            message = f"a machine can't start from a {disk.type} volume"
            yield Finding(one.at("root_disk", "type"), message, "take gp3")


@check("POOL041", Level.ERROR, "A root disk is smaller than its image.")
def root_size(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        disk = one.pool.root_disk
        if disk is not None and one.image is not None and disk.size < one.image.root_disk:
            message = f"the image {one.pool.image} has a root disk of {_gib(one.image.root_disk)}"
            yield Finding(one.at("root_disk", "size"), message, "make this one as large, or larger")
    for name, node in facts.spec.access.ssh_nodes.items():
        image = facts.spec.images.get(node.image)
        if image is not None and node.root_disk is not None and node.root_disk < image.root_disk:
            message = f"the image {node.image} has a root disk of {_gib(image.root_disk)}"
            path = ("access", "ssh_nodes", name, "root_disk")
            yield Finding(path, message, "make this one as large, or larger")


def _gib(mib: int) -> str:
    return f"{-(-mib // 1024):,} GiB"
