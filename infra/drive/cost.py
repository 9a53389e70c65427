"""Estimates how a plan changes the monthly bill, from a dated price table. Pure.

Counted: instances and their volumes, Auto Scaling groups at their minimum and maximum size, databases, NAT
gateways, VPN connections, network load balancers, public addresses, transit gateway attachments, interface
endpoints, hosted zones. Not counted, as a plan cannot know them: traffic, requests, and the amount of stored
data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from infra.drive.plan import site_of

HOURS: Final = 730
"""Hours per month, as AWS counts them: 365 * 24 / 12."""

_ZONE = re.compile(r"^[a-z]{2}(?:-[a-z]+)+-\d")
_INDEX = re.compile(r"\[[^\[\]]*\]$")


class Prices(Protocol):
    """A price table, in US dollars: `infra.catalogue.prices`."""

    @property
    def DATED(self) -> str: ...  # noqa: N802 - it is a module that stands here

    def on_demand(self, instance_type: str, region: str) -> float | None: ...
    def spot(self, instance_type: str, region: str) -> float | None: ...
    def database(self, instance_class: str, region: str) -> float | None: ...
    def unit(self, name: str, region: str) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """US dollars per month."""

    low: float = 0.0
    """With every group at its minimum."""
    high: float = 0.0
    """With every group at its maximum."""

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost before and after a plan."""

    before: Range
    after: Range
    sites: Mapping[str, tuple[Range, Range]]
    """Site → before and after; the root module is the empty string."""
    unknown: tuple[str, ...]
    """Resources without a price in the table: ``p9.large in us-west-2``. They are not counted."""
    dated: str
    """The date of the price table."""

    def to_json(self) -> dict[str, Any]:
        """``{"currency", "dated", "before", "after", "sites", "unknown"}``, dollars with cents."""
        return {
            "currency": "USD",
            "dated": self.dated,
            "before": _plain(self.before),
            "after": _plain(self.after),
            "sites": {
                site: {"before": _plain(before), "after": _plain(after)}
                for site, (before, after) in sorted(self.sites.items())
            },
            "unknown": list(self.unknown),
        }


def monthly(
    shown: Mapping[str, Any], prices: Prices, *, sites: Mapping[str, str], regions: Mapping[str, str]
) -> Cost:
    """The cost of a plan as ``terraform show -json`` prints it.

    ``sites`` maps the root's module calls to sites, ``regions`` sites to AWS regions. A site that is not in
    ``regions`` is taken as the name of a region.
    """
    changes = [one for one in shown.get("resource_changes", ()) if one.get("mode") == "managed"]
    halves = []
    unknown: dict[str, None] = {}
    for side in ("before", "after"):
        things = [
            _Thing(
                address=str(one["address"]),
                module=str(one.get("module_address", "")),
                type=str(one["type"]),
                values=one["change"][side],
            )
            for one in changes
            if isinstance(one["change"].get(side), dict) and not one.get("deposed")
        ]
        tally = _Tally(prices, sites, regions, _Templates(things, shown.get("configuration", {})), unknown)
        halves.append(tally.add_all(things))
    before, after = halves
    return Cost(
        before=sum(before.values(), Range()),
        after=sum(after.values(), Range()),
        sites={
            site: (before.get(site, Range()), after.get(site, Range())) for site in sorted({*before, *after})
        },
        unknown=tuple(sorted(unknown)),
        dated=prices.DATED,
    )


@dataclass(frozen=True, slots=True)
class _Thing:
    """A resource before or after the plan."""

    address: str
    module: str
    type: str
    values: Mapping[str, Any]

    @property
    def index(self) -> str:
        found = _INDEX.search(self.address)
        return found[0] if found else ""

    @property
    def name(self) -> str:
        """The name of the resource block."""
        return _INDEX.sub("", self.address).rpartition(".")[2]


class _Templates:
    """Which launch template or configuration a group uses.

    Its id is not known before the first apply; then the configuration names the resource, and the instance
    of that resource has the group's key.
    """

    _KINDS = ("aws_launch_template", "aws_launch_configuration")

    def __init__(self, things: list[_Thing], configuration: Mapping[str, Any]) -> None:
        self._all = [one for one in things if one.type in self._KINDS]
        self._ids: dict[str, _Thing] = {}
        for one in self._all:
            for key in ("id", "name"):
                if one.values.get(key):
                    self._ids[str(one.values[key])] = one
        self._root = configuration.get("root_module", {})

    def of(self, group: _Thing) -> _Thing | None:
        for told in _told_templates(group.values):
            if told in self._ids:
                return self._ids[told]
        near = [one for one in self._all if one.module == group.module]
        blocks = self._referred(group)
        if blocks:
            # Terraform's JSON omits references of dynamic blocks: then any template of the module is used.
            near = [one for one in near if (one.type, one.name) in blocks] or near
        keyed = [one for one in near if one.index == group.index]
        candidates = keyed or near
        return candidates[0] if len(candidates) == 1 else None

    def _referred(self, group: _Thing) -> set[tuple[str, str]]:
        module = self._root
        for call in _INDEX.sub("", group.module).split("module.")[1:]:
            calls = module.get("module_calls", {})
            module = calls.get(_INDEX.sub("", call.rstrip(".")), {}).get("module", {})
        for block in module.get("resources", ()):
            if block.get("type") == group.type and block.get("name") == group.name:
                return set(_template_references(block.get("expressions", {})))
        return set()


