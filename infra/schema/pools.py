"""Node pools: groups of similar machines in one or more regions, and their images."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from infra.schema.base import IN_PLACE, REPLACES, ROLLING, Part
from infra.schema.types import Bool, Duration, Int, LabelKey, LabelValue, Name, Size, Text, Version


class Architecture(StrEnum):
    """A processor architecture, as EC2 names it."""

    X86_64 = "x86_64"
    ARM64 = "arm64"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


def _bare(field: str) -> BeforeValidator:
    """Accepts a single scalar as short for a mapping with only ``field``."""
    return BeforeValidator(
        lambda value: {field: value} if isinstance(value, str) else value, json_schema_input_type=Any
    )


class WeightedType(Part):
    """An EC2 instance type and how much of the pool's capacity one counts for."""

    type: Annotated[Text, ROLLING]
    """The instance type, ``p3.2xlarge``."""
    weight: Annotated[Int, Field(ge=1, le=999), ROLLING] = 1
    """Units of capacity (EC2 Auto Scaling: 1 to 999)."""


class Market(Part):
    """How instances are bought."""

    kind: Annotated[Literal["on-demand", "spot", "mixed", "capacity-block"], ROLLING] = "on-demand"
    """On demand, spot, on demand up to a base and a share above it, or a Capacity Block for ML: reserved and
    paid beforehand, with its id in each region's ``capacity_reservation``."""
    base: Annotated[Int, Field(ge=0), ROLLING] = 0
    """``mixed``: how much capacity is on demand before any is spot."""
    on_demand_percent: Annotated[Int, Field(ge=0, le=100), ROLLING] = 0
    """``mixed``: the share above the base that is on demand."""
    strategy: Annotated[
        Literal["price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized"], ROLLING
    ] = "price-capacity-optimized"
    """How spot capacity is chosen among types and zones."""
    max_price: Annotated[Text | None, ROLLING] = None
    """The most that is paid for a spot instance, USD an hour. Default: the on-demand price."""


class Disk(Part):
    """An EBS volume of each instance."""

    size: Annotated[Size, ROLLING]
    """Its size, ``100 GiB``."""
    type: Annotated[Literal["gp3", "gp2", "io2", "st1"], ROLLING] = "gp3"
    """The EBS volume type."""
    iops: Annotated[Int | None, Field(ge=100, le=256000), ROLLING] = None
    """Provisioned operations a second (gp3: 3,000 to 80,000; io2)."""
    throughput: Annotated[Int | None, Field(ge=125, le=2000), ROLLING] = None
    """MiB a second (gp3: 125 to 2,000; in a launch template at most 1,000)."""


class Taint(Part):
    """A Kubernetes taint."""

    key: Annotated[LabelKey, ROLLING]
    """Its key."""
    value: Annotated[LabelValue, ROLLING] = ""
    """Its value."""
    effect: Annotated[TaintEffect, ROLLING] = TaintEffect.NO_SCHEDULE
    """What it does to pods that do not tolerate it."""


class CapacityReservation(Part):
    """Capacity that was reserved beforehand."""

    preference: Annotated[Literal["open", "none", "capacity-reservations-only"], ROLLING] = "open"
    """Whether any matching reservation is used if there is one (``open``), none, or nothing else: an
    instance outside of a reservation is then never started."""
    id: Annotated[Text | None, ROLLING] = None
    """One reservation, ``cr-…``."""
    resource_group: Annotated[Text | None, ROLLING] = None
    """The ARN of a resource group of reservations."""


class WarmPool(Part):
    """A warm pool: instances that are initialized beforehand."""

    state: Annotated[Literal["Stopped", "Running", "Hibernated"], IN_PLACE] = "Stopped"
    """How they wait."""
    min: Annotated[Int, Field(ge=0), IN_PLACE] = 0
    """How many there are at least."""
    max_prepared: Annotated[Int | None, Field(ge=0), IN_PLACE] = None
    """How many there are with the ones in service. Default: the group's maximum."""
    reuse: Annotated[Bool, IN_PLACE] = True
    """Whether an instance goes back to the warm pool on scale-in."""


class PoolRegion(Part):
    """A pool in one region: one Auto Scaling group."""

    min: Annotated[Int, Field(ge=0, le=10000), IN_PLACE] = 0
    """The fewest nodes."""
    max: Annotated[Int, Field(ge=0, le=10000), IN_PLACE]
    """The most nodes."""
    zones: Annotated[tuple[Text, ...] | None, Field(min_length=1), ROLLING] = None
    """Zones of the region to use. Default: all of the site's that offer a type of the pool."""
    capacity_reservation: Annotated[CapacityReservation | None, ROLLING] = None
    """Capacity reserved in this region."""


class PoolGpus(Part):
    """How pods share the GPUs of a pool."""

    time_slices: Annotated[Int, Field(ge=1, le=64), ROLLING] = 1
    """How many pods share a GPU, taking turns; each sees all of its memory."""
    mig: Annotated[Text | None, ROLLING] = None
    """The size of the instances that each GPU is split into (Multi-Instance GPU): ``1g.10gb``."""


