"""AWS's ends of tunnels: what its VPN connections tell, and their keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any, Final

from infra.drive.aws import Aws, each_region, told
from infra.errors import DriveError
from infra.model import Cluster, Outputs
from infra.model.tunnels import SiteTunnel

_CHANGE_TAKES: Final = 1200
"""Seconds that a change of a tunnel may take before we give up waiting (Site-to-Site VPN User Guide,
"Modify tunnel options": it is not available for some minutes)."""

_BETWEEN: Final = 10.0


@dataclass(frozen=True, slots=True)
class CloudState:
    """A tunnel at AWS's end (EC2 API, ``VgwTelemetry``)."""

    up: bool
    since: datetime | None
    routes: int
    message: str


class Cloud:
    """The VPN connections of a cluster. Every method may raise ``DriveError``."""

    def __init__(
        self,
        cluster: Cluster,
        outputs: Outputs,
        env: Mapping[str, str],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """``env`` is as Terraform sees it: credentials, AWS_ENDPOINT_URL."""
        self._regions = {
            link.name: cluster.region(link.region).region
            for link in cluster.network.links
            if link.name in outputs.tunnels
        }
        self._outputs = outputs
        self._aws = Aws(env)
        self._wait = wait

    def states(self) -> Mapping[IPv4Address, CloudState]:
        """By the tunnels' outside addresses."""
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
        """Give a tunnel another pre-shared key, and wait until AWS has it."""
        region = self._regions[tunnel.link]
        outside = str(self._outputs.remote(tunnel))
        connection = next(
            (
                name
                for name, each in self._connections(region).items()
                if any(row["OutsideIpAddress"] == outside for row in _options(each))
            ),
            None,
        )
        if connection is None:
            raise DriveError(
                f"{region} has no VPN connection with the tunnel {outside}; see what `invoke plan` says"
            )
        with told(f"change the key of {tunnel.name}"):
            self._aws.client("ec2", region).modify_vpn_tunnel_options(
                VpnConnectionId=connection,
                VpnTunnelOutsideIpAddress=outside,
                TunnelOptions={"PreSharedKey": key},
            )
        waited = 0.0
        while (state := self._connections(region)[connection]["State"]) != "available":
            if waited > _CHANGE_TAKES:
                raise DriveError(
                    f"{connection} in {region} is still {state} after {waited:.0f} s; run this again to go on"
                )
            self._wait(_BETWEEN)
            waited += _BETWEEN

    def _connections(self, region: str) -> dict[str, Any]:
        with told("read VPN connections"):
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
