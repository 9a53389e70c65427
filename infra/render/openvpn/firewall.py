"""Access of laptops: nftables rules, with a chain for each user and each group."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from infra.model import Cluster, Outputs
from infra.model.remote import Reach, Vpn, VpnServer, VpnUser
from infra.render.internet import NOT_INTERNET
from infra.render.openvpn.servers import private_address
from infra.render.templating import fill


def firewall(cluster: Cluster, server: VpnServer, outputs: Outputs) -> str:
    """``etc/nftables/remote-access.nft``."""
    overlay = cluster.kubernetes.overlay
    vpn, own = cluster.access.vpn, private_address(server, outputs)
    inside = tuple(collapse_addresses([*cluster.network.private, *vpn.laptops]))
    return fill(
        "openvpn/firewall.nft.j2",
        site=server.site,
        devices=", ".join(f'"{listener.device}"' for listener in server.listeners),
        listeners=server.listeners,
        laptops=_listed(listener.block for listener in server.listeners),
        here=_listed(listener.address for listener in server.listeners),
        mss=vpn.mss,
        users=[_user(vpn, user) for user in vpn.users],
        wireguard=_wireguard(vpn, server),
        groups=[
            {"name": group.name, "reach": [row for reach in group.reach for row in _reach(reach, outputs)]}
            for group in vpn.groups
        ],
        internet=_listed(collapse_addresses([*NOT_INTERNET, *inside])) if vpn.full_tunnel else None,
        resolver={"address": own, "inside": _listed(inside)} if own and server.kind == "aws" else None,
        overlay=overlay.interface,
        astray={
            "interface": overlay.interface,
            "to": _listed(collapse_addresses([cluster.network.pods, cluster.network.services])),
        }
        if overlay.interface and server.kind == "aws"
        else None,
        translated={"to": _listed(vpn.routes), "source": server.source} if server.source else None,
    )


def _wireguard(vpn: Vpn, server: VpnServer) -> dict[str, object] | None:
    device = next((each.device for each in server.listeners if each.name == "wireguard"), None)
    users = [{"block": user.devices, "login": user.login} for user in vpn.users]
    return {"device": device, "users": users} if device else None


def _user(vpn: Vpn, user: VpnUser) -> dict[str, object]:
    known = {group.name for group in vpn.groups}
    chains = [f"group-{name}" for name in dict.fromkeys(user.groups) if name in known]
    return {"login": user.login, "chains": [*chains, *(["internet"] if vpn.full_tunnel else [])]}


def _reach(reach: Reach, outputs: Outputs) -> list[dict[str, object]]:
    """A rule; none if AWS has not assigned the machines' addresses yet."""
    machines = (outputs.instances[name].private for name in reach.instances if name in outputs.instances)
    to = collapse_addresses([*reach.blocks, *(IPv4Network(address) for address in machines)])
    ports = ", ".join(map(str, reach.tcp_ports))
    return [{"name": reach.name, "to": listed, "ports": ports}] if (listed := _listed(to)) else []


def _listed(blocks: Iterable[IPv4Network | IPv4Address]) -> str:
    """Elements of a set: a single address without its prefix, as nft prints it."""
    return ", ".join(str(block).removesuffix("/32") for block in blocks)
