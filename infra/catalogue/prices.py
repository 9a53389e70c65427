"""AWS's list prices at one date, in US dollars: enough for an estimate, not for a bill.

Exact at that date for Linux, shared tenancy, On-Demand in us-east-1, us-east-2 and us-west-2. For other
regions it is that price times the region's usual ratio (separate ones for G and P families and for Graviton
if they differ), with an error of a few percent: `exact` returns which it is. Spot prices vary; `spot` is a
usual share of the On-Demand price. Sources are in ``sources.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from infra.catalogue import instances
from infra.catalogue.tables import table

_EXACT: Final = frozenset({"us-east-1", "us-east-2", "us-west-2"})


DATED: str
"""The date of the table, ISO 8601."""


def __getattr__(name: str) -> str:
    """``DATED``, read with the table on first use."""
    if name == "DATED":
        return str(_table()["dated"])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def on_demand(instance_type: str, region: str) -> float | None:
    """USD per hour of a Linux instance; None if the table has no price."""
    prices = _table()
    ratio = _ratio(instance_type, region)
    found = instances.find(instance_type)
    if ratio is None or found is None:
        return None
    hourly: float | None = prices["types"].get(instance_type)
    each: float | None = prices["per_vcpu"].get(found.family)
    if hourly is None and each is not None:
        hourly = each * found.vcpus
    return None if hourly is None else round(hourly * ratio, 5)


@cache
def spot(instance_type: str, region: str) -> float | None:
    """The expected Spot price in USD per hour; None without a price, or if there are no Spot Instances."""
    price = on_demand(instance_type, region)
    found = instances.find(instance_type)
    if price is None or found is None or not found.spot:
        return None
    return round(price * spot_factor(instance_type), 5)


def spot_factor(instance_type: str) -> float:
    """The usual share of the On-Demand price: our estimate, by kind of instance."""
    factors: Mapping[str, float] = _table()["spot"]
    return factors.get(_kind(instance_type), factors["all"])


@cache
def database(instance_class: str, region: str) -> float | None:
    """USD per hour of single-AZ PostgreSQL at RDS: ``database("db.t4g.small", …)``; None without a price."""
    prices = _table()
    price = prices["databases"].get(instance_class)
    ratios = prices["regions"].get(region)
    return round(price * ratios["all"], 5) if price is not None and ratios else None


@cache
def unit(name: str, region: str) -> float | None:
    """USD of other units: ``nat_gateway_hour``, ``gp3_gb_month``; None if the table has no price."""
    prices = _table()
    price = prices["units"].get(name)
    if price is None:
        return None
    if name in prices["flat"]:
        return float(price)
    ratios = prices["regions"].get(region)
    return round(price * ratios["all"], 5) if ratios else None


def exact(region: str) -> bool:
    """Whether prices of the region are AWS's own at `DATED`, not computed from a ratio."""
    return region in _EXACT


def _ratio(instance_type: str, region: str) -> float | None:
    ratios = _table()["regions"].get(region)
    if ratios is None:
        return None
    return float(ratios.get(_kind(instance_type), ratios["all"]))


def _kind(instance_type: str) -> str:
    """The key of price ratios: ``p``, ``g``, ``arm``, or ``all``."""
    kind = re.match(r"(p|g|gr)\d", instance_type)
    if kind:
        return kind[1][0]
    found = instances.find(instance_type)
    return "arm" if found and "arm64" in found.architectures else "all"


def _table() -> Mapping[str, Any]:
    prices: Mapping[str, Any] = table("prices")
    return prices
