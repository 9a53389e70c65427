"""Remote access: VPN servers, the settings they push, and access rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, collapse_addresses
from typing import Final

from infra.catalogue import packets
from infra.model.machines import Instance
from infra.model.names import identifier
from infra.model.places import PhysicalSite, Region
from infra.model.platform import SshAccess
from infra.model.remote import Listener, Reach, Vpn, VpnGroup, VpnServer, VpnUser, Wireguard
from infra.resolve.addresses import WIREGUARD, WIREGUARD_SERVERS, clients_key, devices_key
from infra.resolve.services import resolver
from infra.schema import Spec
from infra.schema.defaults import SERVERS_OF_CLIENTS, node_prefix, vpn_host, vpn_sites

UDP_PORT: Final = 1194
"""OpenVPN's port at IANA."""
TCP_PORT: Final = 443
"""A port that hotels and guest networks allow."""
WIREGUARD_PORT: Final = 51822
"""51820 and 51821 are used by flannel with the WireGuard backend: a VPN server is a node of the cluster."""

CLUSTER_DOMAIN: Final = "cluster.local"
"""kubeadm's default, which many charts assume."""

_HOME_PATH: Final = 1492
"""The lowest common MTU of home connections: Ethernet's, less PPPoE's eight bytes (RFC 2516)."""

_AMAZON_DNS: Final = 2
"""A VPC's DNS server has the second address of its block (VPC User Guide, "Amazon DNS server")."""


def resolve_vpn(
    spec: Spec,
    zone: str,
    blocks: Mapping[str, IPv4Network],
    regions: Sequence[Region],
    sites: Sequence[PhysicalSite],
    gateways: Sequence[Instance],
    ssh_nodes: Sequence[Instance],
    ssh: Sequence[SshAccess],
    pods_mtu: int,
) -> Vpn:
    """The settings of remote access, except values that AWS decides."""
    written = spec.access.vpn
    primary = regions[0].name if regions else None
    servers = tuple(
        server
        for name in vpn_sites(spec, primary)
        if (server := _server(spec, name, zone, blocks, regions, sites, gateways))
    )
    nodes = tuple(collapse_addresses([*(region.vpc for region in regions), *(site.lan for site in sites)]))
    pods, services = blocks["kubernetes/pods"], blocks["kubernetes/services"]
    routes = tuple(collapse_addresses([*nodes, pods, services]))
    # The largest packet that fits a home connection and reaches every pod: the pod network's MTU is the
    # smallest.
    size = min(packets.openvpn(_HOME_PATH), pods_mtu)
    wireguard = _wireguard(spec, blocks, pods_mtu)
    return Vpn(
        name=f"vpn.{zone}",
        openvpn="openvpn" in written.kinds,
        wireguard=wireguard,
        first=written.kinds[0],
        clients=blocks["access/clients"],
        pods=_servers_pods(spec, pods),
        servers=servers,
        random=written.random,
        full_tunnel=written.full_tunnel,
        routes=routes,
        domains=(zone, CLUSTER_DOMAIN),
        cluster_domain=CLUSTER_DOMAIN,
        cluster_resolver=resolver(services),
        mtu=size,
        mss=packets.mss(min(size, wireguard.mtu) if wireguard else size),
        certificate_days=written.certificate_days,
        session_seconds=spec.access.session_limit,
        groups=tuple(
            VpnGroup(
                name,
                tuple(
                    _reach(what, name, (pods,), (services,), nodes, routes, sites, ssh_nodes, ssh)
                    for what in sorted(set(group.reach))
                ),
            )
            for name, group in sorted(spec.access.groups.items())
        ),
        users=tuple(
            VpnUser(
                login,
                user.groups,
                user.expires.isoformat() if user.expires else None,
                blocks[devices_key(login)] if wireguard else None,
            )
            for login, user in sorted(spec.access.users.items())
            if user.vpn
        ),
    )


def _wireguard(spec: Spec, blocks: Mapping[str, IPv4Network], pods_mtu: int) -> Wireguard | None:
    if "wireguard" not in spec.access.vpn.kinds:
        return None
    return Wireguard(blocks[WIREGUARD], min(packets.wireguard(_HOME_PATH), pods_mtu))


