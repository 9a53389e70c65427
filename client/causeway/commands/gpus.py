"""``gpus``: lists the GPUs, how many are free, and their prices."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from rich.console import Console

from causeway.cluster.availability import Availability, clock, read
from causeway.cluster.connection import Cluster
from causeway.cluster.offer import Offer
from causeway.commands.tables import show_table
from causeway.units import format_size

_GOES_FIRST = ("CLASS", "SPOT", "ON ONE", "MACHINES", "MEMORY")
"""Columns that are dropped first if the terminal is too narrow."""


@dataclass(frozen=True)
class Row:
    """GPUs of one model at one site, from a pool or on-premises machines."""

    model: str
    memory_mib: int
    gpu_class: str
    site: str
    pool: str | None
    most: int
    """Number of machines, or their maximum."""
    ready: int | None
    starting: int | None
    free: int | None
    """Free GPUs; None if unknown."""
    largest: int | None
    """Free GPUs of the machine that has the most."""
    price: float | None
    """On-demand price in USD per hour and GPU; None if unknown."""
    spot_price: float | None
    no_capacity: str = ""
    """Why the pool cannot get machines there at present."""
    no_capacity_until: datetime | None = None


def gpus(*, as_json: bool) -> int:
    """Print a row for each model, site and pool."""
    cluster = Cluster()
    offer = cluster.offer
    found, note = read(cluster)
    rows = listed(offer, found)
    if as_json:
        written = found.written if found is not None else None
        values = {"gpus": [asdict(row) for row in rows], "as_of": written, "note": note}
        print(json.dumps(values, default=datetime.isoformat))
        return 0
    titles = ("MODEL", "MEMORY", "CLASS", "SITE", "POOL", "MACHINES", "FREE", "ON ONE", "$/H", "SPOT", "")
    cells = [
        (
            row.model, format_size(row.memory_mib << 20), row.gpu_class, row.site, row.pool or "",
            f"{_number(row.ready)}/{row.most}" + (f" +{row.starting}" if row.starting else ""),
            _number(row.free), _number(row.largest), _price(row.price),
            "" if row.spot_price is None else _price(row.spot_price), _barred(row),
        )
        for row in rows
    ]  # fmt: skip
    out = Console(highlight=False)
    show_table(out, titles, cells, _GOES_FIRST)
    for line in (offer.note, note if found is not None else f"free GPUs are unknown: {note}"):
        if line:
            out.print(line, style="yellow")
    return 0


def listed(offer: Offer, found: Availability | None) -> list[Row]:
    """Return the GPUs of an offer, with their availability; on-premises and cheaper ones first."""
    rows: dict[tuple[str, str | None, str], Row] = {}
    for machine in offer.machines:
        has = machine.gpus
        if has is None:
            continue
        key = machine.site, machine.pool, has.model
        # Machines with the same GPU model may differ otherwise.
        most = machine.count + (rows[key].most if key in rows else 0)
        now = found.machines.get(key) if found is not None else None
        bar = next(
            (
                each
                for each in (found.no_capacity if found is not None else ())
                if (each.site, each.pool) == (machine.site, machine.pool)
            ),
            None,
        )
        nothing = None if found is None else 0
        rows[key] = Row(
            model=has.model,
            memory_mib=has.memory_mib,
            gpu_class=has.gpu_class,
            site=machine.site,
            pool=machine.pool,
            most=most,
            ready=now.ready if now else nothing,
            starting=now.starting if now else nothing,
            free=now.free if now else nothing,
            largest=now.largest if now else nothing,
            price=None if machine.hourly_price is None else machine.hourly_price / has.count,
            spot_price=None if machine.spot_price is None else machine.spot_price / has.count,
            no_capacity=bar.why if bar else "",
            no_capacity_until=bar.until if bar else None,
        )
    return sorted(
        rows.values(),
        key=lambda row: (row.price is None, row.price or 0.0, row.model, row.site, row.pool or ""),
    )


def _number(count: int | None) -> str:
    return "?" if count is None else str(count)


def _price(price: float | None) -> str:
    return "?" if price is None else f"{price:,.2f}" if price else "-"


def _barred(row: Row) -> str:
    if not row.no_capacity:
        return ""
    return row.no_capacity + (f" until {clock(row.no_capacity_until)}" if row.no_capacity_until else "")
