"""The elements of the diagram and its tables: parts of a cluster by name, with a few facts each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from infra.model import Cluster
from infra.model.machines import NodeGroup, NodePool
from infra.model.places import Gpus

CLIENTS: Final = "access/clients"
GONE: Final = "no longer in the spec"
_DASH: Final = "\N{EN DASH}"
_ROLES: Final = {"control-plane": "master", "ssh-node": "SSH node", "access-gateway": "VPN server"}


@dataclass(frozen=True, slots=True)
class Element:
    """A part of the cluster."""

    id: str
    """See ``infra.render.topology.render``."""
    kind: str
    """``node pool``: there is a table for each kind."""
    name: str
    place: str = ""
    address: str = ""
    """CIDR blocks, addresses, or the name of a bucket."""
    details: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """The facts shown beside the name, in columns."""
    ends: tuple[str, ...] = ()
    """Of a connection: the ids of the elements that it connects."""

    @property
    def summary(self) -> str:
        """All facts, one per line."""
        first = f"{self.kind} {self.name}{f' in {self.place}' if self.place else ''}"
        return "\n".join(filter(None, (first, self.address, *self.details)))


def elements(cluster: Cluster) -> dict[str, Element]:
    """Element id → element, grouped by place, in the order of the diagram."""
    sections = (_regions, _sites, _pools, _machines, _nodes, _storage, _subnets, _access, _lines, _ranges)
    return {element.id: element for section in sections for element in section(cluster)}


def count(number: int, one: str) -> str:
    """``1 pool``, ``2 pools``."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def _make(
    name: tuple[str, str, str],
    place: str = "",
    address: object = "",
    *details: str,
    beside: Iterable[str] = (),
    ends: tuple[str, ...] = (),
) -> Element:
    return Element(*name, place, str(address), tuple(filter(None, details)), tuple(beside), ends)


def _list(label: str, values: Iterable[object]) -> str:
    """``zones a, b``; empty without values."""
    words = ", ".join(map(str, values))
    return f"{label} {words}" if words else ""


def _span(low: int, high: int) -> str:
    return f"{low:,}{_DASH}{high:,}" if low != high else f"{low:,}"


def _gpus(gpus: Gpus | None) -> str:
    """Four times ``TITAN X (Pascal)``; empty without GPUs."""
    if gpus is None:
        return ""
    return f"{gpus.count} \N{MULTIPLICATION SIGN} {gpus.name.removeprefix('NVIDIA ').removeprefix('Tesla ')}"


def _price(dollars: float | None) -> str:
    return f"about ${dollars:,.3f} an hour" if dollars else ""


def _groups(cluster: Cluster, region: str) -> list[tuple[NodePool, NodeGroup]]:
    """The node pools of a region, in the order in which the autoscaler prefers them."""
    pools = sorted(cluster.pools, key=lambda pool: (-pool.priority, pool.name))
    return [(pool, group) for pool in pools for group in pool.groups if group.site == region]


def _regions(cluster: Cluster) -> Iterator[Element]:
    for region in cluster.regions:
        groups = [group for _, group in _groups(cluster, region.name)]
        nodes = _span(sum(group.min for group in groups), sum(group.max for group in groups))
        size = f"{count(len(groups), 'pool')}, {nodes} nodes"
        order = "primary" if region.primary else f"number {region.order + 1} in overflow order"
        nat = _list("NAT gateways in", sorted(set(region.nat.values()))) or "no NAT gateway"
        name = (region.name, "region", region.name)
        facts = (order, _list("zones", region.zones), nat, f"AS {region.asn}", size)
        yield _make(name, region.region, region.vpc, region.location, *facts, beside=(size,))