def _server(
    spec: Spec,
    name: str,
    zone: str,
    blocks: Mapping[str, IPv4Network],
    regions: Sequence[Region],
    sites: Sequence[PhysicalSite],
    gateways: Sequence[Instance],
) -> VpnServer | None:
    """The VPN server of a site; None if the site has no machine for it."""
    block = blocks[clients_key(name)]
    key, listeners = identifier(name), _listeners(spec, block, blocks)
    pods = _pods_of(block, blocks["access/clients"], _servers_pods(spec, blocks["kubernetes/pods"]))
    for instance in gateways:
        if instance.site == name:
            vpc = next(region.vpc for region in regions if region.name == name)
            host = instance.public_name or ""
            return VpnServer(
                name, key, "aws", host, instance.hostname, instance.fqdn, listeners, None, pods,
                vpc[_AMAZON_DNS],
            )  # fmt: skip
    for site in sites:
        for node in site.nodes if site.name == name else ():
            if "access-gateway" in node.roles:
                host, fqdn = _host(spec, site, node.name), f"{node.name}.{zone}"
                return VpnServer(
                    name, key, "physical", host, node.name, fqdn, listeners, node.address, pods, None
                )
    return None


def _servers_pods(spec: Spec, pods: IPv4Network) -> IPv4Network | None:
    """The last part of the pod range, with as many node blocks as there may be servers: the controller
    assigns blocks to nodes from the start of the range (kube-controller-manager, ``RangeAllocator``)."""
    length = node_prefix(spec.kubernetes.pods.pods_per_node) - (SERVERS_OF_CLIENTS - 1).bit_length()
    return max(pods.subnets(new_prefix=length)) if length > pods.prefixlen else None


def _pods_of(block: IPv4Network, clients: IPv4Network, pods: IPv4Network | None) -> IPv4Network | None:
    """The pod block of a server. It has the same position as the server's block among the client blocks,
    which the lock file keeps."""
    if pods is None:
        return None
    place = (int(block.network_address) - int(clients.network_address)) // block.num_addresses
    return tuple(pods.subnets(new_prefix=pods.prefixlen + (SERVERS_OF_CLIENTS - 1).bit_length()))[place]


def _host(spec: Spec, site: PhysicalSite, node: str) -> str:
    if spec.dns.public is not None:
        return f"{vpn_host(site.name)}.{spec.dns.public.zone}"
    return str(site.gateway.addresses_of(node)[0]) if site.gateway else ""


def _listeners(spec: Spec, block: IPv4Network, blocks: Mapping[str, IPv4Network]) -> tuple[Listener, ...]:
    """The listeners of a server. The first half of its block is for UDP, the second for TCP, whether or not
    TCP is used, so that adding the fallback later renumbers nothing. A WireGuard device has the same
    address at every server."""
    vpn, found = spec.access.vpn, []
    first, second = block.subnets()
    if "openvpn" in vpn.kinds:
        found.append(Listener("udp", UDP_PORT, "tun-udp", first, first[1]))
        if vpn.tcp:
            found.append(Listener("tcp", TCP_PORT, "tun-tcp", second, second[1]))
    if "wireguard" in vpn.kinds:
        own = blocks[WIREGUARD_SERVERS][1]
        found.append(Listener("wireguard", WIREGUARD_PORT, "wg-laptops", blocks[WIREGUARD], own))
    return tuple(found)


def _reach(
    what: str,
    group: str,
    pods: tuple[IPv4Network, ...],
    services: tuple[IPv4Network, ...],
    nodes: tuple[IPv4Network, ...],
    everything: tuple[IPv4Network, ...],
    sites: Sequence[PhysicalSite],
    ssh_nodes: Sequence[Instance],
    ssh: Sequence[SshAccess],
) -> Reach:
    if what == "ssh":
        allowed = {fqdn for access in ssh if group in access.groups for fqdn in access.nodes}
        own = (IPv4Network(node.address) for site in sites for node in site.nodes if "ssh-node" in node.roles)
        there = tuple(each.hostname for each in ssh_nodes if each.fqdn in allowed)
        return Reach(what, tuple(own), there, (22,))
    blocks = {"pods": pods, "services": services, "nodes": nodes, "everything": everything}[what]
    return Reach(what, blocks, (), ())
