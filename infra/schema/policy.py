"""What happens to a live cluster when a field of the spec changes.

Each field of the spec carries one policy, as metadata beside its type::

    cidr: Annotated[Cidr | None, NEVER("a live VPC keeps its block")] = None

``docs/spec.md`` prints it and ``invoke plan`` holds changes against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel


class Update(StrEnum):
    IN_PLACE = "in place"
    """Applied without touching anything that runs."""
    ROLLING = "rolling"
    """Reaches running nodes by an instance refresh or a converge, a few at a time."""
    REPLACES = "replaces"
    """The resource is destroyed and recreated; the plan says so."""
    NEVER = "never"
    """Can't change after the first apply: the plan is refused."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A field's update policy."""

    update: Update
    because: str = ""
    """The reason for it, a clause: "a live VPC keeps its block"."""
    instead: str = ""
    """What to do instead, where a field that can't change has a better way than a new one of its kind."""

    def __call__(self, because: str, instead: str = "") -> Policy:
        return Policy(self.update, because, instead)


IN_PLACE = Policy(Update.IN_PLACE)
ROLLING = Policy(Update.ROLLING)
REPLACES = Policy(Update.REPLACES)
NEVER = Policy(Update.NEVER)


def policy_of(part: type[BaseModel], field: str) -> Policy:
    """A field's update policy. ``LookupError`` for a field without one: a fault of ours."""
    for entry in part.model_fields[field].metadata:
        if isinstance(entry, Policy):
            return entry
    raise LookupError(f"{part.__name__}.{field} has no update policy")
