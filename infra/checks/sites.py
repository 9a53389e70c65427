"""Sites and regions: which exist, which is primary, and the machines at physical sites (SITE)."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Final

from infra.catalogue import drivers, gpus, regions
from infra.checks.facts import Facts
from infra.checks.phrases import listed, meant, meant_one_of, repeated
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.model.disks import whole_disk
from infra.schema.kubernetes import Kubernetes
from infra.schema.sites import Nat, NodeRole, Routing

ROOT_MODULES: Final = frozenset({"identity", "dns"})
"""Module calls of the root module other than regions and their connections."""


@check("SITE001", Level.ERROR, "More than one region is primary.")
def one_primary(facts: Facts) -> Iterator[Finding]:
    primaries = [place for place in facts.places.values() if place.site.primary]
    for place in primaries[1:]:
        message = f"{dotted(primaries[0].at())} is primary already; a cluster has one"
        yield Finding(place.at("primary"), message, "give this one an overflow order instead")


@check("SITE002", Level.ERROR, "There are several regions, and none is primary.")
def some_primary(facts: Facts) -> Iterator[Finding]:
    if len(facts.places) > 1 and not any(place.site.primary for place in facts.places.values()):
        message = f"none of the regions {listed(facts.places)} is primary"
        yield Finding(("sites",), message, "add 'primary: true' to one")


@check("SITE003", Level.ERROR, "An AWS region does not exist.", waivable=False)
def known_region(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        if place.known is None:
            path = place.at("region") if place.site.region else place.at()
            hint = meant(regions.suggest_region(place.region))
            if not hint and not place.site.region:
                hint = "name the AWS region with 'region:'"
            yield Finding(path, f"{place.region} is not an AWS region", hint)


@check("SITE004", Level.ERROR, "A zone is not in its region.")
def known_zone(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        for index, zone in enumerate(place.site.zones or ()):
            if place.known is not None and not place.known.has_zone(zone):
                if regions.is_zone_id(zone):
                    hint = f"ids of its zones begin with {regions.zone_id_prefix(place.region)}-az"
                else:
                    near = regions.suggest_zone(place.region, zone)
                    hint = f"did you mean {near}? There are {listed(place.known.zones, most=8)}"
                yield Finding(place.at("zones", index), f"{zone} is not a zone of {place.region}", hint)


@check("SITE005", Level.ERROR, "A region names a zone twice.", waivable=False)
def zone_twice(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        for index, zone in repeated(place.site.zones or ()):
            yield Finding(place.at("zones", index), f"{zone} is named already", "take one out")


@check("SITE035", Level.ERROR, "A site has zones by name and by id.", waivable=False)
def zones_by_name_and_id(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        zones = place.site.zones or ()
        named = [index for index, zone in enumerate(zones) if not regions.is_zone_id(zone)]
        if named and len(named) < len(zones):
            message = f"{zones[named[0]]} is a name, and others have ids: two may be the same zone"
            yield Finding(place.at("zones", named[0]), message, "name all zones, or give the ids of all")


@check("SITE040", Level.ERROR, "A NAT gateway would be in a zone where AWS creates none.")
def nat_gateway_zone(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        zones = place.zones if place.site.nat is Nat.ONE_PER_ZONE else place.zones[:1]
        for zone in zones if place.site.nat is not Nat.NONE else ():
            if zone in regions.WITHOUT_NAT_GATEWAYS:
                path = place.at("zones", (place.site.zones or ()).index(zone))
                yield Finding(path, *no_nat_gateway(zone))


def no_nat_gateway(zone: str) -> tuple[str, str]:
    """Message and hint for a NAT gateway in a zone that does not support any."""
    return (
        f"AWS makes no NAT gateway in {zone}",
        "'nat: one' with another zone first serves this one too; or leave the zone out",
    )


@check("SITE006", Level.ERROR, "Subnets are defined for a zone that the site does not use.")
def subnets_of_no_zone(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        for zone in place.site.explicit_subnets if place.known is not None else ():
            if zone not in place.zones:
                hint = meant_one_of(zone, place.zones)
                message = f"{place.name} does not use a zone {zone}: these subnets would not be made"
                yield Finding(place.at("explicit_subnets", zone), message, hint)


@check("SITE007", Level.WARNING, "Two regions have the same place in the overflow order.")
def overflow_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[int, str] = {}
    for place in facts.places.values():
        order = place.site.overflow
        if order is not None and not place.site.primary:
            first = seen.setdefault(order, place.name)
            if first != place.name:
                message = f"{first} is number {order} already: the name decides between the two"
                yield Finding(place.at("overflow"), message, "give each its own number")


@check("SITE008", Level.WARNING, "The primary region has a place in the overflow order, which has no effect.")
def overflow_of_primary(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        if place.site.primary and place.site.overflow is not None:
            yield Finding(place.at("overflow"), "the primary region comes before all others", "take it out")


@check("SITE009", Level.ERROR, "A region's VPN connections go to a site that the spec does not have.")
def vpn_to_nowhere(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        for index, name in enumerate(place.site.vpn or ()):
            if name not in facts.physical_sites:
                message = f"{name} is not a physical site of this spec"
                yield Finding(place.at("vpn", index), message, meant_one_of(name, facts.physical_sites))


@check("SITE010", Level.ERROR, "A region's VPN connections go to a site without a gateway.")
def vpn_without_gateway(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        for index, name in enumerate(place.site.vpn or ()):
            site = facts.physical_sites.get(name)
            if site is not None and site.gateway is None:
                hint = f"add {dotted(('sites', name, 'gateway'))} with its public address"
                yield Finding(place.at("vpn", index), f"{name} has no gateway", hint)


@check("SITE011", Level.WARNING, "A physical site without a gateway is isolated.")
def island(facts: Facts) -> Iterator[Finding]:
    asked = {name for place in facts.places.values() for name in place.site.vpn or ()}
    for name, site in facts.physical_sites.items():
        told = name in asked or (name, NodeRole.SITE_GATEWAY) in facts.servers
        if site.gateway is None and len(facts.spec.sites) > 1 and not told:
            message = f"{name} has no gateway: nothing elsewhere can reach it"
            yield Finding(("sites", name), message, "add 'gateway:' with its public address")


@check("SITE012", Level.ERROR, "A gateway names a node that its site does not have.")
def gateway_node(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        node = site.gateway.node if site.gateway is not None else None
        if node is not None and node not in site.nodes:
            path = ("sites", name, "gateway", "node")
            yield Finding(path, f"{name} has no node {node}", meant_one_of(node, site.nodes))


@check("SITE013", Level.WARNING, "A site with a gateway does not define which node it is.")
def gateway_unclear(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        if site.gateway is None or site.gateway.node is not None:
            continue
        able = [
            node
            for node in facts.servers.get((name, NodeRole.SITE_GATEWAY), ())
            if node.name != site.gateway.standby
        ]
        path: Path = ("sites", name, "gateway")
        if len(able) > 1:
            names = listed(node.name for node in able)
            hint = "say which with 'node:', and which stands by, if one does, with 'standby:'"
            yield Finding(path, f"{names} all have the role site-gateway", hint)
        elif not able and site.nodes:
            message = "no node has the role site-gateway: nothing here is set up to run strongSwan"
            yield Finding(path, message, "give a node the role, or name one with 'node:'")


@check(
    "SITE044",
    Level.ERROR,
    "A standby gateway lacks what takes over from the other one.",
    waivable=False,
)
def standby(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        gateway, path = site.gateway, ("sites", name, "gateway", "standby")
        if gateway is None or gateway.standby is None:
            continue
        node, other = site.nodes.get(gateway.standby), gateway.node
        if node is None:
            yield Finding(
                path, f"{name} has no node {gateway.standby}", meant_one_of(gateway.standby, site.nodes)
            )
        elif gateway.standby == other:
            yield Finding(path, f"{other} is the gateway itself", "name another node")
        elif NodeRole.SITE_GATEWAY not in node.roles:
            yield Finding(path, f"{gateway.standby} does not have the role site-gateway", "give it the role")
        if len(gateway.addresses) < 2:
            message = f"{gateway.standby} has no public address: there is one, of the other gateway"
            yield Finding(path, message, f"add its address to {dotted((*path[:3], 'addresses'))}")
        if gateway.virtual_address is None:
            hint = "add 'virtual_address:', an unused address of the LAN"
            yield Finding(path, "the LAN has no router that both gateways can be", hint)
        if (gateway.routing or facts.spec.network.routing) is Routing.STATIC:
            message = "with static routes, AWS does not learn which gateway is in charge"
            yield Finding(path, message, "say 'routing: bgp'")


@check("SITE045", Level.ERROR, "A virtual address is not a free address of the site's LAN.")
def virtual_address(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        found = site.gateway.virtual_address if site.gateway is not None else None
        if found is None:
            continue
        path = ("sites", name, "gateway", "virtual_address")
        owners = [host for host, node in site.nodes.items() if node.address == found]
        if found not in site.cidr:
            yield Finding(path, f"{found} is not in {site.cidr}", "name an address of the LAN")
        elif owners:
            yield Finding(path, f"{found} is the address of {owners[0]}", "name an address that no node has")
        elif found in (site.cidr.network_address, site.cidr.broadcast_address):
            yield Finding(path, f"no machine of {site.cidr} can have {found}", "name an address of the LAN")
        elif found == site.cidr[1] and site.autoinstall and site.router in (None, found):
            message = f"the gateways are installed with {found} as their own default router"
            yield Finding(path, message, "name another unused address of the LAN")


@check("SITE046", Level.WARNING, "A virtual address without a standby has no effect.")
def virtual_address_unused(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        gateway = site.gateway
        if gateway is not None and gateway.virtual_address is not None and gateway.standby is None:
            path = ("sites", name, "gateway", "virtual_address")
            yield Finding(
                path, f"{name} has one gateway", "name the second one with 'standby:', or remove this"
            )


@check("SITE048", Level.WARNING, "Machines have one of two gateways as their router or resolver.")
def one_of_two_gateways(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        virtual = site.gateway.virtual_address if site.gateway is not None and site.gateway.standby else None
        if virtual is None:
            continue
        one = {node.address: host for host, node in site.nodes.items() if NodeRole.SITE_GATEWAY in node.roles}
        stated: list[tuple[Path, IPv4Address | None]] = [(("sites", name, "router"), site.router)]
        if len(site.resolvers) == 1:  # of several, the next one answers
            stated.append((("sites", name, "resolvers", 0), site.resolvers[0]))
        for path, address in stated:
            if address is not None and address in one:
                message = f"{address} is {one[address]} alone, and does not move when the other takes over"
                yield Finding(path, message, f"name {virtual}, or leave it out")


@check("SITE014", Level.WARNING, "A node is to be the gateway of a site that has none.")
def gateway_role_unused(facts: Facts) -> Iterator[Finding]:
    for (name, role), nodes in facts.servers.items():
        if role is NodeRole.SITE_GATEWAY and facts.physical_sites[name].gateway is None:
            for node in nodes:
                yield Finding(node.at("roles"), f"{name} has no gateway for it to be", "add 'gateway:'")


@check("SITE047", Level.WARNING, "A node has the role site-gateway, and is not a gateway of its site.")
def gateway_role_beside(facts: Facts) -> Iterator[Finding]:
    for (name, role), nodes in facts.servers.items():
        site = facts.physical_sites[name]
        gateway = site.gateway
        if role is not NodeRole.SITE_GATEWAY or gateway is None or gateway.node not in site.nodes:
            continue
        for node in nodes:
            if node.name not in (gateway.node, gateway.standby):
                message = f"{gateway.node} is the gateway of {name}: two machines would have its tunnels"
                yield Finding(node.at("roles"), message, "remove the role, or make it the standby")


@check("SITE015", Level.ERROR, "Two physical nodes have the same MAC address.")
def mac_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, Path] = {}
    for node in facts.nodes:
        if node.node.mac is not None:
            path = node.at()
            first = seen.setdefault(node.node.mac, path)
            if first is not path:
                message = f"{node.node.mac} is that of {dotted(first)} already"
                yield Finding(node.at("mac"), message, "read it from the machine: ip -br link")


@check("SITE016", Level.ERROR, "A physical node has a GPU that the catalogue does not know.")
def known_gpu(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.node.gpus is not None and node.gpu is None:
            model = node.node.gpus.model
            path = node.at("gpus", "model")
            hint = meant(gpus.suggest(model)) or "GPUs are named as in titan-x-pascal, a100-40gb"
            yield Finding(path, f"unknown GPU {model}", hint)


@check("SITE039", Level.ERROR, "A physical node's GPU is made with several sizes of memory: name one.")
def one_gpu(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        model = node.node.gpus.model if node.node.gpus is not None else ""
        if sizes := gpus.sizes(model):
            message = f"{model} may be any of {listed(sizes)}"
            yield Finding(node.at("gpus", "model"), message, "name one; nvidia-smi shows the memory")


@check("SITE017", Level.ERROR, "A physical node's driver branch is unknown, or does not run its GPUs.")
def node_driver(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        branch = node.node.gpus.driver if node.node.gpus is not None else None
        if branch is None:
            continue
        path = node.at("gpus", "driver")
        if drivers.find(branch) is None:
            message = f"NVIDIA driver branch {branch} not found"
            yield Finding(path, message, meant(str(drivers.suggest(branch))))
        elif node.gpu is not None and not node.gpu.runs(branch):
            yield Finding(path, driver_misfit(node.gpu, branch), best_driver([node.gpu]))


@check("SITE018", Level.ERROR, "A physical node without GPUs has a role for nodes with GPUs.")
def gpu_role(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        if NodeRole.GPU_WORKER in node.node.roles and node.node.gpus is None:
            index = node.node.roles.index(NodeRole.GPU_WORKER)
            message = f"{node.name} has no GPUs"
            yield Finding(node.at("roles", index), message, "add 'gpus:', or make it a worker")


@check("SITE019", Level.ERROR, "A physical node names a disk twice.")
def disk_twice(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        devices = [disk.device for disk in node.node.disks]
        again = {index: f"{device} is described already" for index, device in repeated(devices)}
        for index, device in enumerate(devices):
            whole = whole_disk(device)
            if whole != device and whole in devices:
                again[index] = f"{device} is a part of {whole}, which is described as well"
        for index, message in again.items():
            yield Finding(node.at("disks", index, "device"), message, "remove one, or correct its device")


@check("SITE020", Level.WARNING, "An NFS server has no disk for what it exports.")
def nfs_disk(facts: Facts) -> Iterator[Finding]:
    for (_, role), nodes in facts.servers.items():
        for node in nodes if role is NodeRole.NFS_SERVER else ():
            if node.node.disks and not any(disk.use == "nfs" for disk in node.node.disks):
                message = f"{node.name} is an NFS server, and none of its disks has 'use: nfs'"
                yield Finding(node.at("disks"), message, "say which disk holds the exports")


@check("SITE021", Level.ERROR, "Regions of different AWS partitions, which no account spans.")
def partitions(facts: Facts) -> Iterator[Finding]:
    known = [place for place in facts.places.values() if place.known is not None]
    for place in known[1:]:
        first = known[0].known
        if place.known and first and place.known.partition != first.partition:
            message = f"{place.region} is in {place.known.partition}, {first.name} in {first.partition}"
            yield Finding(place.at(), message, "an account is in one partition: make it a cluster of its own")


@check("SITE033", Level.ERROR, "A KMS key belongs to another region or account than the site.")
def key_elsewhere(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        if place.site.kms_key is None:
            continue
        _, _, _, region, account, _ = place.site.kms_key.split(":")
        if region != place.region:
            message = f"the key is in {region}; a region's disks need one in {place.region}"
            yield Finding(place.at("kms_key"), message, "take the key's replica there, or another key")
        elif facts.spec.aws.account and account != facts.spec.aws.account:
            message = f"the key is of account {account}, and the cluster of {facts.spec.aws.account}"
            yield Finding(place.at("kms_key"), message, "take a key of the cluster's own account")


@check("SITE036", Level.ERROR, "A region that the pinned release of Terraform's AWS provider does not know.")
def too_new_for_the_provider(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        if place.region in regions.UNKNOWN_TO_THE_PROVIDER:
            message = f"Terraform's AWS provider {regions.PROVIDER} does not know {place.region}"
            yield Finding(place.at(), message, "take another region until a newer provider is pinned")


@check("SITE022", Level.WARNING, "A site is named like an AWS region other than its own.")
def misleading_name(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        if place.name != place.region and place.known is not None and regions.find(place.name) is not None:
            message = f"the site {place.name} is in {place.region}"
            yield Finding(place.at("region"), message, "name it after its own region, or after neither")


@check(
    "SITE024", Level.ERROR, "A region has a name that the rendered Terraform needs itself.", waivable=False
)
def free_name(facts: Facts) -> Iterator[Finding]:
    for place in facts.places.values():
        name = place.name.replace("-", "_")
        if name in ROOT_MODULES or name.startswith(("peering_", "transit_")):
            message = f"a module of the rendered Terraform is called {name}"
            yield Finding(place.at(), message, f"call it {place.region}, after its region")


@check("SITE023", Level.WARNING, "Settings of Kubernetes without a region for the control plane.")
def no_region(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    # Other features that need a region have their own rules.
    storage = spec.storage.efs or spec.storage.s3
    wanted = spec.pools or storage or spec.access.ssh_nodes or spec.research
    if not facts.places and not wanted and spec.kubernetes != Kubernetes():
        message = "without an AWS region there is no control plane; machines take runs by SSH"
        yield Finding(("kubernetes",), message, "take it out, or add a region for the masters")


def driver_misfit(gpu: gpus.Gpu, branch: int) -> str:
    """Why a driver branch does not support a GPU."""
    if branch < gpu.first_driver:
        return f"{gpu.name} needs driver {gpu.first_driver} or newer, not {branch}"
    return f"{gpu.name} has no driver after {gpu.last_driver}, so none from {branch}"


def best_driver(models: list[gpus.Gpu]) -> str:
    """A hint with the branch that supports all GPUs, or that there is none."""
    best = drivers.newest_for(models)
    return f"take {best.branch}" if best else "no driver runs all of them: they need images of their own"
