"""What only AWS can tell, after apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Final


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of one machine."""

    private: IPv4Address
    public: IPv4Address | None


@dataclass(frozen=True, slots=True)
class Outputs:
    """The part of Terraform's outputs that renderers need; empty before the first apply."""

    tunnels: Mapping[str, tuple[IPv4Address, IPv4Address]] = field(default_factory=dict)
    """Link → the outside addresses of AWS's two tunnel ends."""
    instances: Mapping[str, Addresses] = field(default_factory=dict)
    """Host name → addresses of masters, SSH nodes and VPN servers."""


NO_OUTPUTS: Final = Outputs()
