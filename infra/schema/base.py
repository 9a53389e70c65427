"""The base class of every part of the spec: strict, frozen, with documentation and an update policy per
field.

Scalars reach these models as the text in the file (see ``infra.load.source``): the field's type decides what
``no``, ``022`` or ``1.20`` means, not YAML. So a label's value stays text, and ``min: 022`` is an error
rather than eighteen.

What happens to a live cluster when a field changes is the field's policy, as metadata beside its type::

    cidr: Annotated[Cidr | None, NEVER("a live VPC keeps its block")] = None

``docs/spec.md`` documents it and ``invoke plan`` checks changes against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Part(BaseModel):
    """One mapping of the spec. Unknown keys are errors; values can't be changed once read."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        hide_input_in_errors=True,
        use_enum_values=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_written(cls, data: Any) -> Any:
        """``nat: ~`` leaves the default. An unknown key is kept, to be refused whatever its value."""
        if isinstance(data, dict) and None in data.values():
            return {
                key: value for key, value in data.items() if value is not None or key not in cls.model_fields
            }
        return data


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
    """A field's update policy. Raises ``LookupError`` for a field without one, which is a bug."""
    for entry in part.model_fields[field].metadata:
        if isinstance(entry, Policy):
            return entry
    raise LookupError(f"{part.__name__}.{field} has no update policy")
