"""What only AWS can tell, after apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from typing import Final

from msgspec import Struct, field

from infra.model.kubernetes import Issuer
from infra.model.tunnels import SiteTunnel


class Addresses(Struct, frozen=True):
    """Of one machine."""

    private: IPv4Address
    public: IPv4Address | None


class FileSystemIds(Struct, frozen=True):
    """Of one EFS file system."""

    id: str
    """``fs-0123456789abcdef0``."""
    access_points: Mapping[str, str] = field(default_factory=dict)
    """Name → id: ``fsap-0123456789abcdef0``."""


class Outputs(Struct, frozen=True):
    """The part of Terraform's outputs that renderers need; empty before the first apply."""

    tunnels: Mapping[str, tuple[IPv4Address, IPv4Address]] = field(default_factory=dict)
    """Link → the outside addresses of AWS's two tunnel ends."""
    instances: Mapping[str, Addresses] = field(default_factory=dict)
    """Host name → addresses of masters, SSH nodes and VPN servers."""
    file_systems: Mapping[str, Mapping[str, FileSystemIds]] = field(default_factory=dict)
    """Site → the name of an EFS file system → its ids."""
    zones: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Site → zone as the spec has it → its name in the account."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Namespace → the ARN of the role that its service account ``work`` may take, or MLflow its own."""
    issuers: Mapping[str, str] = field(default_factory=dict)
    """Who serves the keys of tokens (``s3``, ``cloudfront``) → the URL of that issuer."""
    tracking_database: str = ""
    """The host name of MLflow's database at RDS; empty where there is none."""

    def remote(self, tunnel: SiteTunnel) -> IPv4Address | None:
        """The public address of a tunnel's other end; None while only AWS knows it."""
        if tunnel.remote is not None:
            return tunnel.remote
        pair = self.tunnels.get(tunnel.link)
        return pair[tunnel.number - 1] if pair else None

    def with_remote(self, tunnels: Iterable[SiteTunnel]) -> list[tuple[SiteTunnel, IPv4Address]]:
        """Those whose other end's address is known, with it."""
        return [(tunnel, remote) for tunnel in tunnels if (remote := self.remote(tunnel)) is not None]

    def without_remote(self, tunnels: Iterable[SiteTunnel]) -> list[str]:
        """Names of the others."""
        return [tunnel.name for tunnel in tunnels if self.remote(tunnel) is None]

    def issuer(self, issuer: Issuer) -> str | None:
        """An issuer's URL; None while only AWS knows it."""
        return issuer.url or self.issuers.get(issuer.served_by)

    def zone(self, site: str, zone: str) -> str:
        """The name of a zone, for what knows no ids; as the spec has it while only AWS knows it."""
        return self.zones.get(site, {}).get(zone, zone)


NO_OUTPUTS: Final = Outputs()
