"""AWS's ends of tunnels, on the embedded AWS."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from localaws.control import Control
from localaws.faults import refused

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.localaws import Server
from infra.drive.vpn.cloud import Cloud
from infra.errors import DriveError
from infra.load import load
from infra.model import Cluster, Outputs
from infra.model.tunnels import SiteTunnel
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

REGION = "us-west-2"
LINK = "lab-us-west-2"


@pytest.fixture(scope="module")
def env(cloud: Server) -> dict[str, str]:
    return localaws.environment(cloud, REGION)


@pytest.fixture(scope="module")
def ec2(env: dict[str, str]) -> Any:
    return Aws(env).client("ec2", REGION)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    spec = load(Path(__file__).parents[2] / "environments" / "local.yaml").spec
    return resolve(spec, Lock(), "local")[0]


@pytest.fixture
def connection(ec2: Any) -> Iterator[dict[str, Any]]:
    """One that stands, as Terraform would make it."""
    customer = ec2.create_customer_gateway(Type="ipsec.1", IpAddress="198.51.100.10", BgpAsn=65010)
    gateway = ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    made: dict[str, Any] = ec2.create_vpn_connection(
        Type="ipsec.1",
        CustomerGatewayId=customer["CustomerGateway"]["CustomerGatewayId"],
        VpnGatewayId=gateway,
        Options={"TunnelOptions": [{"PreSharedKey": "first_old_key"}, {"PreSharedKey": "second_old_key"}]},
    )["VpnConnection"]
    yield made
    ec2.delete_vpn_connection(VpnConnectionId=made["VpnConnectionId"])


@pytest.fixture
def outputs(connection: dict[str, Any]) -> Outputs:
    first, second = (each["OutsideIpAddress"] for each in connection["Options"]["TunnelOptions"])
    return Outputs(tunnels={LINK: (IPv4Address(first), IPv4Address(second))})


def tunnel(cluster: Cluster, number: int) -> SiteTunnel:
    return next(each for each in cluster.gateways[0].tunnels if each.link == LINK and each.number == number)


def keys(ec2: Any, connection: dict[str, Any]) -> list[str | None]:
    """As a customer's configuration has them: that is where Terraform reads them."""
    (found,) = ec2.describe_vpn_connections(VpnConnectionIds=[connection["VpnConnectionId"]])[
        "VpnConnections"
    ]
    text = found["CustomerGatewayConfiguration"]
    return [each.text for each in ElementTree.fromstring(text).iter("pre_shared_key")]


def test_every_tunnel_tells_how_it_is(cluster: Cluster, outputs: Outputs, env: dict[str, str]) -> None:
    states = Cloud(cluster, outputs, env).states()
    assert set(states) >= set(outputs.tunnels[LINK])
    state = states[outputs.tunnels[LINK][0]]
    assert (state.up, state.routes) == (False, 0)
    assert state.since is not None


def test_only_the_tunnel_that_is_meant_gets_the_key(
    cluster: Cluster, outputs: Outputs, env: dict[str, str], ec2: Any, connection: dict[str, Any]
) -> None:
    Cloud(cluster, outputs, env).change_key(tunnel(cluster, 2), "second_new_key")
    assert keys(ec2, connection) == ["first_old_key", "second_new_key"]


def test_a_tunnel_that_aws_does_not_have(cluster: Cluster, env: dict[str, str]) -> None:
    outputs = Outputs(tunnels={LINK: (IPv4Address("203.0.113.1"), IPv4Address("203.0.113.2"))})
    with pytest.raises(DriveError, match=r"us-west-2 .*203\.0\.113\.1"):
        Cloud(cluster, outputs, env).change_key(tunnel(cluster, 1), "some_new_key")


def test_a_refusal_never_quotes_the_key(
    cluster: Cluster, outputs: Outputs, env: dict[str, str], cloud: Server
) -> None:
    Control(cloud).order(refused("ModifyVpnTunnelOptions", "InvalidParameterValue", "very_secret_key is bad"))
    try:
        with pytest.raises(DriveError, match=r"us-west-2-1 \(") as caught:
            Cloud(cluster, outputs, env).change_key(tunnel(cluster, 1), "very_secret_key")
        assert "very_secret_key" not in str(caught.value)
    finally:
        Control(cloud).clear_faults()


def test_maintenance_that_aws_announces_is_applied(
    cluster: Cluster, outputs: Outputs, env: dict[str, str], ec2: Any, connection: dict[str, Any]
) -> None:
    ends, first, second = Cloud(cluster, outputs, env), tunnel(cluster, 1), tunnel(cluster, 2)
    assert not ends.maintenance(first).pending
    tag = {"Key": f"maintenance {outputs.remote(first)}", "Value": ""}
    ec2.create_tags(Resources=[connection["VpnConnectionId"]], Tags=[tag])
    announced = ends.maintenance(first)
    assert announced.pending
    assert announced.auto_applied_after is not None
    assert announced.last_applied is None
    assert not ends.maintenance(second).pending
    ends.replace(first)
    applied = ends.maintenance(first)
    assert (applied.pending, applied.auto_applied_after) == (False, None)
    assert applied.last_applied is not None
    assert not ends.is_up(first), "nobody is at the other end"
