"""Named EC2 instances: masters, SSH nodes, access gateways."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Literal

from infra.catalogue import instances, prices
from infra.model.labels import instance_labels, role_taints
from infra.model.machines import ControlPlane, Disk, Image, Instance
from infra.model.names import identifier, named, subnet_name, thing_tags
from infra.model.places import Region, Tier
from infra.resolve.machines import ROOT_DEVICE, gpus_of
from infra.resolve.software import run_list
from infra.resolve.zones import Zones, instance_owner
from infra.schema import Spec
from infra.schema.defaults import MASTER, control_image, hosts, vpn_host, vpn_sites

API_PORT = 6443
"""The port of the Kubernetes API."""


class Foundry:
    """Makes instances; holds what all of them have in common."""

    def __init__(
        self,
        environment: str,
        zone: str,
        regions: tuple[Region, ...],
        images: tuple[Image, ...],
        facts: Mapping[str, object],
        zones: Zones,
        public_zone: str | None = None,
    ) -> None:
        self.environment = environment
        self.zone = zone
        self.zones = zones
        self.public_zone = public_zone
        self.regions = {region.name: region for region in regions}
        self.images = {image.name: image for image in images}
        self.facts = facts

    def instance(
        self,
        site: str,
        hostname: str,
        index: int,
        role: Literal["control-plane", "ssh-node", "access-gateway"],
        instance_type: str,
        image_name: str,
        *,
        root_gib: int | None = None,
        public: bool = False,
        ssh_from: tuple[IPv4Network, ...] = (),
    ) -> Instance:
        """One instance; ``index`` (from 0) spreads new instances of a role over the region's zones."""
        region, image = self.regions[site], self.images[image_name]
        spread = region.zones[index % len(region.zones)]
        zone = self.zones.zone(instance_owner(site, hostname), region.zones, spread)
        kind = instances.find(instance_type)
        node_gpus = gpus_of(kind, image) if kind is not None else None
        tier: Tier = "public" if public else "private"
        name = named("tag-value", self.environment, site, hostname)
        taints = role_taints((role,))
        labels = dict(sorted(instance_labels(site, region.region, zone, instance_type).items()))
        return Instance(
            name=name,
            key=identifier(hostname),
            hostname=hostname,
            fqdn=f"{hostname}.{self.zone}",
            public_name=f"{hostname}.{self.public_zone}" if public and self.public_zone else None,
            role=role,
            run_list=run_list((role,), node_gpus),
            site=site,
            zone=zone,
            subnet=subnet_name(tier, zone),
            instance_type=instance_type,
            architecture=image.architecture,
            gpus=node_gpus,
            image=image_name,
            image_id=image.ids.get(site),
            root_disk=Disk(ROOT_DEVICE, root_gib or image.root_disk_gib, "gp3", None, None),
            public=public,
            ssh_from=ssh_from,
            hourly_price=prices.on_demand(instance_type, region.region),
            labels=labels,
            taints=taints,
            tags=thing_tags(site, role),
            user_data={
                **self.facts,
                "site": site,
                "role": role,
                "hostname": hostname,
                "labels": labels,
                "taints": [each.text for each in taints],
            },
        )


def _control_image(spec: Spec) -> str:
    image = control_image(spec)
    assert image is not None, "without an image there are no machines"
    return image


def resolve_control_plane(spec: Spec, foundry: Foundry, primary: str) -> ControlPlane:
    """The masters, spread over the zones of the primary region."""
    wanted = spec.kubernetes.control_plane
    masters = tuple(
        foundry.instance(
            primary,
            hostname,
            index,
            "control-plane",
            wanted.instance_type,
            _control_image(spec),
            root_gib=-(-wanted.root_disk // 1024),
        )
        for index, hostname in enumerate(hosts(MASTER, int(wanted.count)))
    )
    return ControlPlane(
        site=primary,
        masters=masters,
        load_balancer=named("load-balancer", foundry.environment, primary, "api"),
        endpoint=f"api.{foundry.zone}",
        port=API_PORT,
    )


def resolve_ssh_nodes(spec: Spec, foundry: Foundry, primary: str) -> tuple[Instance, ...]:
    """The hosts that users log in to by SSH."""
    return tuple(
        foundry.instance(
            node.site or primary,
            hostname,
            index,
            "ssh-node",
            node.instance_type,
            node.image,
            root_gib=-(-node.root_disk // 1024) if node.root_disk else None,
            public=node.public,
            ssh_from=node.ssh_from,
        )
        for name, node in sorted(spec.access.ssh_nodes.items())
        for index, hostname in enumerate(hosts(name, node.count))
    )


def resolve_access_gateways(spec: Spec, foundry: Foundry, primary: str) -> tuple[Instance, ...]:
    """VPN servers in regions, each with an Elastic IP address."""
    vpn = spec.access.vpn
    return tuple(
        foundry.instance(
            site,
            vpn_host(site),
            0,
            "access-gateway",
            vpn.instance_type,
            vpn.image or _control_image(spec),
            public=True,
        )
        for site in vpn_sites(spec, primary)
        if site in foundry.regions
    )
