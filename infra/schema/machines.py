"""What is the same on every machine, in racks and regions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.schema.base import Part
from infra.schema.policy import ROLLING
from infra.schema.types import Bool, Text


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
    last: ``{docker.io: ["https://mirror.lab.example"]}``. ``_default`` stands for every registry without an
    entry. A mirror says which image a tag means: name only those you trust."""
    unattended_upgrades: Annotated[Bool, ROLLING] = True
    """Whether security updates are installed each day. Drivers, Kubernetes and containerd are left alone, and
    nothing is rebooted."""
