"""The configuration: which groups there are, what their machines offer, and the settings of the spec.

Rendered from the cluster spec as JSON (``config.json`` of the ConfigMap ``autoscaler``). What a machine
offers is taken from the catalogue, and corrected by nodes that are seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from infra.autoscaler.node_properties import Resources, Taint
from infra.errors import UsageError


class PricedType(Struct, frozen=True, forbid_unknown_fields=True):
    """An instance type of a group, in the group's order of preference."""

    name: str
    weight: int
    vcpus: int
    on_demand: float | None
    """USD an hour; None where the catalogue has no price."""
    spot: float | None
    quota_on_demand: str
    """The vCPU quota that it counts against: ``on-demand-p``."""
    quota_spot: str


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """An Auto Scaling group: a pool at a site. Sizes are capacity units, one of which is a `machine`."""

    name: str
    """Its AWS name."""
    pool: str
    site: str
    region: str
    """The AWS region's code."""
    order: int
    """Of its site: 0 is the primary one, then the spec's overflow order."""
    priority: int
    """Of its pool: higher first."""
    min: int
    max: int
    zones: tuple[str, ...]
    types: tuple[PricedType, ...]
    on_demand_base: int
    on_demand_percent: int
    """Of what is above the base; the rest is spot."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    """Of one unit, ``pods`` among it: what the least of its types surely gives pods."""
    drain_timeout_seconds: int
    hook: str = "drain"
    """The hook that holds a machine which is to end, until we say it may."""

    @property
    def spot_only(self) -> bool:
        """Whether new machines come from the spot market alone."""
        return self.on_demand_base == 0 and self.on_demand_percent == 0


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The controller's configuration. Times in seconds, shares in percent, cost in USD an hour."""

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
    """From the taint of an idle node to the second look."""
    spare: Mapping[str, int] = {}
    """Pool → idle nodes kept."""
    max_hourly_cost: float | None = None
    max_scale_in_percent: int = 10
    """Of a group, in one loop; at least one."""
    max_cluster_scale_in_percent: int = 10
    """Of all cloud nodes, in one loop; at least one."""
    stop_above_unready_percent: int = 45
    stop_above_unready: int = 3
    """And more than that many."""
    backoff_min: int = 300
    backoff_max: int = 1800
    backoff_reset: int = 10800
    min_priority: int | None = None
    """No machine is started for pods of a lower one."""
    booking: int = 600
    """How long machines of a provisioned request wait for its pods."""
    quotas: Mapping[str, Mapping[str, int]] = {}
    """Region code → vCPU quota → vCPUs."""
    owned: bool = True
    """Whether nodes outside of all groups are a place for work (physical machines are)."""
    namespace: str = "causeway-system"
    provisioning_class: str = "batch.causeway.dev"


def parse(text: bytes | str) -> Config:
    """The configuration out of JSON; UsageError says what is wrong and where."""
    try:
        return msgspec.json.decode(text, type=Config)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the autoscaler's configuration: {error}; render it with `invoke render`"
        ) from error


def read(path: Path) -> Config:
    """The configuration of a file."""
    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; `invoke render` writes it") from error
