"""Elements of a cluster: how they are named on the picture, and what is shown of each.

It is what hovering shows and what the search box looks through, drawn or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final

from infra.model import Cluster
from infra.model.machines import Instance, NodeGroup, NodePool
from infra.model.remote import VpnServer
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.render.topology import wording

ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "add": ("+", "added"),
    "change": ("~", "changed in place"),
    "replace": ("±", "replaced"),
    "destroy": (wording.MINUS, "destroyed"),
}
"""What a plan may do to an element: its sign, and the word for it."""

CLIENTS: Final = "access/clients"
SUPERNET: Final = "supernet"
PODS: Final = "kubernetes/pods"
SERVICES: Final = "kubernetes/services"
TUNNELS: Final = "links"
GONE: Final = "gone"
LINK_LOCAL: Final = IPv4Network("169.254.0.0/16")
"""Where tunnels have their inside blocks (AWS Site-to-Site VPN User Guide, "Tunnel options")."""


@dataclass(frozen=True, slots=True)
class Item:
    """An element of the cluster."""

    id: str
    kind: str
    title: str
    note: str
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[str, ...] = ()
    """Address blocks in which it is the one to be found."""
    parent: str = ""
    related: tuple[str, ...] = ()
    """Elements that light up with it."""
    via: tuple[str, ...] = ()
    """Wires that stand for it where it has none of its own."""


def link_id(name: str) -> str:
    """``link/rack-a-us-west-2``, ``link/rack-a-rack-b``."""
    return f"link/{name}"


def peering_id(name: str) -> str:
    """``peering/us-east-1-us-west-2``."""
    return f"peering/{name}"


def door_id(place: str) -> str:
    """Where laptops come in: ``access/clients/us-west-2``."""
    return f"{CLIENTS}/{place}"


def group_id(name: str) -> str:
    """A group of people with laptops: ``access/groups/researchers``."""
    return f"access/groups/{name}"


def bus_id(bus: str, place: str) -> str:
    """The wire from a place to a bus: ``bus/vpn/us-west-2``."""
    return f"bus/{bus}/{place}"


def machines(cluster: Cluster) -> tuple[Instance, ...]:
    """Masters, VPN end points and SSH nodes."""
    masters = cluster.control_plane.masters if cluster.control_plane else ()
    return (*masters, *cluster.access_gateways, *cluster.ssh_nodes)


def servers(cluster: Cluster) -> dict[tuple[str, str], VpnServer]:
    """VPN servers by site and machine."""
    return {(server.site, server.node): server for server in cluster.access.vpn.servers}


def site_tunnels(cluster: Cluster) -> tuple[tuple[SiteGateway, SiteTunnel], ...]:
    """Each tunnel between physical sites once, as the first of its gateways sees it."""
    found: dict[str, tuple[SiteGateway, SiteTunnel]] = {}
    for gateway in cluster.gateways:
        for tunnel in gateway.tunnels:
            if tunnel.kind == "site":
                found.setdefault(tunnel.link, (gateway, tunnel))
    return tuple(found.values())


def server_facts(server: VpnServer) -> tuple[tuple[str, str], ...]:
    """Where a VPN server listens, and what it gives to laptops."""
    return facts(
        ("Listens", ", ".join(f"{each.name.upper()} {each.port}" for each in server.listeners)),
        ("Gives laptops", ", ".join(f"{each.block} ({each.name.upper()})" for each in server.listeners)),
        ("Seen inside as", server.source or "its private address, known after apply"),
    )


def groups_by_region(cluster: Cluster) -> dict[str, list[tuple[NodePool, NodeGroup]]]:
    """The pools of each region: most wanted first, then by name."""
    found: dict[str, list[tuple[NodePool, NodeGroup]]] = {region.name: [] for region in cluster.regions}
    for pool in sorted(cluster.pools, key=lambda pool: (-pool.priority, pool.name)):
        for group in pool.groups:
            found[group.site].append((pool, group))
    return found


def gone(name: str) -> Item:
    """An element that a plan speaks of and the cluster has no more."""
    return Item(name, GONE, name, "no longer in the spec", ())


def facts(*pairs: tuple[str, object]) -> tuple[tuple[str, str], ...]:
    """The pairs that have a value."""
    return tuple((label, str(value)) for label, value in pairs if value not in (None, "", ()))
