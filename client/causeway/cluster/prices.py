"""What work costs: the part of each machine that it takes, in USD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from causeway.cluster.offer import Machine

_GB = 1 << 30
"""As AWS's bills have it (Amazon S3 pricing, "Storage & requests")."""


@dataclass(frozen=True)
class Quote:
    """What a run may cost an hour: it depends on where there is room."""

    least: float
    most: float
    unknown: Sequence[str]
    """Pools without a known price."""

    @property
    def costs(self) -> bool:
        """Whether it may cost money."""
        return self.most > 0 or bool(self.unknown)


def hourly(machine: Machine, gpus: int, cpus: float, *, spot: bool = False) -> float | None:
    """USD an hour of the part of a machine that one worker takes; None if the price is not known.

    Of a machine with GPUs that is the part of its GPUs, else that of its processors.
    """
    price = machine.spot_price if spot and machine.spot_price is not None else machine.hourly_price
    if price is None:
        return None
    part = gpus / machine.gpus.count if machine.gpus and gpus else cpus * 1000 / machine.cpu_milli
    return price * min(part, 1.0)


def quote(roles: Sequence[tuple[int, int, float, Sequence[Machine]]]) -> Quote:
    """``roles``: of each role the number of workers, GPUs and processors of one, and where it may run."""
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
    """Site → USD that AWS charges when each worker there fetches a checkpoint from the store; without sites
    where that is free, or not known. ``size``: bytes."""
    return {
        site: usd_per_gb[site] * workers * size / _GB for site in sorted({*sites}) if usd_per_gb.get(site)
    }


def of_worker(machines: Sequence[Machine], labels: Mapping[str, str], gpus: int, cpus: float) -> float | None:
    """USD an hour of a worker that was placed.

    ``labels``: those of its node, or those that its queue had it select by where the node is gone.
    """
    pool, site = labels.get("causeway.dev/pool"), labels.get("causeway.dev/site")
    spot = labels.get("causeway.dev/capacity-type") == "spot"
    rows = [each for each in machines if each.pool == pool and each.site == (site or each.site)]
    return hourly(rows[0], gpus, cpus, spot=spot) if rows else None
