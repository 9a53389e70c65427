"""What is the same on every machine, in racks and regions, and what is installed from outside of its
distribution.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from infra.schema.base import ROLLING, Part
from infra.schema.types import Bool, Name, Text


class Machines(Part):
    """Every machine, in racks and regions."""

    time_servers: Annotated[tuple[Text, ...], ROLLING] = ()
    """NTP servers, by name or address, the best first. Default: the distribution's pool. Instances ask
    Amazon's own before them."""
    packages: Annotated[tuple[Text, ...], ROLLING] = ()
    """Debian packages beside those of a machine's roles: ``htop``, or ``htop=3.3.0-4`` for that version."""
    registry_mirrors: Annotated[dict[Text, Annotated[tuple[Text, ...], Field(min_length=1)]], ROLLING] = (
        Field(default_factory=dict)
    )
    """Registry of container images → its mirrors' addresses, in the order they are asked, the registry itself
    last: ``{docker.io: ["https://mirror.lab.example"]}``. ``_default`` applies to every registry without an
    entry. A mirror says which image a tag means: name only those you trust."""
    unattended_upgrades: Annotated[Bool, ROLLING] = True
    """Whether security updates are installed each day. Drivers, Kubernetes and containerd are left alone, and
    nothing is rebooted."""


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