@dataclass(slots=True)
class _Tally:
    prices: Prices
    site_names: Mapping[str, str]
    regions: Mapping[str, str]
    templates: _Templates
    unknown: dict[str, None]
    sums: dict[str, Range] = field(default_factory=dict)
    private_subnets: Counter[str] = field(default_factory=Counter)
    """Module → number of its private subnets."""

    def add_all(self, things: list[_Thing]) -> dict[str, Range]:
        self.private_subnets = Counter(
            thing.module
            for thing in things
            if thing.type == "aws_subnet" and (thing.values.get("tags") or {}).get("tier") == "private"
        )
        for thing in things:
            counted = _COUNTED.get(thing.type)
            if counted is None:
                continue
            site = site_of(thing.module, self.site_names)
            self.sums[site] = self.sums.get(site, Range()) + counted(self, thing, self._region(thing, site))
        return self.sums

    def _region(self, thing: _Thing, site: str) -> str:
        zone = _ZONE.match(str(thing.values.get("availability_zone") or ""))
        return zone[0] if zone else self.regions.get(site, site)

    def hourly(self, name: str, region: str, count: int = 1) -> Range:
        return self._priced(
            self.prices.unit(f"{name}_hour", region), name.replace("_", " "), region, HOURS * count
        )

    def monthly(self, name: str, region: str, amount: float = 1) -> Range:
        return self._priced(self.prices.unit(f"{name}_month", region), name.replace("_", " "), region, amount)

    def machine(self, kind: str, region: str, *, spot: bool = False) -> float:
        look_up = self.prices.spot if spot else self.prices.on_demand
        return self._priced(look_up(kind, region), kind, region, HOURS).low

    def volume(self, disk: Mapping[str, Any], region: str) -> float:
        size = _number(disk.get("volume_size") or disk.get("size"))
        kind = str(disk.get("volume_type") or disk.get("type") or "gp3")
        return self.monthly(f"{kind}_gb", region, size).low if size else 0.0

    def _priced(self, price: float | None, what: str, region: str, amount: float) -> Range:
        if price is None:
            self.unknown[f"{what} in {region}" if region else what] = None
            return Range()
        return Range(price * amount, price * amount)


def _instance(tally: _Tally, thing: _Thing, region: str) -> Range:
    values = thing.values
    spot = any(one.get("market_type") == "spot" for one in _blocks(values, "instance_market_options"))
    sum_ = tally.machine(str(values.get("instance_type") or "?"), region, spot=spot)
    for disk in (*_blocks(values, "root_block_device"), *_blocks(values, "ebs_block_device")):
        sum_ += tally.volume(disk, region)
    return Range(sum_, sum_)


def _group(tally: _Tally, thing: _Thing, region: str) -> Range:
    """The cost of a group. Its first instance type is used, as AWS selects the types."""
    values = thing.values
    least, most = _number(values.get("min_size")), _number(values.get("max_size"))
    if not most:
        return Range()
    template = tally.templates.of(thing)
    settings: Mapping[str, Any] = template.values if template else {}
    kind, weight = str(settings.get("instance_type") or ""), 1.0
    base, share = float("inf"), 100.0
    if settings.get("spot_price") or any(
        one.get("market_type") == "spot" for one in _blocks(settings, "instance_market_options")
    ):
        base, share = 0.0, 0.0
    for policy in _blocks(values, "mixed_instances_policy"):
        for one in _blocks(policy, "instances_distribution"):
            base = _number(one.get("on_demand_base_capacity"))
            percent = one.get("on_demand_percentage_above_base_capacity")
            share = 100.0 if percent is None else _number(percent)
        for one in _blocks(policy, "launch_template"):
            overrides = [each for each in _blocks(one, "override") if each.get("instance_type")]
            if overrides:
                kind = str(overrides[0]["instance_type"])
                weight = _number(overrides[0].get("weighted_capacity")) or 1.0
    if not kind:
        tally.unknown[f"the instance type of {thing.address}"] = None
        return Range()
    disks = 0.0
    for mapping in _blocks(settings, "block_device_mappings"):
        disks += sum(tally.volume(one, region) for one in _blocks(mapping, "ebs"))
    for name in ("root_block_device", "ebs_block_device"):  # of a launch configuration
        disks += sum(tally.volume(one, region) for one in _blocks(settings, name))

    if any(
        one.get("market_type") == "capacity-block" for one in _blocks(settings, "instance_market_options")
    ):
        tally.unknown[f"the Capacity Block of {kind} in {region}, paid beforehand"] = None
        return Range(least * disks, most * disks)

    def at(units: float) -> float:
        bought = min(units, base) + max(units - base, 0) * share / 100
        sum_ = units / weight * disks
        if bought:
            sum_ += bought / weight * tally.machine(kind, region)
        if units - bought:
            sum_ += (units - bought) / weight * tally.machine(kind, region, spot=True)
        return sum_

    return Range(at(least), at(most))


