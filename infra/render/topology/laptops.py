"""Laptops: their block, where they come in, and what each group of people may reach."""

from __future__ import annotations

from collections.abc import Iterator

from infra.model import Cluster
from infra.model.remote import Reach
from infra.render.topology import wording
from infra.render.topology.items import (
    CLIENTS,
    Item,
    bus_id,
    door_id,
    facts,
    group_id,
    machines,
    server_facts,
)


def tell(cluster: Cluster) -> Iterator[Item]:
    """Laptops, their ways in, their groups."""
    yield _laptops(cluster)
    yield from _doors(cluster)
    yield from _groups(cluster)


def _laptops(cluster: Cluster) -> Item:
    network, vpn = cluster.network, cluster.access.vpn
    users = sum(user.vpn for user in cluster.access.users)
    return Item(
        CLIENTS,
        "laptops",
        "Laptops",
        str(network.clients),
        facts(
            ("Block", network.clients),
            ("Come in at", ", ".join(f"{each.site} ({each.host or each.node})" for each in vpn.servers)),
            ("Order", "at random" if vpn.random else "as listed"),
            ("Traffic", "all through the VPN" if vpn.full_tunnel else "the cluster's only"),
            ("Routes", wording.some(vpn.routes)),
            ("Domains", wording.some(vpn.domains)),
            ("People", wording.count(users, "user")),
            ("Groups", ", ".join(group.name for group in vpn.groups)),
            ("Certificates", wording.count(vpn.certificate_days, "day")),
        ),
        (str(network.clients),),
        related=tuple(other for each in vpn.servers for other in (each.site, door_id(each.site))),
        via=tuple(bus_id("access", each.site) for each in vpn.servers),
    )


def _doors(cluster: Cluster) -> Iterator[Item]:
    vpn = cluster.access.vpn
    for order, server in enumerate(vpn.servers, start=1):
        folder = "machines" if server.kind == "aws" else "nodes"
        yield Item(
            door_id(server.site),
            "way in",
            f"Laptops {wording.DASH} {server.site}",
            server.host or server.node,
            facts(
                ("Connect to", server.host or "an elastic address, known after apply"),
                ("Served by", f"{server.node} in {server.site}"),
                ("Place", "any, at random" if vpn.random else order),
                *server_facts(server),
                ("Private names", f"answered by {server.resolver or 'the servers in regions'}"),
            ),
            tuple(str(each.block) for each in server.listeners),
            parent=CLIENTS,
            related=(server.site, f"{server.site}/{folder}/{server.node}"),
            via=(bus_id("access", server.site), bus_id("access", CLIENTS)),
        )


def _groups(cluster: Cluster) -> Iterator[Item]:
    vpn = cluster.access.vpn
    places = {
        machine.hostname: f"{machine.site}/machines/{machine.hostname}" for machine in machines(cluster)
    }
    for group in vpn.groups:
        people = [user.login for user in vpn.users if group.name in user.groups]
        reached = dict.fromkeys(name for reach in group.reach for name in reach.instances if name in places)
        yield Item(
            group_id(group.name),
            "group",
            group.name,
            wording.may_reach(group),
            facts(
                ("People", f"{len(people)}: {wording.some(people)}" if people else "none"),
                *((reach.name.capitalize(), _reach(reach)) for reach in group.reach),
            ),
            parent=CLIENTS,
            related=tuple(places[name] for name in reached),
        )


def _reach(reach: Reach) -> str:
    where = wording.some((*reach.blocks, *reach.instances)) or "none there"
    ports = ", ".join(f"TCP {port}" for port in reach.tcp_ports)
    return f"{where} · {ports}" if ports else where
