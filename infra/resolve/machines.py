"""Settings common to all machines; in the cloud: images, node pools and their Auto Scaling groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.catalogue import drivers, gpus, instances, prices, quotas, releases
from infra.model import machines as made
from infra.model.kubernetes import Taint, capacity
from infra.model.labels import interconnect, place_labels, pool_labels
from infra.model.names import autoscaler_tags, group_name, identifier, thing_tags
from infra.model.places import Gpus, Region
from infra.model.sharing import shared
from infra.resolve.lockfile import Lock
from infra.resolve.reservations import allocatable, reserved
from infra.schema import Spec
from infra.schema import pools as written
from infra.schema.defaults import offering_zones, partition_of, rebalances

ROOT_DEVICE: Final = "/dev/sda1"
_SCRATCH_DEVICES: Final = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")
"""EC2 User Guide, "Device names for volumes": the letters f to p are recommended for EBS volumes."""

_BUILD_TYPES: Final = {
    ("x86_64", False): "m6i.xlarge",
    ("x86_64", True): "g4dn.xlarge",
    ("arm64", False): "m7g.xlarge",
    ("arm64", True): "g5g.xlarge",
}


def resolve_machines(spec: Spec) -> made.Machines:
    """Settings that are the same on every machine."""
    wanted = spec.machines
    return made.Machines(
        wanted.time_servers,
        wanted.packages,
        dict(sorted(wanted.registry_mirrors.items())),
        wanted.unattended_upgrades,
    )


def resolve_images(spec: Spec, lock: Lock) -> tuple[made.Image, ...]:
    """Every image, sorted by name, with its known AMI ids."""
    return tuple(_image(spec, lock, name, image) for name, image in sorted(spec.images.items()))


def _image(spec: Spec, lock: Lock, name: str, image: written.Image) -> made.Image:
    ubuntu = releases.ubuntu(image.ubuntu)
    assert ubuntu is not None
    return made.Image(
        name=name,
        ubuntu=image.ubuntu,
        codename=ubuntu.codename,
        architecture=image.architecture.value,
        debian_architecture=releases.DEBIAN[image.architecture.value],
        source=made.SourceImage(
            image.source.owner or releases.CANONICAL[partition_of(spec)],
            image.source.name or ubuntu.image_name(image.architecture.value),
        ),
        gpu=_image_gpu(spec, name, image.gpu) if image.gpu is not None else None,
        root_disk_gib=_gib(image.root_disk),
        packages=tuple(dict.fromkeys((*spec.machines.packages, *image.packages))),
        roles=image.roles or ("base", "gpu-worker" if image.gpu else "worker"),
        build_type=image.build_type or _BUILD_TYPES[image.architecture.value, image.gpu is not None],
        ids=dict(sorted({**lock.images.get(name, {}), **image.ids}.items())),
    )


def _image_gpu(spec: Spec, name: str, gpu: written.ImageGpu) -> made.ImageGpu:
    pools = [pool for pool in spec.pools.values() if pool.image == name]
    types = {weighted.type for pool in pools for weighted in pool.instance_types}
    types |= {node.instance_type for node in spec.access.ssh_nodes.values() if node.image == name}
    models = [
        model
        for kind in types
        if (found := instances.find(kind)) and found.gpus and (model := gpus.find(found.gpus.model))
    ]
    fits = gpu.driver >= drivers.OPEN_MODULES_SINCE and all(model.open_kernel_modules for model in models)
    opened = gpu.open_kernel_modules
    return made.ImageGpu(gpu.driver, gpu.cuda, fits if opened is None else opened, gpu.fabric_manager)


def _gib(mib: int) -> int:
    return -(-mib // 1024)


def resolve_pools(
    spec: Spec,
    environment: str,
    places: tuple[Region, ...],
    images: tuple[made.Image, ...],
    facts: Mapping[str, object],
    born: Mapping[str, str],
) -> tuple[made.NodePool, ...]:
    """Every pool, sorted by name; its groups in overflow order.

    ``facts`` are passed to the cloud-init of every machine; ``born`` as in ``infra.resolve.pool_names``.
    """
    by_name = {image.name: image for image in images}
    return tuple(
        _pool(
            spec,
            environment,
            places=places,
            image=by_name[pool.image],
            facts=facts,
            name=name,
            pool=pool,
            born=born[name],
        )
        for name, pool in sorted(spec.pools.items())
    )


def _pool(
    spec: Spec,
    environment: str,
    *,
    places: tuple[Region, ...],
    image: made.Image,
    facts: Mapping[str, object],
    name: str,
    pool: written.Pool,
    born: str,
) -> made.NodePool:
    types = [found for weighted in pool.instance_types if (found := instances.find(weighted.type))]
    node_gpus = gpus_of(types[0], image)
    if node_gpus is not None:
        node_gpus = shared(node_gpus, pool.gpus.time_slices, pool.gpus.mig)
    role = pool.role or ("gpu-worker" if node_gpus else "worker")
    root = _disk(ROOT_DEVICE, pool.root_disk or written.Disk(size=image.root_disk_gib * 1024))
    taints = tuple(Taint(taint.key, taint.value, taint.effect.value) for taint in pool.taints)
    labels = {
        **spec.kubernetes.labels,
        **pool_labels(
            name,
            pool.market.kind,
            node_gpus,
            joined=interconnect(types),
            efa=pool.efa,
            counted=len({kind.gpus.count for kind in types if kind.gpus}) == 1,
        ),
        **pool.labels,
    }
    (vcpus, mib), pods = _least(types), spec.kubernetes.pods.pods_per_node
    offered, adapters = _offered(types, node_gpus), _adapters(pool, types)
    common = _Common(
        environment=environment,
        cluster=spec.name,
        name=name,
        born=born,
        pool=pool,
        image=image,
        facts=facts,
        types=[kind.name for kind in types],
        role=role,
        labels=labels,
        taints=taints,
        resources=capacity(vcpus, mib, root.size_gib, offered, adapters),
        allocatable=allocatable(vcpus, mib, pods, root.size_gib, offered, adapters),
    )
    return made.NodePool(
        name=name,
        renamed_from=pool.renamed_from,
        key=identifier(name),
        instance_types=tuple(made.WeightedType(each.type, each.weight) for each in pool.instance_types),
        architecture=image.architecture,
        image=image.name,
        market=_market(pool.market),
        role=role,
        gpus=node_gpus,
        root_disk=root,
        scratch_disks=tuple(map(_disk, _SCRATCH_DEVICES, pool.scratch_disks)),
        taints=taints,
        priority=pool.priority,
        placement_group=pool.placement_group,
        efa_interfaces=adapters,
        launch=pool.launch,
        capacity_rebalance=rebalances(pool, with_gpus=node_gpus is not None),
        warm_pool=made.WarmPool(
            pool.warm_pool.state, pool.warm_pool.min, pool.warm_pool.max_prepared, pool.warm_pool.reuse
        )
        if pool.warm_pool
        else None,
        max_lifetime_seconds=pool.max_lifetime,
        drain_timeout_seconds=pool.drain_timeout,
        reserved=reserved(vcpus, mib, pods),
        groups=tuple(_group(common, place) for place in places if place.name in pool.regions),
    )


def gpus_of(kind: instances.InstanceType, image: made.Image) -> Gpus | None:
    """The GPUs of an instance type with the driver of the image; None if either has none."""
    if kind.gpus is None or image.gpu is None:
        return None
    model = gpus.find(kind.gpus.model)
    assert model is not None, "the catalogue knows the GPUs of its own types"
    return Gpus(
        kind.gpus.model, model.name, kind.gpus.count, kind.gpus.memory_mib, model.gpu_class, image.gpu.driver,
        model.architecture, image.gpu.open_kernel_modules, offered=kind.gpus.count,
    )  # fmt: skip


def _market(market: written.Market) -> made.Market:
    percent = {"spot": 0, "mixed": market.on_demand_percent}.get(market.kind, 100)
    base = market.base if market.kind == "mixed" else 0
    return made.Market(market.kind, base, percent, market.strategy, market.max_price)


def _disk(device: str, disk: written.Disk) -> made.Disk:
    return made.Disk(device, _gib(disk.size), disk.type, disk.iops, disk.throughput)


@dataclass(frozen=True, slots=True)
class _Common:
    """What the groups of a pool have in common."""

    environment: str
    cluster: str
    name: str
    born: str
    """The name under which the pool was created."""
    pool: written.Pool
    image: made.Image
    facts: Mapping[str, object]
    types: Sequence[str]
    role: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    resources: Mapping[str, str]
    allocatable: Mapping[str, str]


def _group(of: _Common, place: Region) -> made.NodeGroup:
    bounds = of.pool.regions[place.name]
    zones = bounds.zones or offering_zones(place.zones, place.region, of.types)
    labels = dict(sorted({**place_labels(place.name, place.region, zones, of.types), **of.labels}.items()))
    reserved = bounds.capacity_reservation
    return made.NodeGroup(
        name=group_name(of.environment, place.name, of.born),
        key=identifier(of.name),
        pool=of.name,
        site=place.name,
        min=bounds.min,
        max=bounds.max,
        zones=zones,
        subnets=tuple(subnet.name for subnet in place.tier("private") if subnet.zone in zones),
        image_id=of.image.ids.get(place.name),
        capacity_reservation=made.CapacityReservation(
            reserved.preference, reserved.id, reserved.resource_group
        )
        if reserved
        else None,
        labels=labels,
        resources=of.resources,
        allocatable=of.allocatable,
        types=tuple(_priced(each, place.region) for each in of.pool.instance_types),
        tags=thing_tags(place.name, of.role, pool=of.name),
        autoscaler_tags=autoscaler_tags(of.cluster, labels, of.taints, of.resources),
        user_data={
            **of.facts,
            "site": place.name,
            "role": of.role,
            "pool": of.name,
            "labels": labels,
            "taints": [each.text for each in of.taints],
        },
    )


def _priced(each: written.WeightedType, region: str) -> made.PricedType:
    kind = instances.find(each.type)
    on_demand, spot = (quotas.quota_for(each.type, market) for market in ("on-demand", "spot"))
    return made.PricedType(
        each.type,
        each.weight,
        vcpus=kind.vcpus if kind is not None else 0,
        on_demand=prices.on_demand(each.type, region),
        spot=prices.spot(each.type, region),
        quota_on_demand=on_demand.name if on_demand is not None else "",
        quota_spot=spot.name if spot is not None else "",
    )


def _least(types: list[instances.InstanceType]) -> tuple[int, int]:
    """The vCPUs and MiB of memory that every type has at least."""
    return min(kind.vcpus for kind in types), min(kind.memory_mib for kind in types)


def _adapters(pool: written.Pool, types: list[instances.InstanceType]) -> int:
    """How many EFA interfaces a machine of the pool gets: the lowest maximum of its types; 0 without EFA."""
    return min(kind.efa_interfaces for kind in types) if pool.efa else 0


def _offered(types: list[instances.InstanceType], node_gpus: Gpus | None) -> int:
    """How many GPUs, time slices or MIG instances a node of any of the types offers at least."""
    each = node_gpus.offered // node_gpus.count if node_gpus is not None else 1
    return min(kind.gpus.count if kind.gpus else 0 for kind in types) * each
