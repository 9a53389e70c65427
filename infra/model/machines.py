"""Settings common to all machines; in the cloud: images, node pools and their groups, single instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import Literal, TypeAlias

from msgspec import Struct

from infra.model.kubernetes import Reserved, Taint
from infra.model.places import Gpus, PhysicalSite

Architecture: TypeAlias = Literal["x86_64", "arm64"]


class Machines(Struct, frozen=True):
    """Settings common to all machines, at physical sites and in regions."""

    time_servers: tuple[str, ...]
    """In order of preference; empty: the distribution's pool."""
    packages: tuple[str, ...]
    registry_mirrors: Mapping[str, tuple[str, ...]]
    """Registry → URLs of its mirrors, in the order in which they are tried."""
    unattended_upgrades: bool


class SourceImage(Struct, frozen=True):
    """The published image that a bake starts from."""

    owner: str
    name: str
    """A name pattern for ``aws_ami``/``describe-images``: the newest match is used."""


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
    """Debian packages, including those of every machine."""
    roles: tuple[str, ...]
    build_type: str
    ids: Mapping[str, str]
    """Baked AMIs: AWS site → id. Sites without one use the source image."""


class WeightedType(Struct, frozen=True):
    """An instance type of a group."""

    name: str
    weight: int


class PricedType(Struct, frozen=True):
    """An instance type of a group, with prices in the group's region."""

    name: str
    weight: int
    vcpus: int
    """The vCPUs that count against a quota; 0 if the type is not in the catalogue."""
    on_demand: float | None
    """USD per hour; None if the catalogue has no price."""
    spot: float | None
    """The expected Spot price."""
    quota_on_demand: str
    """The vCPU quota that applies to it; empty if there is none."""
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
    """How instances are bought, in the terms of an Auto Scaling group's instances distribution."""

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
    """A pool of pre-initialized instances."""

    state: str
    min: int
    max_prepared: int | None
    reuse: bool


class NodeGroup(Struct, frozen=True):
    """A pool at one AWS site: one Auto Scaling group."""

    name: str
    """The group's AWS name: ``research-us-west-2-gpu-p3``; if the pool was renamed, with its original
    name."""
    key: str
    pool: str
    site: str
    min: int
    max: int
    zones: tuple[str, ...]
    subnets: tuple[str, ...]
    """Names of the region's subnets."""
    image_id: str | None
    """The baked AMI; None: the newest source image."""
    capacity_reservation: CapacityReservation | None
    labels: Mapping[str, str]
    """All Kubernetes labels that a node of the group has when it joins."""
    resources: Mapping[str, str]
    """The capacity of an empty node, in Kubernetes quantities: cpu, memory, ephemeral-storage,
    nvidia.com/gpu, and with EFA vpc.amazonaws.com/efa and hugepages-2Mi."""
    allocatable: Mapping[str, str]
    """The allocatable part of it, including ``pods``: never more than the smallest type really offers."""
    types: tuple[PricedType, ...]
    """The pool's types, in order of preference."""
    tags: Mapping[str, str]
    """On the group and, by propagation, on its instances."""
    autoscaler_tags: Mapping[str, str]
    """On the group only: what an autoscaler must know to scale from zero (``…/node-template/…``)."""
    user_data: Mapping[str, object]
    """Facts for cloud-init: JSON values, never a secret."""

    @property
    def hourly_price(self) -> float | None:
        """The On-Demand price of the first type in USD per hour; None if the catalogue has no price."""
        return self.types[0].on_demand

    @property
    def spot_price(self) -> float | None:
        """The expected Spot price."""
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
    """Elastic Fabric Adapters per instance; 0 without EFA."""
    launch: Literal["template", "configuration"]
    capacity_rebalance: bool
    warm_pool: WarmPool | None
    max_lifetime_seconds: int | None
    drain_timeout_seconds: int
    reserved: Reserved
    """Of the smallest type: a machine computes it from its own size."""
    groups: tuple[NodeGroup, ...]
    """In overflow order."""


class Instance(Struct, frozen=True):
    """A named cloud machine: a master, an SSH node, a VPN server."""

    name: str
    """Its AWS name: ``research-us-west-2-master-1``."""
    key: str
    hostname: str
    """Its host name: ``master-1``."""
    fqdn: str
    public_name: str | None
    """Its name in the public zone, if it has an Elastic IP address and there is such a zone."""
    role: Literal["control-plane", "ssh-node", "access-gateway"]
    run_list: tuple[str, ...]
    """Its Chef run list."""
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
    """Whether it gets an Elastic IP address."""
    ssh_from: tuple[IPv4Network, ...]
    """Public blocks that may connect to port 22."""
    hourly_price: float | None
    labels: Mapping[str, str]
    """Kubernetes labels, if it is a node."""
    taints: tuple[Taint, ...]
    """Its taints, if it is a node."""
    tags: Mapping[str, str]
    user_data: Mapping[str, object]


class ControlPlane(Struct, frozen=True):
    """The masters and their load balancer."""

    site: str
    masters: tuple[Instance, ...]
    load_balancer: str
    """The AWS name of the network load balancer, at most 32 characters."""
    endpoint: str
    """``api.research.internal``."""
    port: int


def has_gpus(pools: Iterable[NodePool], sites: Iterable[PhysicalSite]) -> bool:
    """Whether any node of the cluster has GPUs, including future ones of pools."""
    return any(pool.gpus for pool in pools) or any(node.gpus for site in sites for node in site.nodes)
