"""Numbers and facts as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network
from typing import Final

from infra.model.machines import Market, NodeGroup, NodePool
from infra.model.places import Gpus, Network, Routing
from infra.model.remote import Vpn, VpnGroup
from infra.model.tunnels import SiteTunnel

DASH: Final = "\N{EN DASH}"
TIMES: Final = "\N{MULTIPLICATION SIGN}"
_ABBREVIATION: Final = 3
_FEW: Final = 8
_PAIR: Final = 2
MINUS: Final = "\N{MINUS SIGN}"


def money(dollars: float | None) -> str:
    """``$0.768``, ``$31.21``, ``$1,204``; a dash where there is no price."""
    if dollars is None:
        return DASH
    if dollars < 10:
        return f"${dollars:.3f}"
    return f"${dollars:,.2f}" if dollars < 1000 else f"${dollars:,.0f}"


def kinds(vpn: Vpn) -> str:
    """``OpenVPN``, ``OpenVPN and WireGuard``."""
    spoken = (("OpenVPN", vpn.openvpn), ("WireGuard", vpn.wireguard is not None))
    return " and ".join(name for name, there in spoken if there)


def span(low: int, high: int) -> str:
    """From low to high with a dash, or ``8`` where both are one."""
    return f"{low:,}{DASH}{high:,}" if low != high else f"{low:,}"


def count(number: int, one: str, many: str = "") -> str:
    """``1 pool``, ``2 pools``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(block: IPv4Network) -> str:
    """``65,536 addresses``."""
    return count(block.num_addresses, "address", "addresses")


def memory(mib: int) -> str:
    """``256 GiB``, ``2 TiB``, ``512 MiB``."""
    for unit, step in (("TiB", 1 << 20), ("GiB", 1 << 10)):
        if mib >= step:
            return f"{mib / step:.3g} {unit}"
    return f"{mib} MiB"


def card(cards: Gpus) -> str:
    """Four times ``TITAN X (Pascal)``."""
    return f"{cards.count} {TIMES} {card_name(cards)}"


def card_name(cards: Gpus) -> str:
    """What NVIDIA calls such a GPU, without NVIDIA."""
    return cards.name.removeprefix("NVIDIA ").removeprefix("Tesla ")


def market(bought: Market) -> str:
    """How instances are bought, in full."""
    cap = f", at most ${bought.max_price} an hour" if bought.max_price else ""
    if bought.kind == "on-demand":
        return "on demand"
    if bought.kind == "capacity-block":
        return "a Capacity Block, paid beforehand"
    if bought.kind == "spot":
        return f"spot{cap}"
    base = f"first {bought.on_demand_base} on demand, then " if bought.on_demand_base else ""
    return f"mixed: {base}{bought.on_demand_percent} % on demand, the rest spot{cap}"


def short_market(bought: Market) -> str:
    """How instances are bought, in a word."""
    return {"on-demand": "on demand", "spot": "spot", "mixed": "mixed", "capacity-block": "block"}[
        bought.kind
    ]


def types(pool: NodePool) -> str:
    """Every instance type, with its weight where it has one."""
    return ", ".join(
        each.name if each.weight == 1 else f"{each.name} (weight {each.weight})"
        for each in pool.instance_types
    )


def price(pool: NodePool, group: NodeGroup) -> float | None:
    """USD an hour of a machine of a group's first type as it is bought: a mixed one in its proportion."""
    if group.hourly_price is None or group.spot_price is None or pool.market.kind == "on-demand":
        return group.hourly_price
    on_demand = pool.market.on_demand_percent / 100
    return group.hourly_price * on_demand + group.spot_price * (1 - on_demand)


def full_price(pool: NodePool, group: NodeGroup) -> float | None:
    """USD an hour of a group at its maximum, all of its first type."""
    each = price(pool, group)
    return None if each is None else each * group.max / max(pool.instance_types[0].weight, 1)


def total(prices: Iterable[float | None]) -> float | None:
    """The sum of what has a price; None where nothing has."""
    known = [price for price in prices if price is not None]
    return sum(known) if known else None


def routing(kind: Routing, *systems: int) -> str:
    """``BGP, AS 65010 and AS 64512``, or that routes are static."""
    return f"BGP, {' and '.join(f'AS {each}' for each in systems)}" if kind == "bgp" else "static routes"


def inside(tunnel: SiteTunnel) -> str:
    """The block inside a tunnel: ``169.254.2.4/30``."""
    return str(IPv4Network((int(tunnel.inside_local), tunnel.inside_prefix), strict=False))


def may_reach(group: VpnGroup) -> str:
    """``pods, services, ssh``; ``nothing`` for a group without rights."""
    return ", ".join(reach.name for reach in group.reach) or "nothing"


def services(names: Iterable[str]) -> str:
    """Names of AWS services; those of three letters and fewer are abbreviations: ``S3, dynamodb``."""
    return ", ".join(name.upper() if len(name) <= _ABBREVIATION else name for name in names)


def peering(network: Network) -> str:
    """What joins two regions."""
    return "VPC peering" if network.interconnect == "peering" else "transit gateway peering"


def hourly(price: float | None, market: str = "on demand") -> str | None:
    """``$0.768 an hour on demand``; None without a price."""
    return f"{money(price)} an hour{f' {market}' if market else ''}" if price else None


def some(blocks: Iterable[object]) -> str:
    """The first few, and how many more: ``10.1.0.0/16, 10.2.0.0/16 and 78 more``."""
    every = [str(each) for each in blocks]
    more = f" and {len(every) - _FEW:,} more" if len(every) > _FEW else ""
    return ", ".join(every[:_FEW]) + more


def mesh(ends: int, pairs: int) -> str:
    """That each end is joined to each other one, where it is worth a word."""
    return "Full mesh · " if ends > _PAIR and pairs == ends * (ends - 1) // 2 else ""
