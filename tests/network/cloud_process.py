"""`python -m network.cloud_process SOCKET …`: the embedded AWS, with VPN connections that have tunnels.

The embedded AWS keeps what was said of a tunnel; there is none. This one asks whoever listens at SOCKET how
tunnels are (`{outside address: VgwTelemetry}`), each time somebody asks for VPN connections, and is done with
ModifyVpnTunnelOptions and ReplaceVpnTunnel when that listener is. Further arguments are those of `python -m
infra.localaws`.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Client
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.responses.vpn_connections import VPNConnections

from infra.localaws.__main__ import main
from infra.localaws.extensions import vpn_connections
from infra.localaws.patching import around


def _ask(socket: str, *words: str) -> Any:
    with Client(socket) as line:
        line.send(words)
        return line.recv()


def _install(socket: str) -> None:
    @around(VPNConnections)
    def describe_vpn_connections(original: Any, self: Any) -> ActionResult:
        answer: ActionResult = original(self)
        telemetry = _ask(socket, "telemetry")
        for connection in answer.result["VpnConnections"]:  # type: ignore[index]
            for row in connection.vgw_telemetry:
                row.update(telemetry.get(row["OutsideIpAddress"], {}))
        return answer

    @around(VPNConnections)
    def modify_vpn_tunnel_options(original: Any, self: Any) -> ActionResult:
        answer: ActionResult = original(self)
        key = self._get_param("TunnelOptions")["PreSharedKey"]
        _ask(socket, "key", self._get_param("VpnTunnelOutsideIpAddress"), key)
        return answer

    @around(VPNConnections)
    def replace_vpn_tunnel(original: Any, self: Any) -> ActionResult:
        answer: ActionResult = original(self)
        _ask(socket, "replace", self._get_param("VpnTunnelOutsideIpAddress"))
        return answer


if __name__ == "__main__":
    path, before = sys.argv.pop(1), vpn_connections.install

    def install() -> None:
        before()
        _install(path)

    vpn_connections.install = install
    main()
