"""What is to be done, and why: the answer of one loop; and what came of each action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from infra.autoscaler.memory import Memory
from infra.autoscaler.reasons import Reason


class SetDesired(Struct, frozen=True, tag=True):
    """Set a group's size. Written at most once a group and loop."""

    group: str
    was: int
    desired: int
    reason: str
    pods: int = 0
    """For how many pods."""


class TaintNode(Struct, frozen=True, tag=True):
    """Keep new pods off a node: our own taint, so that nobody else's cordon is ever undone."""

    node: str
    reason: str


class FreeNode(Struct, frozen=True, tag=True):
    """Take our taint off again."""

    node: str
    reason: str


class Evict(Struct, frozen=True, tag=True):
    """Ask a pod to leave by the eviction API (a budget may say no)."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    by: float | None = None
    """When its machine ends in any case; its pod is notified (annotation ``causeway.dev/ends-at``)."""


class Tell(Struct, frozen=True, tag=True):
    """Tell a pod when its machine ends (annotation ``causeway.dev/ends-at``), and leave it until then."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    by: float


class Terminate(Struct, frozen=True, tag=True):
    """End one instance and make its group smaller by it, if its node still holds no work."""

    group: str
    instance: str
    node: str
    """Empty where none ever joined."""
    reason: str
    forced: bool = False


class Release(Struct, frozen=True, tag=True):
    """Complete the lifecycle hook that holds an instance which its group already ends."""

    group: str
    instance: str
    node: str
    reason: str


class RemoveNode(Struct, frozen=True, tag=True):
    """Delete the Node object of an instance that is gone."""

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
    """Close a flavor of Kueue's to new work, or open it again."""

    flavor: str
    held: bool
    reason: str


Action: TypeAlias = (
    SetDesired | TaintNode | FreeNode | Evict | Tell | Terminate | Release | RemoveNode | Answer | HoldFlavor
)


Outcome: TypeAlias = Literal["fits", "coming", "starting", "waits", "never"]
"""On a node that is there; on one that boots; on one that starts now; later; on no existing group."""


class Verdict(Struct, frozen=True):
    """The verdict on equal pending pods."""

    pods: tuple[str, ...]
    """Their uids; of a gang without pods, none."""
    gang: str | None
    count: int
    outcome: Outcome
    where: tuple[str, ...]
    """Nodes, or groups."""
    machines: tuple[int, ...] = ()
    """How many of each group."""
    reason: Reason | None = None
    """Why it waits or never fits."""
    obstacles: tuple[Reason, ...] = ()
    """Why each group does not take it, in the order in which they are asked."""
    example: str = ""
    """``namespace/name`` of one of them."""


NoticeKind: TypeAlias = Literal[
    "broken", "disputed", "drain", "ends", "fault", "gang", "launch", "misfit", "setup", "stopped"
]
"""``templates/kubernetes/static/alerts/autoscaler.yaml`` has an alert for each."""


class Notice(Struct, frozen=True):
    """Something for the people who run the cluster, in every loop in which it holds."""

    kind: NoticeKind
    about: str
    """A group, with the code of a failed launch, a node, a pod or a job."""
    level: Literal["warning", "error"]
    text: str


class Figures(Struct, frozen=True):
    """What metrics show."""

    pending: Mapping[str, int] = {}
    """By outcome of the verdicts."""
    nodes: Mapping[str, int] = {}
    """By group."""
    desired: Mapping[str, int] = {}
    cost: Mapping[str, float] = {}
    """By group, USD an hour."""
    failures: Mapping[str, int] = {}
    """By group: capacity failures learned of in this loop."""
    unready: int = 0
    ready: int = 0


class Decision(Struct, frozen=True):
    """The answer of one loop."""

    at: float
    actions: tuple[Action, ...]
    """In the order in which they are to be done; those of one group in that order, groups at once."""
    memory: Memory
    """What must be kept before the first action is done."""
    verdicts: tuple[Verdict, ...] = ()
    notices: tuple[Notice, ...] = ()
    figures: Figures = Figures()
    stopped: str | None = None
    """Why nothing is written; None if it is."""


Status = Literal[
    "done",  # it was written
    "planned",  # it would have been: this is a dry run
    "needless",  # it is so already
    "stale",  # the world has changed since it was decided: nothing was written, the next loop looks again
    "refused",  # the API says no: nothing was written
    "failed",  # it may have been written or not: no answer, or one that makes no sense
]


class Result(Struct, frozen=True):
    """What a writer says of one action."""

    status: Status
    text: str = ""
    """Why, for people; empty where there is nothing to say."""
    desired: int | None = None
    """The size that was written, where that is not the one asked for."""

    @property
    def written(self) -> bool:
        """Whether the world is, or may be, as the action wants it."""
        return self.status in ("done", "needless", "failed")


class Done(Struct, frozen=True):
    """An action and its result."""

    action: Action
    result: Result
    seconds: float = 0.0
