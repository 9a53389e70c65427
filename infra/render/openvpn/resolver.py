"""Names for laptops: dnsmasq on each server."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from infra.model import Cluster, Outputs
from infra.model.remote import VpnServer
from infra.render.openvpn.places import private_address
from infra.render.templating import fill


def dnsmasq(cluster: Cluster, server: VpnServer, outputs: Outputs) -> str:
    """``etc/remote-access/dnsmasq.conf``."""
    vpn, network = cluster.access.vpn, cluster.network
    zone, own = vpn.domains[0], private_address(server, outputs)
    upstream = _upstream(cluster, server, outputs)
    nodes = sorted([*(region.vpc for region in cluster.regions), *(site.lan for site in cluster.sites)])
    return fill(
        "openvpn/dnsmasq.conf.j2",
        site=server.site,
        addresses=[
            *(listener.address for listener in server.listeners),
            # Servers at physical sites ask this one.
            *([own] if own and server.kind == "aws" else []),
        ],
        zone=zone,
        upstream=upstream,
        alone=[] if upstream else [zone],
        # What stands in the hosts file is asked of nobody: not for IPv6 addresses either, over tunnels that
        # may be down. In regions the VPC's own resolver is always there.
        local=[] if server.kind == "aws" else _local(cluster, outputs),
        reverse=[{"block": block, "resolver": one} for block in nodes for one in upstream],
        cluster_domain=vpn.cluster_domain,
        cluster_resolver=vpn.cluster_resolver,
        cluster_blocks=sorted({network.pods, network.services}),
    )


def hosts(cluster: Cluster, server: VpnServer, outputs: Outputs) -> str:
    """``etc/remote-access/hosts``: names that the server knows by itself, also while tunnels are down."""
    names = dict(_names(cluster, outputs))
    width = max((len(str(address)) for address in names.values()), default=0)
    rows = [{"address": str(names[name]).ljust(width), "name": name} for name in sorted(names)]
    return fill("openvpn/hosts.j2", site=server.site, rows=rows)


def _upstream(cluster: Cluster, server: VpnServer, outputs: Outputs) -> tuple[str, ...]:
    """Who knows the private zone: the VPC's resolver, or those of our servers that have one.

    They are asked from the server's own address: a tunnel's is one that nobody else knows a way to.
    """
    if server.resolver:
        return (str(server.resolver),)
    others = (each for each in cluster.access.vpn.servers if each.resolver)
    addresses = (address for each in others if (address := private_address(each, outputs)))
    return tuple(f"{address}@{server.source}" if server.source else str(address) for address in addresses)


def _names(cluster: Cluster, outputs: Outputs) -> Iterator[tuple[str, IPv4Address]]:
    for site in cluster.sites:
        for node in site.nodes:
            yield node.fqdn, node.address
    masters = cluster.control_plane.masters if cluster.control_plane else ()
    for instance in (*masters, *cluster.ssh_nodes, *cluster.access_gateways):
        if instance.hostname in outputs.instances:
            yield instance.fqdn, outputs.instances[instance.hostname].private


def _local(cluster: Cluster, outputs: Outputs) -> list[str]:
    """Names of which the hosts file says all that there is: the spec has no record of or below them."""
    records = {record.name for record in cluster.dns.records if record.type != "A"}
    below = {record.name.partition(".")[2] for record in cluster.dns.records}
    parents = set(below)
    for name in below:
        while name := name.partition(".")[2]:
            parents.add(name)
    return sorted(name for name, _ in _names(cluster, outputs) if name not in records | parents)
