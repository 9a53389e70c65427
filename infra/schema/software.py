"""What is installed on machines from outside of their distribution."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from infra.schema.base import Part
from infra.schema.policy import ROLLING
from infra.schema.types import Name, Text

License: TypeAlias = Literal["accept", "accept-silent", "accept-no-persist"]
"""Values of ``chef_license`` (https://docs.chef.io/licensing/accept/)."""


class Pin(Part):
    """A version other than the tested one."""

    version: Annotated[Text, ROLLING]
    """Its version, as its makers write it: ``2.2.1``."""
    url: Annotated[Text | None, ROLLING] = None
    """Where its archive is downloaded, such as a mirror; ``%{arch}`` (amd64, arm64) and ``%{machine}``
    (x86_64, aarch64) stand for the machine's architecture. Default: the makers' own place."""
    sha256: Annotated[dict[Name, Text], ROLLING] = Field(default_factory=dict)
    """The archive's SHA-256, by architecture (amd64, arm64). Default: the catalogue's, of its own version."""
    license: Annotated[License | None, ROLLING] = None
    """Of ``chef`` alone, which takes the place of CINC: that you accept its makers' licence
    (https://www.chef.io/end-user-license-agreement), in Chef's own words. Nothing accepts it for you."""


def _bare(value: Any) -> Any:
    return {"version": value} if isinstance(value, str) else value


Software: TypeAlias = dict[Name, Annotated[Pin, BeforeValidator(_bare, json_schema_input_type=Any)]]
"""Name → version."""