def _volume(tally: _Tally, thing: _Thing, region: str) -> Range:
    sum_ = tally.volume(thing.values, region)
    return Range(sum_, sum_)


def _balancer(tally: _Tally, thing: _Thing, region: str) -> Range:
    kind = thing.values.get("load_balancer_type")
    return tally.hourly("nlb" if kind == "network" else "alb", region)


def _database(tally: _Tally, thing: _Thing, region: str) -> Range:
    """The cost of a database, with its standby if it is Multi-AZ; storage as allocated, and at its
    maximum."""
    values = thing.values
    kind, zones = str(values.get("instance_class") or "?"), 2 if values.get("multi_az") else 1
    machine = tally._priced(tally.prices.database(kind, region), kind, region, HOURS * zones).low
    least = _number(values.get("allocated_storage"))
    most = max(least, _number(values.get("max_allocated_storage")))
    disks = [tally.monthly("rds_gp3_gb", region, size * zones).low for size in (least, most)]
    return Range(machine + disks[0], machine + disks[1])


def _endpoint(tally: _Tally, thing: _Thing, region: str) -> Range:
    if thing.values.get("vpc_endpoint_type") != "Interface":
        return Range()  # gateway endpoints are free
    # The subnets are not known before they exist: then one in each private subnet of the module is assumed.
    subnets = len(thing.values.get("subnet_ids") or ()) or tally.private_subnets[thing.module]
    return tally.hourly("interface_endpoint", region, max(1, subnets))


def _vpn_connection(tally: _Tally, thing: _Thing, region: str) -> Range:
    # A connection to a transit gateway is an attachment there too. A gateway id that is not yet known is not
    # counted.
    of_transit = not thing.values.get("vpn_gateway_id", "unknown")
    attachment = tally.hourly("transit_gateway_attachment", region) if of_transit else Range()
    return tally.hourly("vpn_connection", region) + attachment


def _per_hour(name: str) -> Callable[[_Tally, _Thing, str], Range]:
    return lambda tally, _thing, region: tally.hourly(name, region)


def _per_month(name: str) -> Callable[[_Tally, _Thing, str], Range]:
    return lambda tally, _thing, region: tally.monthly(name, region)


_COUNTED: Final[Mapping[str, Callable[[_Tally, _Thing, str], Range]]] = {
    "aws_autoscaling_group": _group,
    "aws_db_instance": _database,
    "aws_ebs_volume": _volume,
    "aws_ec2_transit_gateway_peering_attachment": _per_hour("transit_gateway_attachment"),
    "aws_ec2_transit_gateway_vpc_attachment": _per_hour("transit_gateway_attachment"),
    "aws_eip": _per_hour("public_ipv4"),
    "aws_instance": _instance,
    "aws_lb": _balancer,
    "aws_nat_gateway": _per_hour("nat_gateway"),
    "aws_route53_zone": _per_month("hosted_zone"),
    "aws_vpc_endpoint": _endpoint,
    "aws_vpn_connection": _vpn_connection,
}


def _told_templates(values: Mapping[str, Any]) -> Iterator[str]:
    """Ids and names of launch templates and configurations in a group's values."""
    if values.get("launch_configuration"):
        yield str(values["launch_configuration"])
    blocks = [*_blocks(values, "launch_template")]
    for policy in _blocks(values, "mixed_instances_policy"):
        for one in _blocks(policy, "launch_template"):
            blocks += [
                {"id": each.get("launch_template_id"), "name": each.get("launch_template_name")}
                for each in _blocks(one, "launch_template_specification")
            ]
    for block in blocks:
        for key in ("id", "name"):
            if block.get(key):
                yield str(block[key])


def _template_references(expression: Any) -> Iterator[tuple[str, str]]:
    if isinstance(expression, list):
        for one in expression:
            yield from _template_references(one)
    elif isinstance(expression, dict):
        for reference in expression.get("references") or ():
            parts = str(reference).split(".")
            if len(parts) == 2 and parts[0] in _Templates._KINDS:
                yield parts[0], parts[1]
        for key, one in expression.items():
            if key != "references":
                yield from _template_references(one)


def _blocks(values: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The nested blocks with this name: Terraform's JSON has a list of them, or null."""
    return [one for one in values.get(name) or () if isinstance(one, dict)]


def _number(value: Any) -> float:
    """Weights are strings in the provider's schema; unknown values count as 0."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _plain(amount: Range) -> dict[str, float]:
    return {"low": round(amount.low, 2), "high": round(amount.high, 2)}
