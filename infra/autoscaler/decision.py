"""The result of one loop: actions with their reasons; and the result of each action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from infra.autoscaler.memory import Memory
from infra.autoscaler.reasons import Reason


class SetDesired(Struct, frozen=True, tag=True):
    """Set a group's size. Written at most once per group and loop."""

    group: str
    was: int
    desired: int
    reason: str
    pods: int = 0
    """The number of pods that it is for."""


class TaintNode(Struct, frozen=True, tag=True):
    """Keep new pods off a node with our own taint, so that cordons by others are never undone."""

    node: str
    reason: str


class FreeNode(Struct, frozen=True, tag=True):
    """Remove our taint."""

    node: str
    reason: str


class Evict(Struct, frozen=True, tag=True):
    """Request the eviction of a pod with the Eviction API, which respects budgets."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    by: float | None = None
    """When its machine is terminated in any case; written to its pod (annotation
    ``causeway.dev/ends-at``)."""


class Tell(Struct, frozen=True, tag=True):
    """Notify a pod of its machine's termination (annotation ``causeway.dev/ends-at``) without evicting it."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    by: float


class Terminate(Struct, frozen=True, tag=True):
    """Terminate one instance and reduce its group's size, if its node still has no work."""

    group: str
    instance: str
    node: str
    """Empty if none has joined."""
    reason: str
    forced: bool = False


class Release(Struct, frozen=True, tag=True):
    """Complete the lifecycle hook of an instance that its group is terminating."""

    group: str
    instance: str
    node: str
    reason: str


class RemoveNode(Struct, frozen=True, tag=True):
    """Delete the Node object of a terminated instance."""

    node: str
    uid: str
    reason: str


class Answer(Struct, frozen=True, tag=True):
    """Set a condition of a provisioning request."""

    gang: str
    namespace: str
    name: str
    condition: Literal["Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"]
    reason: str
    message: str


class HoldFlavor(Struct, frozen=True, tag=True):
    """Close a Kueue flavor to new workloads, or open it again."""

    flavor: str
    held: bool
    reason: str


Action: TypeAlias = (
    SetDesired | TaintNode | FreeNode | Evict | Tell | Terminate | Release | RemoveNode | Answer | HoldFlavor
)


Outcome: TypeAlias = Literal["fits", "coming", "starting", "waits", "never"]
"""On an existing node; on one that is booting; on one that is launched now; later; on no existing group."""


class Verdict(Struct, frozen=True):
    """The verdict on a group of equal pending pods."""

    pods: tuple[str, ...]
    """Their uids; empty for a gang without pods."""
    gang: str | None
    count: int
    outcome: Outcome
    where: tuple[str, ...]
    """Nodes or groups."""
    machines: tuple[int, ...] = ()
    """The number of machines per group."""
    reason: Reason | None = None
    """Why it waits, or never fits."""
    obstacles: tuple[Reason, ...] = ()
    """Why each group does not fit, in the order in which they are tried."""
    example: str = ""
    """``namespace/name`` of one of them."""


NoticeKind: TypeAlias = Literal[
    "broken", "disputed", "drain", "ends", "fault", "gang", "launch", "misfit", "setup", "stopped"
]
"""``templates/kubernetes/static/alerts/autoscaler.yaml`` has an alert for each."""


class Notice(Struct, frozen=True):
    """A notice for administrators, repeated in every loop in which it holds."""

    kind: NoticeKind
    about: str
    """A group, optionally with the code of a failed launch; a node, a pod or a job."""
    level: Literal["warning", "error"]
    text: str


class Figures(Struct, frozen=True):
    """The values of metrics."""

    pending: Mapping[str, int] = {}
    """By outcome of the verdicts."""
    nodes: Mapping[str, int] = {}
    """By group."""
    desired: Mapping[str, int] = {}
    cost: Mapping[str, float] = {}
    """By group, USD per hour."""
    failures: Mapping[str, int] = {}
    """By group: capacity failures detected in this loop."""
    unready: int = 0
    ready: int = 0


class Decision(Struct, frozen=True):
    """The result of one loop."""

    at: float
    actions: tuple[Action, ...]
    """In order; actions on one group are executed in that order, groups in parallel."""
    memory: Memory
    """The memory to save before the first action."""
    verdicts: tuple[Verdict, ...] = ()
    notices: tuple[Notice, ...] = ()
    figures: Figures = Figures()
    stopped: str | None = None
    """Why nothing is written; None otherwise."""


Status = Literal[
    "done",  # written
    "planned",  # would have been written: this is a dry run
    "needless",  # already in the desired state
    "stale",  # the state has changed since the decision: nothing was written, the next loop decides again
    "refused",  # the API refused: nothing was written
    "failed",  # may or may not have been written: no response, or an invalid one
]


class Result(Struct, frozen=True):
    """The result of one action."""

    status: Status
    text: str = ""
    """The reason, for people; may be empty."""
    desired: int | None = None
    """The size that was written, if it differs from the requested one."""

    @property
    def written(self) -> bool:
        """Whether the state is, or may be, as the action wants it."""
        return self.status in ("done", "needless", "failed")


class Done(Struct, frozen=True):
    """An action and its result."""

    action: Action
    result: Result
    seconds: float = 0.0
