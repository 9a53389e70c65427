"""What a site's gateway does for the machines of its LAN: names, and the way to the internet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from network.laptops import echoes, resolver
from network.node import Node
from network.world import World

_RACK = "rack-b"
_WORLD, _WORLD_NAME = "198.51.100.90", "www.example.org"
_API = "10.2.9.9"
"""Where the private zone has the API's load balancer, as only AWS knows."""


@dataclass
class Lan:
    host: Node
    gateway: Node
    address: str
    world: Node

    def resolves(self, name: str) -> str:
        """What the gateway answers a machine of the LAN."""
        told = self.host.check("dig", "+short", "+tries=2", "+time=3", f"@{self.address}", name)
        # Of a try that got no answer, dig tells on standard output too (";; communications error …").
        return "\n".join(line for line in told.splitlines() if not line.startswith(";"))


@pytest.fixture(scope="module")
def lan(world: World) -> Iterator[Lan]:
    """A rack whose gateway answers for names, a VPN server that knows the zone, somebody on the internet."""
    site = world.sites[_RACK]
    server = world.outputs.instances["vpn-us-west-2"].private
    there = world.regions["us-west-2"].instance("vpn-us-west-2", str(server))
    known = {"api.research.internal": _API, "web.default.svc.cluster.local": "10.0.16.20"}
    processes = [resolver(there, [str(server)], known, "--address=/#/")]
    out_there = world.lab.node("somebody")
    world.lab.internet.attach(out_there, _WORLD)
    processes.append(resolver(out_there, [_WORLD], {_WORLD_NAME: _WORLD}, "--address=/#/"))
    echoes(out_there, 80)
    before = site.node.read("/etc/resolv.conf")
    site.node.write("/etc/resolv.conf", f"nameserver {_WORLD}\n")
    unit = site.node.read("/etc/systemd/system/site-gateway-dns.service")
    (command,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    processes.append(site.node.start(*command.removeprefix("ExecStart=").split(), name="names"))
    address = str(site.gateway.address)
    site.node.wait_for(lambda: site.node.check("ss", "-Hlun", f"src {address}:53"), "names")
    yield Lan(site.host, site.node, address, out_there)
    for process in processes:
        process.stop()
    site.node.write("/etc/resolv.conf", before)


def test_machines_learn_every_name(lan: Lan) -> None:
    names = {
        "titan-a01.research.internal": "10.200.0.11",
        # By the private zone, through the tunnel and a server in the region.
        "api.research.internal": _API,
        "web.default.svc.cluster.local": "10.0.16.20",
        _WORLD_NAME: _WORLD,
    }
    assert {name: lan.resolves(name) for name in names} == names


def test_names_of_machines_need_no_tunnel(world: World, lan: Lan) -> None:
    server = str(world.outputs.instances["vpn-us-west-2"].private)
    with lan.gateway.cut(server):
        assert lan.resolves("titan-a01.research.internal") == "10.200.0.11"


def test_the_lan_reaches_the_internet_by_the_gateways_address(world: World, lan: Lan) -> None:
    public = world.sites[_RACK].gateway.tunnels[0].local_id
    seen = lan.world.start("tcpdump", "-n", "-l", "-i", "wan", "icmp")
    lan.world.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    assert lan.host.reaches(_WORLD)
    lan.world.wait_for(lambda: f"IP {public} > {_WORLD}" in seen.log(), "the gateway's address")
    seen.stop()
    assert "10.200." not in seen.log()


def test_what_is_ours_is_not_translated(world: World, lan: Lan) -> None:
    region = world.regions["us-west-2"]
    own = str(world.sites[_RACK].host_address)
    seen = region.worker.start("tcpdump", "-n", "-l", "-i", "any", "icmp")
    region.worker.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    assert lan.host.reaches(region.worker_address)
    region.worker.wait_for(
        lambda: f"IP {own} > {region.worker_address}" in seen.log(), "the host's own address"
    )
    seen.stop()
