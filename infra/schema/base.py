"""The base of every part of the spec: strict, frozen, documented field by field.

Scalars reach these models as the text that was written (see ``infra.load.source``): the field's type
decides what ``no``, ``022`` or ``1.20`` means, never their spelling. So a label's value stays text and
``min: 022`` is an error rather than eighteen.
"""

from __future__ import annotations

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
        """``nat: ~`` leaves the default. An unknown key is left in, to be refused whatever it holds."""
        if isinstance(data, dict) and None in data.values():
            return {
                key: value for key, value in data.items() if value is not None or key not in cls.model_fields
            }
        return data
