"""A Workload: equal pods that are admitted together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.autoscaler.observed.snapshot import Shape
from infra.simulator.kueue.rules import Choice


@dataclass(slots=True, eq=False)
class Workload:
    """One that waits or holds quota."""

    key: str
    """``namespace/name``, unique."""
    namespace: str
    queue: str
    """Its ClusterQueue."""
    shape: Shape
    """Of one of its pods, before it is admitted."""
    count: int
    """Pods that are not done."""
    created: float
    priority: int = 0
    across: bool = False

    since: float = 0.0
    """By which it is ordered among those of its priority."""
    choice: Choice | None = None
    """What it has quota of."""
    use: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reserved: float = 0.0
    """When it got that."""
    leaving: bool = False
    """Whether that is taken back, though its pods still run."""
    parked: bool = False
    """Whether it waits until something changes."""
    until: float = 0.0
    """Not before that."""
    begun: bool = False
    """Whether it is admitted: its job is not suspended."""
    admissions: int = 0
    """How often it was."""
    attempts: int = 0
    """Requests so far."""
    retries: int = 0
    """Of these, failed ones since it was last admitted."""
    timeouts: int = 0
    """How often its pods were not all running in time."""

    def __post_init__(self) -> None:
        self.since = self.created
