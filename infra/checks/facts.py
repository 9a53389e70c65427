"""Facts about a spec that several rules need, computed once, with data from the catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network

from infra.catalogue import gpus, instances, regions
from infra.catalogue.gpus import Gpu
from infra.catalogue.instances import InstanceType
from infra.catalogue.limits import RESERVED_PER_SUBNET
from infra.catalogue.regions import Region
from infra.errors import Path
from infra.model.places import Tier
from infra.schema import Spec, addons, defaults
from infra.schema.pools import Image, Pool, PoolRegion
from infra.schema.sites import AwsSite, NodeRole, PhysicalNode, PhysicalSite


@dataclass(frozen=True, slots=True)
class Place:
    """An AWS site."""

    name: str
    site: AwsSite
    region: str
    known: Region | None
    """The catalogue's row; None if the region does not exist."""
    zones: tuple[str, ...]
    """The existing zones that it uses, without duplicates."""

    def at(self, *rest: str | int) -> Path:
        """A path below the site's."""
        return ("sites", self.name, *rest)

    def stated(self, zone: str, tier: Tier) -> IPv4Network | None:
        """The block that ``explicit_subnets`` gives, or None."""
        subnets = self.site.explicit_subnets.get(zone)
        block: IPv4Network | None = getattr(subnets, tier, None)
        return block

    def subnet_size(self, tier: Tier, zone: str) -> int:
        """The number of addresses of a subnet, including reserved ones: stated, or by the tier's prefix; 0
        without one."""
        block = self.stated(zone, tier)
        if block is not None:
            return block.num_addresses
        prefix: int | None = getattr(self.site.subnets, tier)
        return 0 if prefix is None else 1 << (32 - prefix)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine at a physical site."""

    site: str
    name: str
    node: PhysicalNode
    gpu: Gpu | None
    """The catalogue's row of its GPUs; None without GPUs, or if the model does not exist."""

    def at(self, *rest: str | int) -> Path:
        """A path below the node's."""
        return ("sites", self.site, "nodes", self.name, *rest)

    @property
    def roles(self) -> tuple[NodeRole, ...]:
        """As stated, else by its hardware."""
        return self.node.roles or ((NodeRole.GPU_WORKER,) if self.node.gpus else (NodeRole.WORKER,))


@dataclass(frozen=True, slots=True)
class Typed:
    """An existing instance type of a pool."""

    path: Path
    type: InstanceType
    weight: int