def _sites(cluster: Cluster) -> Iterator[Element]:
    for site in cluster.sites:
        gpus = sum(node.gpus.count for node in site.nodes if node.gpus)
        size = count(len(site.nodes), "node") + (f", {count(gpus, 'GPU')}" if gpus else "")
        facts = [size]
        if gateway := site.gateway:
            facts += [_list("public", gateway.addresses), f"{gateway.routing} routing, AS {gateway.asn}"]
            facts += ["behind NAT"] * gateway.behind_nat
        name = (site.name, "physical site", site.name)
        yield _make(name, "", site.lan, site.location, *facts, beside=(size,))


def _pools(cluster: Cluster) -> Iterator[Element]:
    for pool, group in (found for region in cluster.regions for found in _groups(cluster, region.name)):
        nodes, market, first = _span(group.min, group.max), pool.market.kind, pool.instance_types[0].name
        price = _price(group.hourly_price if market == "on-demand" else group.spot_price)
        yield _make(
            (f"{group.site}/{pool.name}", "node pool", pool.name),
            group.site,
            "",
            f"{nodes} nodes",
            _list("", (each.name for each in pool.instance_types)).strip(),
            _gpus(pool.gpus),
            f"{market}{f', {price} for {first}' if price else ''}",
            _list("zones", group.zones),
            f"image {pool.image}",
            f"{count(pool.efa_interfaces, 'EFA interface')}" if pool.efa_interfaces else "",
            _list("taints", (taint.text for taint in pool.taints)),
            beside=(_gpus(pool.gpus) or first, market, nodes),
        )


def _machines(cluster: Cluster) -> Iterator[Element]:
    for machine in cluster.instances:
        kind, public = _ROLES[machine.role], "public" if machine.public else "private"
        facts = (machine.instance_type, f"{public}, in {machine.subnet}", _price(machine.hourly_price))
        name = (f"{machine.site}/machines/{machine.hostname}", kind, machine.hostname)
        listens = _listens(cluster, machine.site, machine.hostname)
        beside = (kind, machine.instance_type, machine.zone)
        yield _make(name, machine.site, machine.fqdn, *facts, *listens, beside=beside)


def _nodes(cluster: Cluster) -> Iterator[Element]:
    for site, node in [(each, node) for each in cluster.sites for node in each.nodes]:
        roles, gpus = ", ".join(node.roles), _gpus(node.gpus)
        facts = (roles, gpus, f"{node.cpus} CPUs, {node.memory_mib / 1024:g} GiB")
        name = (f"{site.name}/nodes/{node.name}", "physical node", node.name)
        listens = _listens(cluster, site.name, node.name)
        beside = (str(node.address), gpus or roles)
        yield _make(name, site.name, node.address, *facts, *listens, beside=beside)


def _storage(cluster: Cluster) -> Iterator[Element]:
    for system in cluster.storage.efs:
        facts = (f"{system.throughput} throughput", "daily backup" if system.backup else "no backup")
        name = (f"{system.site}/efs/{system.name}", "EFS", system.name)
        yield _make(name, system.site, system.path, *facts, beside=("EFS", system.path))
    for bucket in cluster.storage.s3:
        path, rights = bucket.path or "", "read only" if bucket.read_only else ""
        name = (f"{bucket.site}/s3/{bucket.name}", "S3 bucket", bucket.name)
        yield _make(name, bucket.site, bucket.bucket, path, rights, beside=("S3", path))
    for export in cluster.storage.nfs:
        rights = "read only" if export.read_only else ""
        name = (f"{export.site}/nfs/{export.name}", "NFS export", export.name)
        served = f"{export.server}:{export.export}"
        yield _make(name, export.site, served, export.path, rights, beside=("NFS", export.path))


def _subnets(cluster: Cluster) -> Iterator[Element]:
    for region in cluster.regions:
        for subnet in region.subnets:
            nat = f"NAT in {region.nat[subnet.zone]}" if subnet.zone in region.nat else "none"
            out = {"public": "internet gateway", "private": nat}.get(subnet.tier, "none")
            name = (f"{region.name}/subnets/{subnet.name}", "subnet", subnet.name)
            yield _make(name, region.name, subnet.block, subnet.tier, subnet.zone, f"way out: {out}")


