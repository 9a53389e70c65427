"""`invoke vpn.push`, `status`, `rotate` and `maintain` as a person runs them: real SSH, strongSwan and FRR.

AWS is the embedded one, which knows the same tunnels as the lab: see `cloud.py` for what stands in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from network.cloud import Cloud
from network.engineer import Engineer, ssh_missing
from network.lab import Lab
from network.world import World, new_keys

from infra.drive.secrets import Store, open_store
from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

_REGION = "us-west-2"
_DESK = "198.51.100.99"
"""From where the engineer comes to rack-b, over the internet."""
_SPEC = """\
version: 1
name: lab
domain: lab.internal
secrets: {store: ssm}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
  rack-a:
    kind: physical
    cidr: 10.200.0.0/24
    gateway: {addresses: [198.51.100.10]}
    nodes:
      gateway-a: {address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}
      titan-a: {address: 10.200.0.11, cpus: 4, memory: 8 GiB}
  rack-b:
    kind: physical
    cidr: 10.200.1.0/24
    gateway: {addresses: [198.51.100.20], ssh_from: [198.51.100.99/32]}
    nodes:
      gateway-b: {address: 10.200.1.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}
      titan-b: {address: 10.200.1.11, cpus: 4, memory: 8 GiB}
images: {cpu: {}}
access: {vpn: {servers: []}}
"""

_ROWS = {
    ("rack-a", "us-west-2-1"),
    ("rack-a", "us-west-2-2"),
    ("rack-a", "rack-b-1"),
    ("rack-b", "us-west-2-1"),
    ("rack-b", "us-west-2-2"),
    ("rack-b", "rack-a-1"),
}


@dataclass
class Net:
    """Two racks and a region, an engineer who reaches the gateways, and the secrets store in AWS."""

    world: World
    engineer: Engineer
    store: Store
    env: Mapping[str, str]

    def ec2(self) -> Any:
        """A client of the region's EC2."""
        import boto3

        return boto3.session.Session(
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            region_name=_REGION,
        ).client("ec2", endpoint_url=self.env["AWS_ENDPOINT_URL"])

    def rows(self, told: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        """The tunnels of `vpn.status --json`, by site and tunnel."""
        return {(row["site"], row["tunnel"]): row for row in told["tunnels"]}


@pytest.fixture(scope="module")
def net(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    if package := ssh_missing():
        pytest.skip(f"needs the package {package}")
    folder = tmp_path_factory.mktemp("net")
    (folder / "lab.yaml").write_text(_SPEC, encoding="utf-8")
    cluster = resolve(load(folder / "lab.yaml").spec, Lock(), "lab")[0]
    keys = new_keys(cluster)
    with ExitStack() as closing:
        cloud = Cloud.started(folder / "aws")
        closing.callback(cloud.close)
        outputs = cloud.connect(cluster, keys)
        world = World.made(lab, cluster, outputs=outputs, kept=keys)
        cloud.regions = world.regions
        env = cloud.environment(_REGION)
        store = open_store(cluster.secrets, "lab", folder, env)
        store.add(keys)
        engineer = Engineer.made(folder / "project", "lab", {"lab.yaml": _SPEC}, outputs, env)
        closing.callback(engineer.close)
        near, far = world.sites["rack-a"], world.sites["rack-b"]
        address = str(near.gateway.address)
        engineer.reaches(near.gateway.fqdn, near.node, by=near.host, address=address)
        desk = lab.node("desk")
        lab.internet.attach(desk, _DESK)
        address = str(far.gateway.tunnels[0].local)
        engineer.reaches(far.gateway.fqdn, far.node, by=desk, address=address)
        engineer.stays_connected()
        yield Net(world, engineer, store, env)


def test_status_tells_of_every_tunnel_from_both_ends(net: Net) -> None:
    for site in net.world.sites.values():
        for each in site.gateway.tunnels:
            assert site.node.reaches(str(each.inside_remote), count=3, seconds=20), (site.name, each.name)
    rows = net.rows(net.engineer.asked("vpn.status"))
    assert rows.keys() == _ROWS
    for (_, tunnel), row in rows.items():
        ours, theirs = row["gateway"], row["aws"]
        assert (row["down"], ours["established"], ours["session"]) == (False, True, "Established"), tunnel
        assert (ours["state"], ours["associations"] > 0) == ("ESTABLISHED", True)
        assert ours["bytes_in"] > 0, tunnel
        assert ours["bytes_out"] > 0, tunnel
        assert (theirs is not None) == tunnel.startswith(_REGION)
        if theirs:
            assert theirs["up"]
            assert theirs["routes"] > 0


def test_keys_are_rotated_while_traffic_flows(net: Net, tmp_path: Path) -> None:
    world = net.world
    site, other, region = world.sites["rack-a"], world.sites["rack-b"], world.regions[_REGION]
    old = dict(world.kept)
    pings = [
        site.host.pinging(region.worker_address, 0.1),
        region.worker.pinging(site.host_address, 0.1),
        site.host.pinging(other.host_address, 0.1),
        other.host.pinging(site.host_address, 0.1),
    ]
    before, sessions = site.charon.associations(), site.sessions_ended()
    result = net.engineer.invoke("vpn.rotate", "--site", "rack-a")
    assert result.returncode == 0, result.stderr
    world.wait_healthy()
    seen = [pinging.stop() for pinging in pings]
    assert [each.lost for each in seen] == [0, 0, 0, 0], result.stderr
    assert result.stdout == "rack-a: 3 tunnels have new keys.\n"

    now = world.kept = dict(net.store.read(old))
    ours = {tunnel.secret for tunnel in site.gateway.tunnels}
    assert {name for name in old if now[name] != old[name]} == ours
    assert net.store.names() == tuple(sorted(old)), "no next key waits any more"
    after = site.charon.associations()
    for name in ("us-west-2-1", "us-west-2-2"):  # begun anew with the new key
        assert len(after[name]) == 1
        assert after[name] != before[name]
    # Sites prove the new key to each other when they next meet.
    assert after["rack-b-1"] == before["rack-b-1"]
    assert site.sessions_ended()["rack-b-1"] == sessions["rack-b-1"]
    site.tool("restart", "rack-b-1")
    world.wait_healthy(60)
    told = site.charon.log() + other.charon.log() + result.stdout + result.stderr
    assert not [name for name, value in {**old, **now}.items() if value in told]

    end = region.end(site.name, 2)
    log = site.log_from_here()
    region.change_key(end, old[end.tunnel.secret])
    try:
        site.node.wait_for(lambda: "AUTH_FAILED" in log(), "word of the old key's refusal")
        status = net.engineer.invoke("vpn.status", "--json")
        assert status.returncode == 1
        down = {key: row for key, row in net.rows(json.loads(status.stdout)).items() if row["down"]}
        assert down.keys() == {("rack-a", "us-west-2-2")}
        (row,) = down.values()
        assert (row["gateway"]["established"], row["aws"]["up"]) == (False, False)
    finally:
        region.change_key(end, now[end.tunnel.secret])
    world.wait_healthy(60)


def test_pending_maintenance_is_applied_while_traffic_flows(net: Net) -> None:
    """AWS's end goes away for a while, as its charon and bgpd have it."""
    world, ec2 = net.world, net.ec2()
    site, region = world.sites["rack-a"], world.regions[_REGION]
    outside = {number: str(region.end(site.name, number).outside) for number in (1, 2)}
    (connection,) = (
        each["VpnConnectionId"]
        for each in ec2.describe_vpn_connections()["VpnConnections"]
        if outside[1] in [row["OutsideIpAddress"] for row in each["VgwTelemetry"]]
    )
    ec2.create_tags(
        Resources=[connection],
        Tags=[{"Key": f"maintenance {address}", "Value": ""} for address in outside.values()],
    )
    planned = {row["tunnel"]: row for row in net.engineer.asked("vpn.maintain", "--site", "rack-a", "--plan")}
    assert {name: row["pending"] for name, row in planned.items()} == {
        "us-west-2-1": True,
        "us-west-2-2": True,
    }

    # While the other one is down, the command refuses, and has touched nothing.
    with world.lab.internet.cut(outside[2]):
        world.wait_path("rack-a", region.region.vpc, site.interface(_REGION))
        site.node.run("swanctl", "--terminate", "--ike", f"{_REGION}-2", "--force", "--timeout", "1")
        site.node.wait_for(
            lambda: not site.is_up(site.interface(_REGION, 2)), "a tunnel that is seen to be down", 60
        )
        refused = net.engineer.invoke("vpn.maintain", "--site", "rack-a", "--tunnel", "us-west-2-1")
        assert refused.returncode != 0
        assert "us-west-2-2" in refused.stderr
    site.tool("revive")
    world.wait_joined()
    world.wait_healthy(60)

    pings = [site.host.pinging(region.worker_address, 0.1), region.worker.pinging(site.host_address, 0.1)]
    done = net.engineer.asked("vpn.maintain", "--site", "rack-a")
    lost = [pinging.stop().lost for pinging in pings]
    assert {row["tunnel"]: (row["replaced"], row["pending"]) for row in done} == {
        "us-west-2-1": (True, False),
        "us-west-2-2": (True, False),
    }
    assert lost == [0, 0]
    world.wait_healthy(60)
    assert (
        site.node.check("find", "/run/site-gateway/drained", "/run/site-gateway/maintenance", "-type", "f")
        == ""
    )
    again = net.engineer.invoke("vpn.maintain", "--site", "rack-a")
    assert again.returncode == 0


def test_a_push_of_what_is_there_changes_nothing(net: Net) -> None:
    """Of what the rotation left there, too."""
    before = {name: site.charon.associations() for name, site in net.world.sites.items()}
    pings = [
        site.host.pinging(net.world.regions[_REGION].worker_address) for site in net.world.sites.values()
    ]
    told = net.engineer.asked("vpn.push")
    assert {each["site"]: (each["changed"], each["error"]) for each in told} == {
        "rack-a": ([], ""),
        "rack-b": ([], ""),
    }
    assert {name: site.charon.associations() for name, site in net.world.sites.items()} == before
    assert [pinging.stop().lost for pinging in pings] == [0, 0]


def test_a_push_that_locks_us_out_is_taken_back(net: Net) -> None:
    """Its own connection goes on, and no new one comes through."""
    site, path = net.world.sites["rack-b"], "/etc/nftables/site-gateway.nft"
    before, file = site.rules(), site.node.read(path)
    there = site.host.pinging(net.world.regions[_REGION].worker_address)
    net.engineer.change(f"ssh_from: [{_DESK}/32]", "ssh_from: [203.0.113.0/24]")
    result = net.engineer.invoke("vpn.push", "--json", "--site", "rack-b")
    assert result.returncode == 1
    (told,) = json.loads(result.stdout)
    assert "ssh_from" in told["error"]
    assert site.rules() != before
    # What is armed there comes after a minute (test_sites_firewall.py waits for one): here it is done now.
    timer = site.node.read("/run/site-gateway/rollback.pid").strip()
    waits = site.node.check("pgrep", "--session", timer, "--exact", "--list-full", "sleep")
    assert waits.split()[1:] == ["sleep", "60"]
    site.tool("rollback")
    site.node.run("pkill", "--session", timer)
    assert site.rules() == before
    net.engineer.change("ssh_from: [203.0.113.0/24]", f"ssh_from: [{_DESK}/32]")
    (told,) = net.engineer.asked("vpn.push", "--site", "rack-b")
    assert (told["changed"], told["error"]) == ([path], "")
    assert site.node.read(path) == file
    assert site.rules() == before
    assert there.stop().lost == 0
