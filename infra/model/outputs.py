"""Values that AWS assigns, known after apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from typing import Final

from msgspec import Struct, field

from infra.model.kubernetes import Issuer
from infra.model.tunnels import SiteTunnel


class Addresses(Struct, frozen=True):
    """The addresses of a machine."""

    private: IPv4Address
    public: IPv4Address | None


class FileSystemIds(Struct, frozen=True):
    """The ids of an EFS file system."""

    id: str
    """``fs-0123456789abcdef0``."""
    access_points: Mapping[str, str] = field(default_factory=dict)
    """Name → id: ``fsap-0123456789abcdef0``."""


class Outputs(Struct, frozen=True):
    """The Terraform outputs that renderers need; empty before the first apply."""

    tunnels: Mapping[str, tuple[IPv4Address, IPv4Address]] = field(default_factory=dict)
    """Link → the outside addresses of its two tunnels at AWS."""
    instances: Mapping[str, Addresses] = field(default_factory=dict)
    """Host name → addresses of masters, SSH nodes and VPN servers."""
    file_systems: Mapping[str, Mapping[str, FileSystemIds]] = field(default_factory=dict)
    """Site → the name of an EFS file system → its ids."""
    zones: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Site → zone as in the spec → its name in the account."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Namespace → the ARN of the role for its service account ``work``, or for MLflow."""
    issuers: Mapping[str, str] = field(default_factory=dict)
    """Server of the token keys (``s3``, ``cloudfront``) → the URL of that issuer."""
    tracking_database: str = ""
    """The host name of MLflow's RDS database; empty if there is none."""

    def remote(self, tunnel: SiteTunnel) -> IPv4Address | None:
        """The public address of a tunnel's remote end; None if it is not known yet."""
        if tunnel.remote is not None:
            return tunnel.remote
        pair = self.tunnels.get(tunnel.link)
        return pair[tunnel.number - 1] if pair else None

    def with_remote(self, tunnels: Iterable[SiteTunnel]) -> list[tuple[SiteTunnel, IPv4Address]]:
        """Tunnels whose remote address is known, with the address."""
        return [(tunnel, remote) for tunnel in tunnels if (remote := self.remote(tunnel)) is not None]

    def without_remote(self, tunnels: Iterable[SiteTunnel]) -> list[str]:
        """Names of the other tunnels."""
        return [tunnel.name for tunnel in tunnels if self.remote(tunnel) is None]

    def issuer(self, issuer: Issuer) -> str | None:
        """An issuer's URL; None if it is not known yet."""
        return issuer.url or self.issuers.get(issuer.served_by)

    def zone(self, site: str, zone: str) -> str:
        """The name of a zone, for APIs without zone ids; as in the spec if it is not known yet."""
        return self.zones.get(site, {}).get(zone, zone)


NO_OUTPUTS: Final = Outputs()