@dataclass(frozen=True, slots=True)
class Machines:
    """A pool and the catalogue's rows of its types."""

    name: str
    pool: Pool
    image: Image | None
    types: tuple[Typed, ...]
    """The types that exist."""

    def at(self, *rest: str | int) -> Path:
        """A path below the pool's."""
        return ("pools", self.name, *rest)

    @property
    def with_gpus(self) -> tuple[Typed, ...]:
        return tuple(typed for typed in self.types if typed.type.gpus)

    def nodes(self, capacity: int) -> int:
        """The maximum number of machines in this many units of capacity (EC2 Auto Scaling, weights)."""
        lightest = min(weighted.weight for weighted in self.pool.instance_types)
        return -(-capacity // lightest)


@dataclass(frozen=True, slots=True)
class Group:
    """A pool at an existing AWS site: one Auto Scaling group."""

    machines: Machines
    place: Place
    bounds: PoolRegion
    zones: tuple[str, ...]
    """The site's zones that it uses: as stated, or all that offer one of its types."""

    def at(self, *rest: str | int) -> Path:
        """A path below the pool's bounds in the site."""
        return ("pools", self.machines.name, "regions", self.place.name, *rest)

    @property
    def nodes(self) -> int:
        """The maximum number of machines."""
        return self.machines.nodes(self.bounds.max)


@dataclass(frozen=True, slots=True)
class Single:
    """Cloud machines that a spec names individually: masters, SSH nodes, VPN servers."""

    owner: str
    """A description: ``the control plane``, ``SSH node login``."""
    path: Path
    """Its path in the spec."""
    type_name: str
    image_name: str | None
    """None if unknown."""
    site: str | None
    """None if there is no such region."""
    count: int

    @property
    def type(self) -> InstanceType | None:
        return instances.find(self.type_name)


@dataclass(frozen=True, slots=True)
class Use:
    """An instance type that uses an image."""

    owner: str
    """A description: ``pool gpu``, ``SSH node login``."""
    path: Path
    """The path at which the type is named."""
    type: InstanceType
    gpu: Gpu | None


class Facts:
    """A spec, with cached facts for rules. Read-only."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """The AWS sites, by name."""
        found = {}
        for name, site in self.spec.sites.items():
            if isinstance(site, AwsSite):
                region = site.region or name
                known = regions.find(region)
                zones: tuple[str, ...] = ()
                if known is not None:
                    wanted = defaults.zones_of(name, site)
                    zones = tuple(dict.fromkeys(zone for zone in wanted if known.has_zone(zone)))
                found[name] = Place(name, site, region, known, zones)
        return found

    @cached_property
    def physical_sites(self) -> Mapping[str, PhysicalSite]:
        """The physical sites, by name."""
        return {name: site for name, site in self.spec.sites.items() if isinstance(site, PhysicalSite)}

    @cached_property
    def nodes(self) -> Sequence[Node]:
        """Every physical node."""
        return [
            Node(name, host, node, gpus.find(node.gpus.model) if node.gpus else None)
            for name, site in self.physical_sites.items()
            for host, node in site.nodes.items()
        ]

    @cached_property
    def servers(self) -> Mapping[tuple[str, NodeRole], Sequence[Node]]:
        """Site and stated role → the nodes with it."""
        found: defaultdict[tuple[str, NodeRole], list[Node]] = defaultdict(list)
        for node in self.nodes:
            for role in node.node.roles:
                found[node.site, role].append(node)
        return found

    @cached_property
    def primary(self) -> Place | None:
        """The site of the control plane; None without one, or if it is ambiguous."""
        leading = [place for place in self.places.values() if place.site.primary] or list(
            self.places.values()
        )
        return leading[0] if len(leading) == 1 else None

    def linked(self, place: Place) -> Iterator[tuple[str, PhysicalSite]]:
        """The physical sites that have VPN connections to an AWS site."""
        return iter(defaults.linked_sites(self.spec, place.site))

    @cached_property
    def machines(self) -> Sequence[Machines]:
        """Every pool."""
        found = []
        for name, pool in self.spec.pools.items():
            types = []
            for index, weighted in enumerate(pool.instance_types):
                known = instances.find(weighted.type)
                if known is not None:
                    types.append(Typed(("pools", name, "instance_types", index), known, weighted.weight))
            found.append(Machines(name, pool, self.spec.images.get(pool.image), tuple(types)))
        return found

    @cached_property
    def groups(self) -> Sequence[Group]:
        """Every pool at every existing AWS site."""
        return [
            Group(one, place, bounds, _zones(one, place, bounds))
            for one in self.machines
            for name, bounds in one.pool.regions.items()
            if (place := self.places.get(name)) is not None and place.known is not None
        ]

    @cached_property
    def singles(self) -> Sequence[Single]:
        """The cloud machines outside of pools."""
        primary = self.primary.name if self.primary else None
        found = []
        if self.places:
            control = self.spec.kubernetes.control_plane
            found.append(
                Single(
                    "the control plane", ("kubernetes", "control_plane"), control.instance_type,
                    self.control_image, primary, int(control.count),
                )
            )  # fmt: skip
        for name, node in self.spec.access.ssh_nodes.items():
            path = ("access", "ssh_nodes", name)
            site = node.site or primary
            found.append(Single(f"SSH node {name}", path, node.instance_type, node.image, site, node.count))
        vpn = self.spec.access.vpn
        for site in (name for name in self.vpn_sites if name in self.places):
            image = vpn.image or self.control_image
            found.append(Single("the VPN server", ("access", "vpn"), vpn.instance_type, image, site, 1))
        return found

    @cached_property
    def vpn_sites(self) -> tuple[str, ...]:
        """The sites with a VPN server, as stated, else the primary region."""
        return defaults.vpn_sites(self.spec, self.primary.name if self.primary else None)

    @cached_property
    def hosts(self) -> Sequence[tuple[str, Path]]:
        """Every name of a machine or service in the private zone, and the path that defines it."""
        found: list[tuple[str, Path]] = [(node.name, node.at()) for node in self.nodes]
        if self.places:
            control: Path = ("kubernetes", "control_plane")
            masters = int(self.spec.kubernetes.control_plane.count)
            found += [(host, control) for host in ("api", *defaults.hosts(defaults.MASTER, masters))]
        for name, ssh in self.spec.access.ssh_nodes.items():
            path = ("access", "ssh_nodes", name)
            found += [(host, path) for host in defaults.hosts(name, ssh.count)]
        found += [
            (defaults.vpn_host(site), ("access", "vpn")) for site in self.vpn_sites if site in self.places
        ]
        zone = self.spec.dns.zone or self.spec.domain
        if self.places and addons.is_on(self.spec, addons.INGRESS) and addons.page_domain(self.spec) == zone:
            found.append((addons.INGRESS, ("kubernetes", "addons")))
        return found

    @cached_property
    def control_image(self) -> str | None:
        """The control plane's image: as stated, else the first suitable one by name; None without one."""
        return defaults.control_image(self.spec)

    @cached_property
    def plain_images(self) -> Sequence[str]:
        """Images without GPU software, of the architecture of the control plane's type, by name."""
        return defaults.plain_images(self.spec)

    @cached_property
    def uses(self) -> Mapping[str, Sequence[Use]]:
        """Image → the types that use it."""
        found: dict[str, list[Use]] = {name: [] for name in self.spec.images}
        for one in self.machines:
            for typed in one.types:
                _add(found, one.pool.image, f"pool {one.name}", typed.path, typed.type)
        for single in self.singles:
            _add(found, single.image_name, single.owner, (*single.path, "instance_type"), single.type)
        return found


def _add(
    found: dict[str, list[Use]], image: str | None, owner: str, path: Path, kind: InstanceType | None
) -> None:
    if image in found and kind is not None and not any(use.path == path for use in found[image][-1:]):
        gpu = gpus.find(kind.gpus.model) if kind.gpus else None
        found[image].append(Use(owner, path, kind, gpu))


def _zones(one: Machines, place: Place, bounds: PoolRegion) -> tuple[str, ...]:
    if bounds.zones is not None:
        return tuple(zone for zone in place.zones if zone in bounds.zones)
    return defaults.offering_zones(place.zones, place.region, (typed.type.name for typed in one.types))


def usable(addresses: int) -> int:
    """The usable addresses of a subnet: AWS reserves five."""
    return max(0, addresses - RESERVED_PER_SUBNET)
