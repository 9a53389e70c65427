"""One profile, the whole cluster: through a server in a region and through a rack's, over real tunnels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from network import pod_rules
from network.figures import figures
from network.lab import service
from network.laptops import Access, Laptop, Server, echoes, join_overlay, resolver
from network.node import Node, wait_for
from network.world import World

_REGION, _RACK = "us-west-2", "rack-a"
_WEB = "10.0.16.20"
_WORLD = "198.51.100.80"
_WORLD_NAME = "www.example.org"


@dataclass
class Reach:
    world: World
    access: Access
    servers: dict[str, Server]
    laptop: Laptop


@pytest.fixture(scope="module")
def reach(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    """The world with its VPN servers, as members of the cluster's overlay, and a laptop at home."""
    lab, cluster = world.lab, world.cluster
    access = Access.made(cluster, tmp_path_factory.mktemp("reach"))
    vpn = cluster.access.vpn
    servers = {
        _REGION: Server(access, _REGION, world.instance("vpn-us-west-2")),
        _RACK: Server(access, _RACK, world.sites[_RACK].node),
    }
    pods = world.pods()
    web, web_address = pods["us-east-1"]
    echoes(web, 80)
    names = {"web.default.svc.cluster.local": _WEB}
    resolver(web, [web_address], names, "--address=/#/")
    vpc = world.regions[_REGION].instance("resolver", str(access.server(_REGION).resolver))
    resolver(vpc, [str(access.server(_REGION).resolver)], {"fs-1.research.internal": "10.2.0.99"})
    out_there = lab.node("world")
    lab.internet.attach(out_there, _WORLD)
    hosts = {
        access.server(_REGION).host: str(world.outputs.instances["vpn-us-west-2"].public),
        access.server(_RACK).host: "198.51.100.10",
    }
    resolver(out_there, [_WORLD], {**hosts, _WORLD_NAME: _WORLD}, "--address=/#/")
    underlays = {_REGION: "10.2.48.16", _RACK: "10.200.0.2"}
    join_overlay(world, [(server.node, underlays[site]) for site, server in servers.items()])
    for server in servers.values():
        service(server.node, _WEB, {80: (web_address, 80)})
        server.node.nft(_dns_service(str(vpn.cluster_resolver), web_address, str(cluster.network.pods)))
        server.node.write("/etc/resolv.conf", f"nameserver {_WORLD}\n")
        server.install()
        server.start()
        server.start_names()
        pod_rules.load(server.node, cluster)
    home = lab.nat("home", "203.0.113.200", "192.168.178.1/24")
    laptop = Laptop.behind(home, "laptop", "192.168.178.20/24", "192.168.178.1", _WORLD)
    yield Reach(world, access, servers, laptop)
    for server in servers.values():
        for daemon in server.daemons.values():
            daemon.stop()
        server.node.check("nft", "delete", "table", "inet", "remote_access")
        server.node.check("nft", "delete", "table", "ip", "cluster_dns")
        server.node.check("nft", "delete", "table", "ip", f"service_{_WEB.replace('.', '_')}")
        server.node.ip("link del flannel.1")
        pod_rules.unload(server.node)


def _dns_service(address: str, pod: str, pods: str) -> str:
    """kube-proxy's rules for the cluster's resolver, and what it does to packets from outside of pods."""
    rule = f"    ip daddr {address} udp dport 53 dnat to {pod}\n"
    return (
        "table ip cluster_dns {\n"
        f"  chain before {{\n    type nat hook prerouting priority -100\n{rule}  }}\n"
        f"  chain out {{\n    type nat hook output priority -100\n{rule}  }}\n"
        "  chain after {\n    type nat hook postrouting priority 100\n"
        f"    oifname flannel.1 ip saddr != {pods} masquerade\n  }}\n}}\n"
    )


@pytest.mark.parametrize("site", [_REGION, _RACK])
def test_an_engineer_reaches_nodes_pods_and_services_everywhere(reach: Reach, site: str) -> None:
    world, laptop = reach.world, reach.laptop
    with laptop.connected(reach.access.profile("ada", at=site), seconds=60):
        wanted = {
            **{f"worker in {name}": region.worker_address for name, region in world.regions.items()},
            **{f"machine in {name}": rack.host_address for name, rack in world.sites.items()},
            **{f"pod in {name}": address for name, (_, address) in world.pods().items()},
        }
        lost = [what for what, address in wanted.items() if not laptop.node.reaches(address, seconds=4)]
        assert not lost, lost
        assert laptop.asks(_WEB), "the service"


def test_a_researcher_reaches_pods_by_name(reach: Reach) -> None:
    laptop, world = reach.laptop, reach.world
    for site in reach.servers:
        with laptop.connected(reach.access.profile("alan", at=site), seconds=60):
            names = {
                "titan-a01": "10.200.0.11",
                "master-1.research.internal": str(world.outputs.instances["master-1"].private),
                "fs-1.research.internal": "10.2.0.99",
                "web.default.svc.cluster.local": _WEB,
                _WORLD_NAME: _WORLD,
            }
            assert {name: laptop.resolves(name) for name in names} == names
            assert laptop.asks("web.default.svc.cluster.local")
            assert not laptop.node.reaches(world.sites["rack-b"].host_address, seconds=2)


@pytest.mark.parametrize("site", [_REGION, _RACK])
def test_the_largest_packets_pass(reach: Reach, site: str) -> None:
    """Over OpenVPN, a tunnel of AWS's that tells nobody that a packet is too large, and the overlay. A
    laptop's own kernel refuses what is too large for a pod, so nothing is lost on the way."""
    laptop, world = reach.laptop, reach.world
    mtu = reach.access.cluster.access.vpn.mtu
    assert mtu == figures(world.cluster).mtu
    rack = world.sites["rack-b"]
    pod, address = world.pods()["us-east-1"]
    with laptop.connected(reach.access.profile("ada", at=site), seconds=60):
        assert laptop.node.fits(rack.host_address, mtu), f"{mtu} bytes do not fit"
        assert not laptop.node.fits(rack.host_address, mtu + 1)
        laptop.node.sends(rack.host, rack.host_address, 300_000)
        laptop.node.sends(pod, address, 300_000)
        # And the other way, from where packets are larger.
        for node, at in ((rack.host, rack.host_address), (pod, address)):
            assert _fetched(laptop, node, at, 300_000) == 300_000
        for name, (_, each) in world.pods().items():
            assert laptop.node.fits(each, mtu), f"{name}: {mtu} bytes do not fit"
        size = str(mtu + 1 - 28)
        told = laptop.node.run("ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", size, address)
        assert "essage too long" in told.stdout + told.stderr


def _fetched(laptop: Laptop, node: Node, address: str, size: int) -> int:
    """Bytes that arrive of so many that a node sends to whoever asks."""
    node.start("sh", "-c", f"head -c {size} /dev/zero | socat -u - TCP-LISTEN:21000,reuseaddr", name="source")
    wait_for(lambda: node.check("ss", "-Hltn", "sport = 21000"), "a listener", nodes=[node])
    return int(laptop.node.check("sh", "-c", f"socat -u TCP:{address}:21000 - | wc -c", timeout=60))
