"""AWS's side of tunnels: the status of its VPN connections, and their keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any, Final

from infra.drive.aws import Aws, aws_errors, each_region
from infra.errors import DriveError
from infra.model import Cluster, Outputs
from infra.model.tunnels import SiteTunnel

_CHANGE_TAKES: Final = 1200
"""Seconds to wait for a change of a tunnel (Site-to-Site VPN User Guide, "Modify tunnel options": the tunnel
is unavailable for some minutes)."""

_BETWEEN: Final = 10.0


@dataclass(frozen=True, slots=True)
class CloudState:
    """The status of a tunnel at AWS (EC2 API, ``VgwTelemetry``)."""

    up: bool
    since: datetime | None
    routes: int
    message: str


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Maintenance that AWS announced for a tunnel's endpoint (EC2 API, ``MaintenanceDetails``)."""

    pending: bool
    auto_applied_after: datetime | None
    """When AWS performs it automatically."""
    last_applied: datetime | None


NO_MAINTENANCE: Final = frozenset({"", "none", "no", "false", "unavailable", "not available"})
"""AWS documents ``PendingMaintenance`` as text without listing its values; these mean that none is
pending."""


class Cloud:
    """The VPN connections of a cluster. Every method may raise ``DriveError``."""

    def __init__(
        self,
        cluster: Cluster,
        outputs: Outputs,
        env: Mapping[str, str],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """``env`` is the environment that Terraform gets: credentials, AWS_ENDPOINT_URL."""
        self._regions = {
            link.name: cluster.region(link.aws_site).region
            for link in cluster.network.links
            if link.name in outputs.tunnels
        }
        self._outputs = outputs
        self._aws = Aws(env)
        self._wait = wait

    def states(self) -> Mapping[IPv4Address, CloudState]:
        """Outside address of a tunnel → its status."""
        found: dict[IPv4Address, CloudState] = {}
        for connections in each_region(sorted(set(self._regions.values())), self._connections).values():
            for connection in connections.values():
                for row in connection.get("VgwTelemetry", ()):
                    found[IPv4Address(row["OutsideIpAddress"])] = CloudState(
                        row.get("Status") == "UP",
                        row.get("LastStatusChange"),
                        int(row.get("AcceptedRouteCount") or 0),
                        row.get("StatusMessage", ""),
                    )
        return found

    def change_key(self, tunnel: SiteTunnel, key: str) -> None:
        """Set another pre-shared key for a tunnel, and wait until AWS has applied it."""
        region, connection, outside = self._place(tunnel)
        with aws_errors(f"change the key of {tunnel.name}"):
            self._aws.client("ec2", region).modify_vpn_tunnel_options(
                VpnConnectionId=connection,
                VpnTunnelOutsideIpAddress=outside,
                TunnelOptions={"PreSharedKey": key},
            )
        self._until_available(region, connection)

    def is_up(self, tunnel: SiteTunnel) -> bool:
        """Whether AWS reports the tunnel as up, and no change of its connection is pending."""
        region, connection, outside = self._place(tunnel)
        found = self._connections(region)[connection]
        rows = [row for row in found.get("VgwTelemetry", ()) if row["OutsideIpAddress"] == outside]
        return found["State"] == "available" and any(row.get("Status") == "UP" for row in rows)

    def maintenance(self, tunnel: SiteTunnel) -> Maintenance:
        """The maintenance announced for the tunnel's endpoint."""
        region, connection, outside = self._place(tunnel)
        with aws_errors(
            f"ask for maintenance of {tunnel.name}",
            needs=["ec2:GetVpnTunnelReplacementStatus"],
            quoting=True,
        ):
            details = (
                self._aws.client("ec2", region)
                .get_vpn_tunnel_replacement_status(
                    VpnConnectionId=connection, VpnTunnelOutsideIpAddress=outside
                )
                .get("MaintenanceDetails", {})
            )
        return Maintenance(
            str(details.get("PendingMaintenance") or "").lower() not in NO_MAINTENANCE,
            details.get("MaintenanceAutoAppliedAfter"),
            details.get("LastMaintenanceApplied"),
        )

    def replace(self, tunnel: SiteTunnel) -> None:
        """Start the announced replacement of the tunnel's endpoint, and wait for it. Address and key do not
        change."""
        region, connection, outside = self._place(tunnel)
        with aws_errors(f"replace {tunnel.name}", needs=["ec2:ReplaceVpnTunnel"], quoting=True):
            self._aws.client("ec2", region).replace_vpn_tunnel(
                VpnConnectionId=connection,
                VpnTunnelOutsideIpAddress=outside,
                ApplyPendingMaintenance=True,
            )
        self._until_available(region, connection)

    def _place(self, tunnel: SiteTunnel) -> tuple[str, str, str]:
        """Region, connection and outside address of a tunnel. Raises ``DriveError`` if AWS does not have
        it."""
        region = self._regions[tunnel.link]
        outside = str(self._outputs.remote(tunnel))
        for name, each in self._connections(region).items():
            if any(row["OutsideIpAddress"] == outside for row in _options(each)):
                return region, name, outside
        raise DriveError(
            f"{region} has no VPN connection with the tunnel {outside}; see what `invoke plan` says"
        )

    def _until_available(self, region: str, connection: str) -> None:
        waited = 0.0
        while (state := self._connections(region)[connection]["State"]) != "available":
            if waited > _CHANGE_TAKES:
                raise DriveError(
                    f"{connection} in {region} is still {state} after {waited:.0f} s; run this command again"
                )
            self._wait(_BETWEEN)
            waited += _BETWEEN

    def _connections(self, region: str) -> dict[str, Any]:
        with aws_errors("read VPN connections"):
            answer = self._aws.client("ec2", region).describe_vpn_connections(
                Filters=[{"Name": "state", "Values": ["pending", "available", "modifying"]}]
            )
        return {each["VpnConnectionId"]: each for each in answer["VpnConnections"]}


def _options(connection: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        row
        for row in connection.get("Options", {}).get("TunnelOptions", ())
        if row.get("OutsideIpAddress") is not None
    ]
