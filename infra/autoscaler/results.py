"""The result of an action: the answer of both writers, for logs, metrics and memory."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from infra.autoscaler.decision import Action

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
