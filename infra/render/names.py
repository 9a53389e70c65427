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
    """Its configuration.

    Args:
        cluster: Whose names.
        outputs: Without them, it knows less by itself, and may have nobody to ask.
        whose: Who asks it and where, for people: ``laptops at us-west-2``.
        unit: The systemd unit that reads it.
        known: The path of the hosts file.
        addresses: Where it is asked.
        source: The address it asks others from; None where it has one alone.
        resolver: Who knows the private zone, where that is the VPC's own; None at a physical site.
        in_overlay: Whether services and pods are reached from there. Elsewhere, others are asked for theirs.
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
        # Names in the hosts file are not forwarded: not for IPv6 addresses either, over tunnels that
        # may be down. In regions the VPC's own resolver is always there.
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
    """Its hosts file: names that it knows by itself, also while tunnels are down. ``rows``: `known_hosts`."""
    return fill("names/hosts.j2", site=site, rows=rows)


def known_hosts(cluster: Cluster, outputs: Outputs, *, resolver: IPv4Address | None) -> list[str]:
    """Lines of a hosts file. The same for all gateways, of which there may be many."""
    rows = list(_names(cluster, outputs))
    if resolver is None and not _servers(cluster, outputs, None):
        rows += _masters(cluster, outputs)
    width = max((len(str(address)) for _, address in rows), default=0)
    ordered = sorted(rows, key=lambda row: (row[0], int(row[1])))
    return [f"{str(address).ljust(width)} {name}" for name, address in ordered]


def _servers(cluster: Cluster, outputs: Outputs, source: IPv4Address | None) -> tuple[str, ...]:
    """Who knows the private zone beside a VPC's resolver, which answers nobody outside (VPC User Guide,
    "Amazon DNS server"): our VPN servers in regions.

    They are asked from the machine's own address: a tunnel's is one that nobody else knows a way to.
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
    """The API's name where nobody can be asked for that of the load balancer: each master answers."""
    plane = cluster.control_plane
    for master in plane.masters if plane else ():
        if master.hostname in outputs.instances:
            yield plane.endpoint if plane else "", outputs.instances[master.hostname].private


def _local(cluster: Cluster, outputs: Outputs) -> list[str]:
    """Names of which the hosts file says all that there is: the spec has no record of or below them."""
    records = {record.name for record in cluster.dns.records if record.type != "A"}
    below = {record.name.partition(".")[2] for record in cluster.dns.records}
    parents = set(below)
    for name in below:
        while name := name.partition(".")[2]:
            parents.add(name)
    return sorted(name for name, _ in _names(cluster, outputs) if name not in records | parents)
