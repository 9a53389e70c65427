"""Regions, physical sites and the connections between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Literal

from infra.catalogue import drivers, endpoints, gpus, regions
from infra.catalogue.labels import CAPACITY, OURS
from infra.catalogue.limits import NAMES
from infra.errors import Problem, dotted
from infra.model.kubernetes import Taint
from infra.model.labels import gpu_labels, interconnect_label, place_labels, role_taints
from infra.model.names import aws_name, identifier, link_name, subnet_name, thing_tags, tunnel_secret
from infra.model.places import (
    TIERS,
    Endpoint,
    FlowLogs,
    Gateway,
    Gpus,
    Link,
    Peering,
    PhysicalDisk,
    PhysicalNode,
    PhysicalSite,
    Region,
    RetiredRegion,
    Routing,
    Subnet,
    SystemDisks,
    Tunnel,
)
from infra.model.sharing import shared, sharing_labels
from infra.resolve.addresses import tunnel_owner
from infra.resolve.numbers import asn_key
from infra.resolve.reservations import allocatable, reserved
from infra.resolve.software import run_list
from infra.resolve.transit import connected, reached
from infra.resolve.zones import Zones, nat_owner
from infra.schema import Spec
from infra.schema import sites as written
from infra.schema.defaults import hub, linked_sites, region_order, system_disks, zones_of

_TRAFFIC: Final[Mapping[str, Literal["ACCEPT", "REJECT", "ALL"]]] = {
    "accept": "ACCEPT",
    "reject": "REJECT",
    "all": "ALL",
}


_PREFIX: Final = NAMES["iam-role"].characters - len("-flow-logs")
"""The maximum length of a region's name prefix: AWS limits the name of the flow logs' role, the longest
one."""


def resolve_regions(
    spec: Spec,
    blocks: Mapping[str, IPv4Network],
    numbers: Mapping[str, int],
    kept: Zones,
    environment: str,
) -> tuple[Region, ...]:
    """Every region, in overflow order; its zones sorted by name, whatever their order in the spec."""
    found = []
    for order, name in enumerate(region_order(spec)):
        site = spec.sites[name]
        assert isinstance(site, written.AwsSite)
        stated = zones_of(name, site)
        zones = tuple(sorted(stated))
        known = regions.find(site.region or name)
        assert known is not None
        found.append(
            Region(
                name=name,
                key=identifier(name),
                aws_name=aws_name(_PREFIX, environment, name),
                region=known.name,
                location=known.location,
                partition=known.partition,
                primary=order == 0,
                order=order,
                vpc=blocks[f"sites/{name}"],
                zones=zones,
                subnets=tuple(
                    Subnet(subnet_name(tier, zone), tier, zone, blocks[key])
                    for tier in TIERS
                    for zone in zones
                    if (key := f"sites/{name}/{subnet_name(tier, zone)}") in blocks
                ),
                nat=_nat(name, site.nat, zones, stated[0], kept),
                endpoints=_endpoints(site, known),
                flow_logs=FlowLogs(int(site.flow_logs.retention_days), _traffic(site.flow_logs))
                if site.flow_logs.enabled
                else None,
                asn=numbers[asn_key(name)],
                kms_key=site.kms_key,
                tags=thing_tags(name, "network"),
            )
        )
    return tuple(found)


def resolve_retired(spec: Spec, regions: Mapping[str, str]) -> tuple[RetiredRegion, ...]:
    """AWS sites that are in the lock file and no longer in the spec, by name."""
    return tuple(
        RetiredRegion(name, identifier(name), region)
        for name, region in sorted(regions.items())
        if not isinstance(spec.sites.get(name), written.AwsSite)
    )


def moved_regions(regions: Iterable[Region], held: Mapping[str, str]) -> list[Problem]:
    """A LOCK007 for each site whose AWS region differs from the lock file: Terraform would look for its
    resources in the new region, find none, and drop those in the old region from the state."""
    return [
        Problem(
            "LOCK007",
            dotted(("sites", region.name)),
            f"the lock file holds {held[region.name]} as the AWS region of {region.name}; the spec says "
            f"{region.region}",
            hint=f"give the site in {region.region} another name; or, if {region.name} was never applied, "
            "take its line out of 'regions' in the lock file",
        )
        for region in regions
        if held.get(region.name, region.region) != region.region
    ]


def _nat(site: str, nat: written.Nat, zones: tuple[str, ...], first: str, kept: Zones) -> dict[str, str]:
    match nat:
        case written.Nat.NONE:
            return {}
        case written.Nat.ONE:
            return dict.fromkeys(zones, kept.zone(nat_owner(site), zones, first))
        case written.Nat.ONE_PER_ZONE:
            return {zone: zone for zone in zones}


def _endpoints(site: written.AwsSite, region: regions.Region) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(
            service,
            endpoints.service_name(service, region.name, region.partition),
            "gateway" if word in endpoints.GATEWAYS else "interface",
        )
        for word in dict.fromkeys(site.endpoints)
        for service in endpoints.services(word)
    )


def _traffic(logs: written.FlowLogs) -> Literal["ACCEPT", "REJECT", "ALL"]:
    return _TRAFFIC[logs.traffic]


def resolve_sites(spec: Spec, zone: str, numbers: Mapping[str, int]) -> tuple[PhysicalSite, ...]:
    """Every physical site, by name."""
    return tuple(
        PhysicalSite(
            name=name,
            key=identifier(name),
            location=site.location,
            lan=site.cidr,
            mtu=site.mtu,
            gateway=_gateway(spec, name, site, numbers),
            nodes=tuple(_node(spec, name, site, host, zone) for host in sorted(site.nodes)),
            autoinstall=site.autoinstall,
            tags=thing_tags(name, "site"),
        )
        for name, site in sorted(spec.sites.items())
        if isinstance(site, written.PhysicalSite)
    )


def _gateway(spec: Spec, name: str, site: written.PhysicalSite, numbers: Mapping[str, int]) -> Gateway | None:
    gateway = site.gateway
    if gateway is None:
        return None
    return Gateway(
        gateway.addresses,
        numbers[asn_key(name)],
        _gateway_node(site),
        gateway.behind_nat,
        _routing(spec, gateway),
        gateway.ssh_from,
        gateway.standby,
        gateway.virtual_address if gateway.standby is not None else None,
    )


def _gateway_node(site: written.PhysicalSite) -> str | None:
    """The host name of the machine of the preferred gateway, never the standby; None if there is none."""
    gateway, role = site.gateway, written.NodeRole.SITE_GATEWAY
    if gateway is None:
        return None
    able = (host for host, node in sorted(site.nodes.items()) if role in node.roles)
    return gateway.node or next((host for host in able if host != gateway.standby), None)


def _routing(spec: Spec, gateway: written.Gateway) -> Routing:
    return (gateway.routing or spec.network.routing).value


def _node(spec: Spec, name: str, site: written.PhysicalSite, host: str, zone: str) -> PhysicalNode:
    node = site.nodes[host]
    router = _router(site, host)
    system = system_disks(site, node)
    node_gpus = _gpus(node.gpus.model, node.gpus.count, node.gpus.driver) if node.gpus is not None else None
    if node_gpus is not None and node.gpus is not None:
        node_gpus = shared(node_gpus, node.gpus.time_slices, node.gpus.mig)
    default = written.NodeRole.GPU_WORKER if node_gpus else written.NodeRole.WORKER
    labels = {
        **spec.kubernetes.labels,
        # The rack is the failure domain: its machines share a switch and a fuse.
        **place_labels(name, name, (node.rack or name,)),
        **({f"{OURS}/rack": node.rack} if node.rack else {}),
        CAPACITY: "physical",
        **interconnect_label(),
        **gpu_labels(node_gpus, owned=True),
        **sharing_labels(node_gpus),
        **node.labels,
    }
    roles = tuple(role.value for role in node.roles or (default,))
    return PhysicalNode(
        name=host,
        fqdn=f"{host}.{zone}",
        address=node.address,
        mac=node.mac,
        rack=node.rack,
        cpus=node.cpus,
        memory_mib=node.memory,
        disks=tuple(PhysicalDisk(disk.device, disk.size, disk.use) for disk in node.disks),
        gpus=node_gpus,
        roles=roles,
        run_list=run_list(roles, node_gpus),
        labels=dict(sorted(labels.items())),
        ubuntu=node.ubuntu or site.ubuntu,
        system=SystemDisks(system.raid is not None, system.lvm, system.root),
        router=router,
        # The site's resolver must not use itself as a resolver.
        resolvers=tuple(each for each in site.resolvers if each != node.address) or (router,),
        taints=(
            *role_taints(roles),
            *(Taint(each.key, each.value, each.effect.value) for each in node.taints),
        ),
        reserved=reserved(node.cpus, node.memory, spec.kubernetes.pods.pods_per_node),
        allocatable=allocatable(
            node.cpus,
            node.memory,
            spec.kubernetes.pods.pods_per_node,
            gpus=node_gpus.offered if node_gpus is not None else 0,
        ),
    )


def _router(site: written.PhysicalSite, host: str) -> IPv4Address:
    """A node's default router: as stated; else the gateway, by its virtual address if the site has two; else
    the first address of the LAN. A gateway uses neither gateway: its default route is the uplink of both."""
    first = site.cidr[1] if site.cidr.prefixlen < 31 else site.cidr[0]
    gateway, name = site.gateway, _gateway_node(site)
    standby = gateway.standby if gateway is not None else None
    virtual = gateway.virtual_address if gateway is not None and standby is not None else None
    addresses = [site.nodes[each].address for each in (name, standby) if each in site.nodes]
    if host in (name, standby):
        return first if site.router is None or site.router in (virtual, *addresses) else site.router
    return site.router or virtual or (addresses[0] if name in site.nodes else first)


@cache
def _gpus(model: str, count: int, driver: int | None) -> Gpus | None:
    gpu = gpus.find(model)
    if gpu is None:
        return None
    newest = drivers.newest_for([gpu])
    branch = driver or (newest.branch if newest else gpu.first_driver)
    opened = gpu.open_kernel_modules and branch >= drivers.OPEN_MODULES_SINCE
    return Gpus(
        gpu.slug,
        gpu.name,
        count,
        gpu.memory_mib,
        gpu.gpu_class,
        branch,
        gpu.architecture,
        opened,
        offered=count,
    )


def resolve_links(
    spec: Spec, blocks: Mapping[str, IPv4Network], numbers: Mapping[str, int]
) -> tuple[Link, ...]:
    """Every VPN connection, by site and region."""
    found = []
    order = region_order(spec)
    vpcs = {site: blocks[f"sites/{site}"] for site in order}
    reach = {site: reached(spec, site, joined, vpcs) for site, joined in connected(spec).items()}
    for aws_site in order:
        aws = spec.sites[aws_site]
        assert isinstance(aws, written.AwsSite)
        for name, site in linked_sites(spec, aws):
            assert site.gateway is not None
            for number, address in enumerate(site.gateway.addresses, start=1):
                link = link_name(name, aws_site, number)
                found.append(
                    Link(
                        name=link,
                        key=identifier(link),
                        site=name,
                        aws_site=aws_site,
                        customer_gateway=name if number == 1 else f"{name}-{number}",
                        address=address,
                        site_asn=numbers[asn_key(name)],
                        aws_asn=numbers[asn_key(aws_site)],
                        routing=_routing(spec, site.gateway),
                        site_blocks=(site.cidr,),
                        aws_blocks=reach[name][aws_site],
                        # AWS cannot initiate a connection to a gateway behind NAT.
                        startup_action="add" if site.gateway.behind_nat else "start",
                        tunnels=(_tunnel(link, 1, blocks), _tunnel(link, 2, blocks)),
                        tags=thing_tags(aws_site, "vpn", peer=name),
                    )
                )
    return tuple(sorted(found, key=lambda link: link.name))


def _tunnel(link: str, number: int, blocks: Mapping[str, IPv4Network]) -> Tunnel:
    inside = blocks[tunnel_owner(link, number)]
    return Tunnel(1 if number == 1 else 2, inside, inside[1], inside[2], tunnel_secret(link, number))


def resolve_peerings(spec: Spec) -> tuple[Peering, ...]:
    """Each peered pair of regions once; with a hub, only the pairs that include it."""
    names, middle = sorted(region_order(spec)), hub(spec)
    return tuple(
        Peering(
            name=f"{requester}-{accepter}",
            key=identifier(f"{requester}-{accepter}"),
            requester=requester,
            accepter=accepter,
            tags=thing_tags(requester, "peering", peer=accepter),
        )
        for index, requester in enumerate(names)
        for accepter in names[index + 1 :]
        if middle in (None, requester, accepter)
    )
