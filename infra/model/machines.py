"""What machines have in common; in the cloud: images, node pools and their groups, single instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import Literal, TypeAlias

from msgspec import Struct

from infra.model.kubernetes import Reserved, Taint
from infra.model.places import Gpus, PhysicalSite

Architecture: TypeAlias = Literal["x86_64", "arm64"]


class Machines(Struct, frozen=True):
    """What is the same on every machine, in racks and regions."""

    time_servers: tuple[str, ...]
    """The best first; none: the distribution's pool."""
    packages: tuple[str, ...]
    registry_mirrors: Mapping[str, tuple[str, ...]]
    """Registry → addresses of its mirrors, in the order they are asked."""
    unattended_upgrades: bool


class SourceImage(Struct, frozen=True):
    """The published image that a bake starts from."""

    owner: str
    name: str
    """A name pattern for ``aws_ami``/``describe-images``: the newest that matches is used."""


class ImageGpu(Struct, frozen=True):
    """GPU software of an image."""

    driver: int
    cuda: str | None
    open_kernel_modules: bool
    fabric_manager: bool


class Image(Struct, frozen=True):
    """A machine image."""

    name: str
    ubuntu: str
    codename: str
    architecture: Architecture
    debian_architecture: str
    """``amd64``."""
    source: SourceImage
    gpu: ImageGpu | None
    root_disk_gib: int
    packages: tuple[str, ...]
    """Debian packages, those of every machine included."""
    roles: tuple[str, ...]
    build_type: str
    ids: Mapping[str, str]
    """Baked AMIs: AWS site → id. A site that is missing runs the source image until one is baked."""


class WeightedType(Struct, frozen=True):
    """An instance type of a group."""

    name: str
    weight: int


class PricedType(Struct, frozen=True):
    """An instance type of a group in the group's region."""

    name: str
    weight: int
    vcpus: int
    """What it counts for in a quota; 0 where the catalogue does not know the type."""
    on_demand: float | None
    """USD an hour; None where the catalogue has none."""
    spot: float | None
    """The same to be expected on the spot market."""
    quota_on_demand: str
    """The vCPU quota that it counts against; empty where there is none."""
    quota_spot: str


class Disk(Struct, frozen=True):
    """An EBS volume."""

    device: str
    """``/dev/sda1`` for the root volume, ``/dev/sdf`` and on for others (EC2 User Guide, device names)."""
    size_gib: int
    type: str
    iops: int | None
    throughput: int | None


class Market(Struct, frozen=True):
    """How instances are bought, as an Auto Scaling group's instances distribution states it."""

    kind: Literal["on-demand", "spot", "mixed", "capacity-block"]
    on_demand_base: int
    on_demand_percent: int
    strategy: str
    max_price: str | None


class CapacityReservation(Struct, frozen=True):
    """Reserved capacity."""

    preference: Literal["open", "none", "capacity-reservations-only"]
    id: str | None
    resource_group: str | None


class WarmPool(Struct, frozen=True):
    """Instances that wait."""

    state: str
    min: int
    max_prepared: int | None
    reuse: bool


class NodeGroup(Struct, frozen=True):
    """A pool at one AWS site: one Auto Scaling group."""

    name: str
    """The group's AWS name: ``research-us-west-2-gpu-p3``; of a pool that was renamed, with its
    first name."""
    key: str
    pool: str
    site: str
    min: int
    max: int
    zones: tuple[str, ...]
    subnets: tuple[str, ...]
    """Names of subnets in the region."""
    image_id: str | None
    """The baked AMI; None runs the newest source image."""
    capacity_reservation: CapacityReservation | None
    labels: Mapping[str, str]
    """Every Kubernetes label that a node of the group carries when it joins."""
    resources: Mapping[str, str]
    """What an empty node has, in Kubernetes quantities: cpu, memory, ephemeral-storage, nvidia.com/gpu, and
    with EFA vpc.amazonaws.com/efa and hugepages-2Mi."""
    allocatable: Mapping[str, str]
    """What of it pods get, ``pods`` among it: never more than the smallest of the types really offers."""
    types: tuple[PricedType, ...]
    """Those of the pool, in order of preference."""
    tags: Mapping[str, str]
    """On the group and, as they propagate, on its instances."""
    autoscaler_tags: Mapping[str, str]
    """On the group alone: what an autoscaler must know to scale from zero (``…/node-template/…``)."""
    user_data: Mapping[str, object]
    """Facts for cloud-init: plain JSON values, never a secret."""

    @property
    def hourly_price(self) -> float | None:
        """On demand, of the first type, USD an hour; None where the catalogue has none."""
        return self.types[0].on_demand

    @property
    def spot_price(self) -> float | None:
        """The same to be expected on the spot market."""
        return self.types[0].spot


class NodePool(Struct, frozen=True):
    """A node pool over its regions."""

    name: str
    renamed_from: str | None
    key: str
    instance_types: tuple[WeightedType, ...]
    architecture: Architecture
    image: str
    market: Market
    role: str
    gpus: Gpus | None
    root_disk: Disk
    scratch_disks: tuple[Disk, ...]
    taints: tuple[Taint, ...]
    priority: int
    placement_group: Literal["none", "cluster", "spread", "partition"]
    efa_interfaces: int
    """Elastic Fabric Adapters of an instance; 0 without EFA."""
    launch: Literal["template", "configuration"]
    capacity_rebalance: bool
    warm_pool: WarmPool | None
    max_lifetime_seconds: int | None
    drain_timeout_seconds: int
    reserved: Reserved
    """Of the smallest of the types: a machine works it out again from its own size."""
    groups: tuple[NodeGroup, ...]
    """In overflow order."""


class Instance(Struct, frozen=True):
    """A single machine in the cloud with a name of its own: a master, an SSH node, a VPN end point."""

    name: str
    """Its AWS name: ``research-us-west-2-master-1``."""
    key: str
    hostname: str
    """Its short name in DNS: ``master-1``."""
    fqdn: str
    public_name: str | None
    """Its name in the public zone, where it has an elastic address and there is such a zone."""
    role: Literal["control-plane", "ssh-node", "access-gateway"]
    run_list: tuple[str, ...]
    """What Chef runs on it."""
    site: str
    zone: str
    subnet: str
    instance_type: str
    architecture: Architecture
    gpus: Gpus | None
    image: str
    image_id: str | None
    root_disk: Disk
    public: bool
    """Whether it gets an elastic address."""
    ssh_from: tuple[IPv4Network, ...]
    """Public blocks that may reach port 22."""
    hourly_price: float | None
    labels: Mapping[str, str]
    """Kubernetes labels that it carries if it is a node."""
    taints: tuple[Taint, ...]
    """What keeps pods off it."""
    tags: Mapping[str, str]
    user_data: Mapping[str, object]


class ControlPlane(Struct, frozen=True):
    """The masters and their load balancer."""

    site: str
    masters: tuple[Instance, ...]
    load_balancer: str
    """The network load balancer's AWS name, at most 32 characters."""
    endpoint: str
    """``api.research.internal``."""
    port: int


def has_gpus(pools: Iterable[NodePool], sites: Iterable[PhysicalSite]) -> bool:
    """Whether any node of the cluster has GPUs, or may come to have some."""
    return any(pool.gpus for pool in pools) or any(node.gpus for site in sites for node in site.nodes)
