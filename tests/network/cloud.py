"""AWS's API in front of the regions that the lab plays, for commands that talk to both.

It is the embedded AWS, and all that stands in for AWS's inside is `Cloud`: a key that ModifyVpnTunnelOptions
brings it gives to the charon in AWS's role, and what VgwTelemetry tells it has from that charon and its bgpd.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from network.aws import AwsRegion, End
from network.machine import LEASH
from network.node import wait_for

from infra.drive import localaws
from infra.drive.localaws import Server
from infra.model import Cluster, Outputs
from infra.model.places import Link

_ROOT = Path(__file__).parents[2]


@dataclass
class Cloud:
    """A running one. `regions`: those that are played, by name; none before there is a world."""

    server: Server
    process: subprocess.Popen[bytes]
    listener: Listener
    regions: dict[str, AwsRegion] = field(default_factory=dict)

    @classmethod
    def started(cls, folder: Path) -> Cloud:
        """`folder` becomes its own."""
        folder.mkdir()
        (folder / "profile").write_text("[default]\n")
        listener = Listener(str(Path(tempfile.mkdtemp(prefix="causeway-lab-")) / "cloud"))
        command = [*LEASH, sys.executable, "-m", "network.cloud_process", str(listener.address)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--folder", str(folder), "--environment", "lab"],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'tests'}"},
            )
        server = wait_for(lambda: localaws.status(folder), "embedded AWS", 60)
        assert server is not None
        made = cls(server, process, listener)
        threading.Thread(target=made._serve, daemon=True).start()
        return made

    def environment(self, region: str) -> dict[str, str]:
        """What leads programs here."""
        return localaws.environment(self.server, region)

    def connect(self, cluster: Cluster, keys: dict[str, str]) -> Outputs:
        """Makes a cluster's VPN connections, as its Terraform does; what AWS then decided."""
        return Outputs({link.name: self._connection(cluster, link, keys) for link in cluster.network.links})

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        folder = Path(str(self.listener.address)).parent
        self.listener.close()
        folder.rmdir()

    def _connection(
        self, cluster: Cluster, link: Link, keys: dict[str, str]
    ) -> tuple[IPv4Address, IPv4Address]:
        import boto3

        region = cluster.region(link.aws_site)
        env = self.environment(region.region)
        ec2: Any = boto3.session.Session(
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
            region_name=region.region,
        ).client("ec2", endpoint_url=env["AWS_ENDPOINT_URL"])
        site = ec2.create_customer_gateway(Type="ipsec.1", IpAddress=str(link.address), BgpAsn=link.site_asn)[
            "CustomerGateway"
        ]
        gateway = ec2.create_vpn_gateway(Type="ipsec.1", AmazonSideAsn=region.asn)["VpnGateway"]
        made = ec2.create_vpn_connection(
            Type="ipsec.1",
            CustomerGatewayId=site["CustomerGatewayId"],
            VpnGatewayId=gateway["VpnGatewayId"],
            Options={
                "TunnelOptions": [
                    {"PreSharedKey": keys[tunnel.secret], "TunnelInsideCidr": str(tunnel.inside)}
                    for tunnel in link.tunnels
                ]
            },
        )["VpnConnection"]
        first, second = (IPv4Address(row["OutsideIpAddress"]) for row in made["Options"]["TunnelOptions"])
        return first, second

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                with self.listener.accept() as line:
                    match line.recv():
                        case ("telemetry",):
                            line.send(self._telemetry())
                        case ("key", str(outside), str(key)):
                            region, end = self._end(outside)
                            region.change_key(end, key)
                            line.send(None)
                        case ("replace", str(outside)):
                            region, end = self._end(outside)
                            with region.maintenance(end):
                                time.sleep(2)  # the endpoint is away, and nobody has to hear of its return
                            line.send(None)

    def _end(self, outside: str) -> tuple[AwsRegion, End]:
        return next(
            (region, end)
            for region in self.regions.values()
            for end in region.ends.values()
            if str(end.outside) == outside
        )

    def _telemetry(self) -> dict[str, dict[str, Any]]:
        found = {}
        for region in self.regions.values():
            up = region.charon.established()
            told = region.told() if region.frr else {}
            for end in region.ends.values():
                routes = len(told.get(str(end.tunnel.site_inside), ()))
                status = "UP" if end.name in up else "DOWN"
                message = "" if status == "UP" else "IPSEC IS DOWN"
                found[str(end.outside)] = {
                    "Status": status,
                    "StatusMessage": message,
                    "AcceptedRouteCount": routes,
                }
        return found