class Pool(Part):
    """A node pool: similar machines under one name, in one or more regions."""

    renamed_from: Annotated[Name | None, IN_PLACE] = None
    """The name that the pool had before. Its groups and nodes stay, and its groups keep their names in AWS.
    Delete it once it is applied."""
    regions: Annotated[dict[Name, PoolRegion], Field(min_length=1), IN_PLACE]
    """The AWS sites it runs in, with its bounds in each."""
    instance_types: Annotated[
        tuple[Annotated[WeightedType, _bare("type")], ...], Field(min_length=1, max_length=40), ROLLING
    ]
    """EC2 instance types in order of preference; ``{type: p3.8xlarge, weight: 4}`` gives one a weight."""
    architecture: Annotated[Architecture | None, ROLLING] = None
    """Default: the image's."""
    image: Annotated[Name, ROLLING]
    """The image it starts from, a name in ``images``."""
    market: Annotated[Annotated[Market, _bare("kind")], ROLLING] = Field(default_factory=Market)
    """How instances are bought: ``on-demand``, ``spot``, ``capacity-block``, or a mapping with
    ``kind: mixed``."""
    capacity_rebalance: Annotated[Bool | None, IN_PLACE] = None
    """Whether AWS replaces a spot instance as soon as it expects to interrupt it, which ends the instance
    although it might have stayed (EC2 Auto Scaling, "Capacity Rebalancing"). Default: on spot and mixed
    markets, without GPUs."""
    role: Annotated[Literal["worker", "gpu-worker"] | None, ROLLING] = None
    """The role given to nodes in their user data. Default: ``gpu-worker`` where the types have GPUs."""
    root_disk: Annotated[Disk | None, ROLLING] = None
    """The root volume. Default: the image's size on gp3."""
    scratch_disks: Annotated[tuple[Disk, ...], Field(max_length=10), ROLLING] = ()
    """Further EBS volumes, joined into scratch space with the type's own disks."""
    gpus: Annotated[PoolGpus, ROLLING] = Field(default_factory=PoolGpus)
    """How pods share its GPUs. Default: a GPU is one pod's."""
    labels: Annotated[dict[LabelKey, LabelValue], ROLLING] = Field(default_factory=dict)
    """Kubernetes labels beside the ones derived."""
    taints: Annotated[tuple[Taint, ...], ROLLING] = ()
    """Kubernetes taints."""
    priority: Annotated[Int, Field(ge=-1000, le=1000), IN_PLACE] = 0
    """Which pool the autoscaler grows first among those that fit; higher first."""
    placement_group: Annotated[Literal["none", "cluster", "spread", "partition"], REPLACES] = "none"
    """How instances are placed on hardware. ``cluster`` keeps a group in one zone."""
    efa: Annotated[Bool, ROLLING] = False
    """Whether instances get Elastic Fabric Adapters, one on each network card, and offer them to pods."""
    launch: Annotated[Literal["template", "configuration"], REPLACES] = "template"
    """A launch template, or a launch configuration for an account that still uses them. AWS refuses launch
    configurations in accounts created since 2024-10-01, and instance types released since 2023 in all."""
    warm_pool: Annotated[WarmPool | None, IN_PLACE] = None
    """Instances that wait, started."""
    max_lifetime: Annotated[Duration | None, Field(ge=86400, le=31536000), IN_PLACE] = None
    """After how long an instance is replaced (EC2 Auto Scaling: 1 day to 365 days)."""
    drain_timeout: Annotated[Duration, Field(ge=30, le=7200), IN_PLACE] = 900
    """How long a node may take to drain before it ends."""


class SourceImage(Part):
    """The image a bake starts from, and what unbaked pools run."""

    owner: Annotated[Text | None, ROLLING] = None
    """The account that publishes it. Default: Canonical's, which differs in GovCloud and China."""
    name: Annotated[Text | None, ROLLING] = None
    """Its name pattern. Default: Canonical's server image for the release and the architecture."""


class ImageGpu(Part):
    """GPU software of an image."""

    driver: Annotated[Int, ROLLING]
    """The NVIDIA driver branch, ``570``."""
    cuda: Annotated[Version | None, ROLLING] = None
    """The CUDA toolkit. Default: none, as containers bring their own."""
    open_kernel_modules: Annotated[Bool | None, ROLLING] = None
    """Open kernel modules (Turing and newer; demanded by Blackwell). Default: where every GPU allows."""
    fabric_manager: Annotated[Bool, ROLLING] = False
    """NVIDIA Fabric Manager, for types with NVSwitch (p4d, p5)."""


class Image(Part):
    """A machine image, baked in one region and copied to all."""

    ubuntu: Annotated[Literal["22.04", "24.04"], ROLLING] = "24.04"
    """The Ubuntu release."""
    architecture: Annotated[Architecture, ROLLING] = Architecture.X86_64
    """The processor architecture."""
    source: Annotated[SourceImage, ROLLING] = Field(default_factory=SourceImage)
    """The image it is made from."""
    gpu: Annotated[ImageGpu | None, ROLLING] = None
    """GPU software. Without it no GPU pool may use the image."""
    root_disk: Annotated[Size, ROLLING] = 40 * 1024
    """The size of its root volume."""
    packages: Annotated[tuple[Text, ...], ROLLING] = ()
    """Debian packages beside those of its roles."""
    roles: Annotated[tuple[Name, ...], ROLLING] = ()
    """Chef roles to bake in. Default: base and worker, with GPU support where ``gpu`` is given."""
    build_type: Annotated[Text | None, ROLLING] = None
    """The instance type it is baked on. Default: a small one of its architecture, with a GPU where needed."""
    ids: Annotated[dict[Name, Text], ROLLING] = Field(default_factory=dict)
    """AMI ids by site, for an image that is baked elsewhere."""


Quotas: TypeAlias = dict[Name, dict[Name, Int]]
"""By AWS site: the account's vCPU quotas that pools must stay under."""
