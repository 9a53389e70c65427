"""A Workload: equal pods that are admitted together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.autoscaler.observed.snapshot import Shape
from infra.simulator.kueue.rules import Choice


@dataclass(slots=True, eq=False)
class Workload:
    """A workload that waits or holds quota."""

    key: str
    """``namespace/name``, unique."""
    namespace: str
    queue: str
    """Its ClusterQueue."""
    shape: Shape
    """The shape of its pods before admission."""
    count: int
    """The number of unfinished pods."""
    created: float
    priority: int = 0
    across: bool = False

    since: float = 0.0
    """The time by which it is ordered within its priority."""
    choice: Choice | None = None
    """The flavor in which it has quota."""
    use: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reserved: float = 0.0
    """When the quota was reserved."""
    leaving: bool = False
    """Whether it is being evicted, though its pods still run."""
    parked: bool = False
    """Whether it is inadmissible until something changes."""
    until: float = 0.0
    """Not to be tried before this time."""
    begun: bool = False
    """Whether it is admitted, so that its job is not suspended."""
    admissions: int = 0
    """The number of admissions."""
    attempts: int = 0
    """The number of requests."""
    retries: int = 0
    """Of these, failed ones since its last admission."""
    timeouts: int = 0
    """How often its pods were not all running in time."""

    def __post_init__(self) -> None:
        self.since = self.created
