"""The configuration: groups, what their machines offer, and the settings in the spec.

Rendered from the cluster spec as JSON (``config.json`` of the ConfigMap ``autoscaler``). What a machine
offers is taken from the catalogue, and corrected by observed nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from infra import __version__
from infra.autoscaler.node_properties import Resources, Taint
from infra.errors import UsageError


class PricedType(Struct, frozen=True, forbid_unknown_fields=True):
    """An instance type of a group, in the group's order of preference."""

    name: str
    weight: int
    vcpus: int
    on_demand: float | None
    """USD per hour; None if the catalogue has no price."""
    spot: float | None
    quota_on_demand: str
    """The vCPU quota that applies to it: ``on-demand-p``."""
    quota_spot: str


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """An Auto Scaling group: a pool at a site. Sizes are in capacity units, which weigh instances."""

    name: str
    """Its AWS name."""
    pool: str
    site: str
    region: str
    """The AWS region's code."""
    order: int
    """Of its site: 0 is the primary one, then the spec's overflow order."""
    priority: int
    """Of its pool: the higher one first."""
    min: int
    max: int
    zones: tuple[str, ...]
    types: tuple[PricedType, ...]
    on_demand_base: int
    on_demand_percent: int
    """Of the capacity above the base; the rest is Spot."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    """What one unit offers to pods, including ``pods``: the minimum of its types."""
    drain_timeout_seconds: int
    hook: str = "drain"
    """The lifecycle hook that delays termination until we release it."""

    @property
    def spot_only(self) -> bool:
        """Whether all new instances are Spot Instances."""
        return self.on_demand_base == 0 and self.on_demand_percent == 0


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The controller's configuration. Times in seconds, shares in percent, cost in USD per hour."""

    environment: str
    cluster: str
    regions: Mapping[str, str]
    """AWS site → region code, in the spec's order."""
    groups: tuple[Group, ...]
    """In overflow order."""
    dry_run: bool = False
    interval: int = 10
    idle: int = 600
    boot_timeout: int = 900
    settle: int = 30
    """From the taint of an idle node to the second check."""
    spare: Mapping[str, int] = {}
    """Pool → number of idle nodes kept."""
    max_hourly_cost: float | None = None
    max_scale_in_percent: int = 10
    """Of a group, per loop; at least one."""
    max_cluster_scale_in_percent: int = 10
    """Of all cloud nodes, per loop; at least one."""
    stop_above_unready_percent: int = 45
    stop_above_unready: int = 3
    """Scale-down stops above this percentage and number of unready nodes."""
    backoff_min: int = 300
    backoff_max: int = 1800
    backoff_reset: int = 10800
    min_priority: int | None = None
    """Pods with a lower priority do not start machines."""
    booking: int = 600
    """How long machines of a provisioned request wait for its pods."""
    quotas: Mapping[str, Mapping[str, int]] = {}
    """Region code → vCPU quota → vCPUs."""
    owned: bool = True
    """Whether nodes outside of all groups (physical machines) accept work."""
    namespace: str = "causeway-system"
    provisioning_class: str = "batch.causeway.dev"


def parse(text: bytes | str) -> Config:
    """Parse JSON. Raises UsageError, which says what is wrong and where."""
    try:
        return msgspec.json.decode(text, type=Config)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the autoscaler's configuration: {error}; this is Causeway {__version__}: render it with the "
            "same version (invoke cluster.up), or build this image of the version that rendered it"
        ) from error


def read(path: Path) -> Config:
    """Read a configuration file."""
    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; `invoke render` writes it") from error
