"""`invoke vpn.maintain --plan` on the embedded AWS, and what it refuses. `tests/network` has real tunnels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra.commands import pki_store
from infra.commands.environment import Project, find, load_project
from infra.commands.session import embedded_folder
from infra.commands.vpn import upkeep
from infra.drive import localaws
from infra.drive.build_folders import Folders
from infra.drive.outputs import keep
from infra.errors import UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
aws: {embedded: true}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
  rack:
    kind: physical
    cidr: 10.200.0.0/24
    gateway: {addresses: [198.51.100.10]}
    nodes: {gate: {address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}
images: {cpu: {}}
access: {vpn: {servers: []}}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Not applied."""
    file = tmp_path / "environments" / "lab.yaml"
    file.parent.mkdir()
    file.write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    project = load_project(find("lab"), changeable=True)
    yield project
    folder = embedded_folder(project.environment).absolute()
    if localaws.status(folder):
        localaws.stop(folder)


def connected(project: Project) -> tuple[Project, Any, dict[str, Any]]:
    """With a VPN connection at the embedded AWS, as apply makes it."""
    env = pki_store.environ(project)
    ec2 = boto3.session.Session(
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-west-2",
    ).client("ec2", endpoint_url=env["AWS_ENDPOINT_URL"])
    customer = ec2.create_customer_gateway(Type="ipsec.1", IpAddress="198.51.100.10", BgpAsn=65010)
    gateway = ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    connection = ec2.create_vpn_connection(
        Type="ipsec.1",
        CustomerGatewayId=customer["CustomerGateway"]["CustomerGatewayId"],
        VpnGatewayId=gateway,
    )["VpnConnection"]
    tunnels = [{"outside": row["OutsideIpAddress"]} for row in connection["Options"]["TunnelOptions"]]
    keep(Folders(Path("build/lab")), {"vpn_connections": {"rack-us-west-2": {"tunnels": tunnels}}})
    return load_project(find("lab"), changeable=True), ec2, connection


def test_what_is_pending_is_listed(lab: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project, ec2, connection = connected(lab)
    second = IPv4Address(connection["Options"]["TunnelOptions"][1]["OutsideIpAddress"])
    ec2.create_tags(
        Resources=[connection["VpnConnectionId"]], Tags=[{"Key": f"maintenance {second}", "Value": ""}]
    )
    capsys.readouterr()
    assert upkeep.maintain(project, "rack", "", plan=True, json=True) == 0
    rows = {row["tunnel"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: row["pending"] for name, row in rows.items()} == {"us-west-2-1": False, "us-west-2-2": True}
    assert rows["us-west-2-2"]["auto_applied_after"] is not None
    assert upkeep.maintain(project, "rack", "us-west-2-2", plan=True, json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["tunnel", "us-west-2-2"]
    with pytest.raises(UsageError, match="embedded"):
        upkeep.maintain(project, "rack", "", plan=False, json=False)


def test_what_is_not_there_is_refused(lab: Project) -> None:
    with pytest.raises(UsageError, match="rakc"):
        upkeep.maintain(lab, "rakc", "", plan=True, json=False)
    with pytest.raises(UsageError, match="mean us-west-2-1"):
        upkeep.maintain(lab, "rack", "us-west-3-1", plan=True, json=False)
    with pytest.raises(UsageError, match="us-west-2-1, us-west-2-2"):
        upkeep.maintain(lab, "rack", "", plan=True, json=False)
