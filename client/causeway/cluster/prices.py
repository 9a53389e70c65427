"""What workloads cost, in USD: each pays for its share of the machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from causeway.cluster.offer import Machine

_GB = 1 << 30
"""The unit of AWS's bills (Amazon S3 pricing, "Storage & requests")."""


@dataclass(frozen=True)
class Quote:
    """Range of a run's hourly cost, depending on where it is placed."""

    least: float
    most: float
    unknown: Sequence[str]
    """Pools whose price is unknown."""

    @property
    def costs(self) -> bool:
        """Whether it may cost money."""
        return self.most > 0 or bool(self.unknown)


def hourly(machine: Machine, gpus: int, cpus: float, *, spot: bool = False) -> float | None:
    """Return the hourly price in USD of the share of a machine that one worker uses; None if unknown.

    The share is that of the GPUs; on a machine without GPUs, that of the processors.
    """
    price = machine.spot_price if spot and machine.spot_price is not None else machine.hourly_price
    if price is None:
        return None
    part = gpus / machine.gpus.count if machine.gpus and gpus else cpus * 1000 / machine.cpu_milli
    return price * min(part, 1.0)


def quote(roles: Sequence[tuple[int, int, float, Sequence[Machine]]]) -> Quote:
    """Quote roles, each with the number of workers, GPUs and processors of one, and the machines it may
    use."""
    least = most = 0.0
    unknown: dict[str, None] = {}
    for count, gpus, cpus, machines in roles:
        prices = [(machine, hourly(machine, gpus, cpus)) for machine in machines]
        known = [price for _, price in prices if price is not None]
        unknown |= dict.fromkeys(machine.pool or machine.site for machine, price in prices if price is None)
        least += count * min(known, default=0.0)
        most += count * max(known, default=0.0)
    return Quote(least, most, tuple(unknown))


def of_moving(
    size: int, workers: int, sites: Iterable[str], usd_per_gb: Mapping[str, float]
) -> dict[str, float]:
    """Return site → USD that AWS charges if each worker there fetches a checkpoint from the store. Sites
    where it is free or unknown are left out. ``size``: bytes."""
    return {
        site: usd_per_gb[site] * workers * size / _GB for site in sorted({*sites}) if usd_per_gb.get(site)
    }


def of_worker(machines: Sequence[Machine], labels: Mapping[str, str], gpus: int, cpus: float) -> float | None:
    """Return the hourly price in USD of a worker that was placed.

    ``labels``: those of its node; if the node is gone, those that its queue made it select.
    """
    pool, site = labels.get("causeway.dev/pool"), labels.get("causeway.dev/site")
    spot = labels.get("causeway.dev/capacity-type") == "spot"
    rows = [each for each in machines if each.pool == pool and each.site == (site or each.site)]
    return hourly(rows[0], gpus, cpus, spot=spot) if rows else None
