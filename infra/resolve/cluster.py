"""Spec + lock → Cluster: makes every decision, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network, collapse_addresses
from typing import Final, Literal

from msgspec import structs

from infra.collector import paused
from infra.errors import SpecError
from infra.model import Cluster
from infra.model.cluster import Aws, Secrets, State
from infra.model.names import common_tags
from infra.model.places import Block, Network, Region
from infra.resolve.addons import offers, resolve_addons
from infra.resolve.addresses import plan_addresses
from infra.resolve.allocate_blocks import Plan
from infra.resolve.allocate_numbers import Numbers
from infra.resolve.claims import Source
from infra.resolve.instances import (
    Foundry,
    resolve_access_gateways,
    resolve_control_plane,
    resolve_ssh_nodes,
)
from infra.resolve.kubernetes import resolve_kubernetes, resolve_web_identity
from infra.resolve.lockfile import Lock
from infra.resolve.machines import resolve_images, resolve_machines, resolve_pools
from infra.resolve.mounts import Joined
from infra.resolve.numbers import plan_numbers
from infra.resolve.places import (
    moved_regions,
    resolve_links,
    resolve_peerings,
    resolve_regions,
    resolve_retired,
    resolve_sites,
)
from infra.resolve.platform import (
    resolve_access,
    resolve_audit_log,
    resolve_autoscaler,
    resolve_dns,
    resolve_snapshots,
    resolve_ssh,
    resolve_storage,
)
from infra.resolve.pod_network import overlay_ports, resolve_overlay, resolve_pod_egress
from infra.resolve.pool_names import plan_pool_names
from infra.resolve.remote import resolve_vpn
from infra.resolve.research import resolve_research, resolve_tracking, resolve_work
from infra.resolve.software import resolve_client, resolve_gpu_families, resolve_software
from infra.resolve.transit import resolve_transit
from infra.resolve.tunnels import resolve_gateways, resolve_ipsec
from infra.resolve.zones import Zones
from infra.schema import Spec
from infra.schema.defaults import hub, interconnect, node_prefix

_ORIGINS: Final[Mapping[Source, Literal["stated", "kept"]]] = {
    Source.SPEC: "stated",
    Source.LOCK: "kept",
    Source.NEW: "kept",
}
"""A new block counts as kept: it is in the lock from now on, so that the next run resolves to the same
cluster."""


def resolve(spec: Spec, lock: Lock, environment: str) -> tuple[Cluster, Lock]:
    """Resolve a valid spec to a cluster, and return the new contents of its lock.

    ``environment`` is the spec file's name without its extension. Raises ``SpecError`` with every block that
    does not fit and every number that cannot be allocated.
    """
    with paused():
        return _resolve(spec, lock, environment)


def _resolve(spec: Spec, lock: Lock, environment: str) -> tuple[Cluster, Lock]:
    plan, numbers = _plans(spec, lock)
    blocks = plan.blocks
    zone = spec.dns.zone or spec.domain
    zones = Zones(lock.zones)
    regions = resolve_regions(spec, blocks, numbers.numbers, zones, environment)
    if moved := moved_regions(regions, lock.regions):
        raise SpecError(moved)
    primary = regions[0].name if regions else None
    sites = resolve_sites(spec, zone, numbers.numbers)
    images = resolve_images(spec, lock)
    facts = {"cluster": spec.name, "environment": environment, "domain": zone}
    public_zone = spec.dns.public.zone if spec.dns.public else None
    foundry = Foundry(environment, zone, regions, images, facts, zones, public_zone)
    masters = resolve_control_plane(spec, foundry, primary) if primary and images else None
    ssh_nodes = resolve_ssh_nodes(spec, foundry, primary) if primary else ()
    gateways = resolve_access_gateways(spec, foundry, primary) if primary and images else ()
    network = _network(spec, plan, numbers.numbers, regions)
    ssh = resolve_ssh(spec, ssh_nodes)
    overlay = resolve_overlay(spec, sites, gateways)
    vpn = resolve_vpn(spec, zone, blocks, regions, sites, gateways, ssh_nodes, ssh, overlay.mtu)
    site_gateways = resolve_gateways(spec, sites, network.links, blocks)
    pool_names = plan_pool_names(spec.pools, lock.pools)
    pools = resolve_pools(spec, environment, regions, images, facts, pool_names.born)
    joined = Joined(network.links, site_gateways, {region.name: region.vpc for region in regions})
    storage = resolve_storage(spec, environment, zone, regions, sites, joined)
    if masters:
        storage = structs.replace(
            storage,
            snapshots=resolve_snapshots(spec, environment, regions, masters),
            audit=resolve_audit_log(spec, environment, regions, masters),
        )
    if masters and spec.research:
        storage = structs.replace(storage, work=resolve_work(spec, spec.research, environment, regions[0]))
    addons = resolve_addons(spec, offers(pools, sites, storage))
    kubernetes = resolve_kubernetes(
        spec, overlay, resolve_pod_egress(spec, regions, sites), addons, network.services
    )
    access = resolve_access(spec, zone, numbers.numbers, numbers.lock, ssh, vpn)
    cluster = Cluster(
        name=spec.name,
        environment=environment,
        domain=zone,
        owner=spec.owner,
        tags=common_tags(spec.name, environment, spec.owner, spec.tags),
        aws=Aws(spec.aws.account, spec.aws.profile, spec.aws.embedded),
        state=_state(spec, environment, regions[0].region if regions else None),
        secrets=Secrets(
            spec.secrets.store,
            spec.secrets.prefix or f"/causeway/{environment}",
            regions[0].region if regions else "",
            tuple(region.region for region in regions[1:] if not region.nat),
        ),
        network=network,
        regions=regions,
        retired=resolve_retired(spec, lock.regions),
        sites=sites,
        gateways=site_gateways,
        machines=resolve_machines(spec),
        images=images,
        pools=pools,
        control_plane=masters,
        ssh_nodes=ssh_nodes,
        access_gateways=gateways,
        kubernetes=kubernetes,
        storage=storage,
        dns=resolve_dns(spec, zone, sites, kubernetes.ingress if masters else None),
        access=access,
        autoscaler=resolve_autoscaler(
            spec, regions, (*(masters.masters if masters else ()), *ssh_nodes, *gateways)
        ),
        software=resolve_software(spec),
        client=resolve_client(spec),
        gpu_families=resolve_gpu_families(spec, sites, pools),
        research=resolve_research(spec.research, regions, sites) if masters and spec.research else None,
        tracking=resolve_tracking(spec.kubernetes.tracking, environment, regions[0])
        if masters and spec.research and spec.kubernetes.tracking
        else None,
        web_identity=resolve_web_identity(spec, environment, regions[0], access)
        if masters and (spec.research or (kubernetes.has("s3-csi-driver") and storage.s3_volumes))
        else None,
    )
    return cluster, replace(
        lock,
        blocks=plan.lock,
        numbers=numbers.lock,
        regions={**lock.regions, **{region.name: region.region for region in regions}},
        zones=zones.kept,
        pools=pool_names.lock,
    )


def _plans(spec: Spec, lock: Lock) -> tuple[Plan, Numbers]:
    """The plans of addresses and numbers. Raises ``SpecError`` with the problems of both."""
    numbers = plan_numbers(spec, lock)
    try:
        plan = plan_addresses(spec, lock)
    except SpecError as error:
        raise SpecError([*error.problems, *numbers.problems]) from None
    if numbers.problems:
        raise SpecError(numbers.problems)
    return plan, numbers


def _state(spec: Spec, environment: str, primary: str | None) -> State:
    if spec.state.kind == "local":
        return State("local", None, None, None)
    return State(
        "s3",
        spec.state.bucket,
        spec.state.region or primary,
        spec.state.key or f"{environment}/terraform.tfstate",
    )


def _network(spec: Spec, plan: Plan, numbers: Mapping[str, int], regions: tuple[Region, ...]) -> Network:
    blocks = plan.blocks
    return Network(
        supernet=spec.supernet,
        interconnect=interconnect(spec),
        hub=hub(spec),
        pods=blocks["kubernetes/pods"],
        pods_node_prefix=node_prefix(spec.kubernetes.pods.pods_per_node),
        services=blocks["kubernetes/services"],
        clients=blocks["access/clients"],
        private=_private(spec.supernet, blocks),
        blocks=tuple(
            Block(owner, claim.block, _ORIGINS[claim.source])
            for owner, claim in sorted(plan.claims.items())
            if owner in blocks and claim.source in _ORIGINS
        ),
        links=resolve_links(spec, blocks, numbers),
        peerings=resolve_peerings(spec),
        transit=resolve_transit(spec, regions),
        alarm_emails=spec.network.alarms.emails if spec.network.alarms else (),
        ipsec=resolve_ipsec(spec.network.hold),
        overlay_ports=overlay_ports(spec.kubernetes.pods.backend),
    )


def _private(supernet: IPv4Network, blocks: dict[str, IPv4Network]) -> tuple[IPv4Network, ...]:
    """The supernet, which is used by this cluster only, and the cluster's blocks outside of it.

    Not each block: a new region would then change the security groups of all others, and thirty regions
    would exceed the quota of rules. Blocks inside tunnels are left out, as they are used only there.
    """
    tops = (
        block for owner, block in blocks.items() if owner.count("/") == 1 and not owner.startswith("links/")
    )
    return tuple(collapse_addresses([supernet, *tops]))
