"""DNS for clients that cannot use a VPC's own resolver: dnsmasq, on each VPN server for laptops, and on a
site's gateway for machines of its LAN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address

from infra.model import Cluster, Outputs
from infra.render.templating import fill


def dnsmasq(
    cluster: Cluster,
    outputs: Outputs,
    *,
    whose: str,
    unit: str,
    known: str,
    addresses: Sequence[IPv4Address],
    source: IPv4Address | None,
    resolver: IPv4Address | None,
    in_overlay: bool,
) -> str:
    """The configuration of dnsmasq.

    Args:
        cluster: The cluster whose names it serves.
        outputs: Without them, some names are unknown, and there may be no upstream.
        whose: A description of its clients: ``laptops at us-west-2``.
        unit: The systemd unit that runs it.
        known: The path of the hosts file.
        addresses: The addresses on which it listens.
        source: The source address of its own queries; None if there is only one.
        resolver: The VPC's resolver, which knows the private zone; None at a physical site.
        in_overlay: Whether it can reach services and pods. If not, their names are resolved by others.
    """
    vpn, network = cluster.access.vpn, cluster.network
    upstream = (str(resolver),) if resolver else _servers(cluster, outputs, source)
    cluster_upstream = (str(vpn.cluster_resolver),) if in_overlay else upstream
    nodes = sorted([*(region.vpc for region in cluster.regions), *(site.lan for site in cluster.sites)])
    return fill(
        "names/dnsmasq.conf.j2",
        whose=whose,
        unit=unit,
        known=known,
        addresses=addresses,
        zone=cluster.domain,
        upstream=upstream,
        alone=not upstream,
        # Names in the hosts file are not forwarded, not even for IPv6 addresses, as tunnels may be down. In
        # regions the VPC's own resolver is always available.
        local=[] if resolver else _local(cluster, outputs),
        reverse=[{"block": block, "resolver": one} for block in nodes for one in upstream],
        cluster_domain=vpn.cluster_domain,
        cluster_resolvers=cluster_upstream,
        cluster_alone=not cluster_upstream,
        cluster_reverse=[
            {"block": block, "resolver": one}
            for block in sorted({network.pods, network.services})
            for one in cluster_upstream
        ],
    )


def hosts(rows: Sequence[str], *, site: str) -> str:
    """The hosts file, with names that are resolved even while tunnels are down. ``rows``: `known_hosts`."""
    return fill("names/hosts.j2", site=site, rows=rows)


def known_hosts(cluster: Cluster, outputs: Outputs, *, resolver: IPv4Address | None) -> list[str]:
    """Lines of the hosts file. They are the same for all gateways, so callers compute them once."""
    rows = list(_names(cluster, outputs))
    if resolver is None and not _servers(cluster, outputs, None):
        rows += _masters(cluster, outputs)
    width = max((len(str(address)) for _, address in rows), default=0)
    ordered = sorted(rows, key=lambda row: (row[0], int(row[1])))
    return [f"{str(address).ljust(width)} {name}" for name, address in ordered]


def _servers(cluster: Cluster, outputs: Outputs, source: IPv4Address | None) -> tuple[str, ...]:
    """The upstream for the private zone at a physical site: our VPN servers in regions, as a VPC's resolver
    cannot be queried from outside (VPC User Guide, "Amazon DNS server").

    Queries are sent from the machine's own address, as others have no route to a tunnel's address.
    """
    there = (outputs.instances.get(each.node) for each in cluster.access.vpn.servers if each.resolver)
    return tuple(_from(told.private, source) for told in there if told)


def _from(address: IPv4Address, source: IPv4Address | None) -> str:
    return f"{address}@{source}" if source else str(address)


def _names(cluster: Cluster, outputs: Outputs) -> Iterator[tuple[str, IPv4Address]]:
    for site in cluster.sites:
        for node in site.nodes:
            yield node.fqdn, node.address
    for instance in cluster.instances:
        if instance.hostname in outputs.instances:
            yield instance.fqdn, outputs.instances[instance.hostname].private


def _masters(cluster: Cluster, outputs: Outputs) -> Iterator[tuple[str, IPv4Address]]:
    """The addresses of the API's name if the load balancer's name cannot be resolved: any master answers."""
    plane = cluster.control_plane
    for master in plane.masters if plane else ():
        if master.hostname in outputs.instances:
            yield plane.endpoint if plane else "", outputs.instances[master.hostname].private


def _local(cluster: Cluster, outputs: Outputs) -> list[str]:
    """Domains that the hosts file fully covers: the spec has no record of or below them."""
    records = {record.name for record in cluster.dns.records if record.type != "A"}
    below = {record.name.partition(".")[2] for record in cluster.dns.records}
    parents = set(below)
    for name in below:
        while name := name.partition(".")[2]:
            parents.add(name)
    return sorted(name for name, _ in _names(cluster, outputs) if name not in records | parents)