def _access(cluster: Cluster) -> Iterator[Element]:
    vpn = cluster.access.vpn
    spoken = " and ".join(["OpenVPN"] * vpn.openvpn + ["WireGuard"] * (vpn.wireguard is not None))
    spoken = spoken if vpn.servers else "no VPN server"
    routes = "all traffic through the VPN" if vpn.full_tunnel else _list("routes", vpn.routes)
    facts = (spoken, count(len(vpn.users), "user"), routes)
    yield _make((CLIENTS, "laptops", "Laptops"), "", _list("", vpn.laptops).strip(), *facts, beside=(spoken,))
    for server in vpn.servers:
        name = (f"{CLIENTS}/{server.site}", "VPN access", server.host or server.node)
        listens = _listens(cluster, server.site, server.node)
        yield _make(name, server.site, "", f"on {server.node}", *listens, ends=(CLIENTS, server.site))
    for group in vpn.groups:
        users = _list("users", (user.login for user in vpn.users if group.name in user.groups))
        reach = (_list(f"{each.name}:", (*each.blocks, *each.instances)) for each in group.reach)
        name = (f"access/groups/{group.name}", "group of users", group.name)
        beside = (", ".join(each.name for each in group.reach) or "nothing",)
        yield _make(name, "", "", *reach, users or "no users", beside=beside)


def _lines(cluster: Cluster) -> Iterator[Element]:
    for link in cluster.network.links:
        routing = f"{link.routing} routing, AS {link.site_asn} and AS {link.aws_asn}"
        inside = ", ".join(str(tunnel.inside) for tunnel in link.tunnels)
        facts = (f"customer gateway {link.address}", routing, _list("from AWS", link.aws_blocks))
        ends = (link.site, link.aws_site)
        yield _make((f"link/{link.name}", "VPN connection", _DASH.join(ends)), "", inside, *facts, ends=ends)
    for gateway in cluster.gateways:
        for tunnel in gateway.tunnels:
            if tunnel.kind == "site" and gateway.site < tunnel.peer:
                inside = f"{tunnel.inside_local}, {tunnel.inside_remote}"
                routing = f"{tunnel.routing} routing, AS {gateway.asn} and AS {tunnel.remote_asn}"
                ends = (gateway.site, tunnel.peer)
                name = (f"link/{tunnel.link}", "site tunnel", _DASH.join(ends))
                yield _make(name, "", inside, f"{tunnel.local_id} and {tunnel.remote}", routing, ends=ends)
    kind = "VPC peering" if cluster.network.interconnect == "peering" else "transit gateway peering"
    for peering in cluster.network.peerings:
        ends = (peering.requester, peering.accepter)
        yield _make((f"peering/{peering.name}", kind, _DASH.join(ends)), ends=ends)


def _ranges(cluster: Cluster) -> Iterator[Element]:
    network, kind = cluster.network, "address range"
    yield _make(("supernet", kind, "Supernet"), "", network.supernet)
    if cluster.control_plane:
        yield _make(
            ("kubernetes/pods", kind, "Pods"), "", network.pods, f"/{network.pods_node_prefix} a node"
        )
        yield _make(("kubernetes/services", kind, "Services"), "", network.services)
    if network.links or any(tunnel.kind == "site" for each in cluster.gateways for tunnel in each.tunnels):
        yield _make(("links", kind, "Tunnels"), "", "169.254.0.0/16")


def _listens(cluster: Cluster, site: str, node: str) -> Iterator[str]:
    """The protocols that a VPN server offers; empty for another machine."""
    for server in cluster.access.vpn.servers:
        if (server.site, server.node) == (site, node):
            for each in server.listeners:
                yield f"VPN on {each.name.upper()} {each.port}, laptops in {each.block}"
