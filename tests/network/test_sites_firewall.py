"""A gateway as the internet sees it: what a neighbour on its line reaches, in it and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from network.node import Node, Process
from network.world import ENGINEER, Site, World

_NEIGHBOUR = "198.51.100.77"
_SERVICES = (22, 179, 2605, 9100, 10250, 10256)
"""SSH, BGP, FRR's shell, metrics, kubelet, kube-proxy: what listens on all addresses of a node."""
_NODE_PORT = 30080
_VXLAN = 8472
_TCP = (*range(1, 1025), *_SERVICES, _NODE_PORT)
_LAN6 = "fd00:10:200::"

_SCAN = """\
import errno, resource, selectors, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
address, ports = sys.argv[1], map(int, sys.stdin.read().split())
family = socket.AF_INET6 if ":" in address else socket.AF_INET
answered, waiting = [], selectors.DefaultSelector()
for port in ports:
    one = socket.socket(family)
    one.setblocking(False)
    if one.connect_ex(socket.getaddrinfo(address, port, family)[0][4]) in (0, errno.EINPROGRESS):
        waiting.register(one, selectors.EVENT_WRITE, port)
while ready := waiting.select(4):
    for key, _ in ready:
        if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
            answered.append(key.data)
        waiting.unregister(key.fileobj)
        key.fileobj.close()
print(*sorted(answered))
"""
"""Ports that answer, be it by a refusal."""

_SEND = """\
import socket, sys
source, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((source, 0))
one.sendto(b"from " + source.encode(), (address, port))
"""

_IKE = """\
import os, socket, struct, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(3)
for _ in range(2):
    one.sendto(os.urandom(8) + bytes(8) + struct.pack(">BBBBII", 0, 0x30, 34, 8, 0, 28), (sys.argv[1], 500))
    try:
        print(one.recv(100)[18])
        break
    except TimeoutError:
        pass
"""
"""An IKE_SA_INIT of version 3, which is answered to whoever asks (RFC 7296, 2.5): the answer's exchange."""


@dataclass
class Outside:
    """A rack, and two machines on the internet, which for them leads to the rack's LAN as well."""

    world: World
    site: Site
    neighbour: Node
    engineer: Node
    router: Node
    """What the gateway's line ends at."""

    @property
    def gateway(self) -> Node:
        return self.site.node

    @property
    def public(self) -> str:
        return str(self.site.gateway.tunnels[0].local)

    @property
    def link_local(self) -> str:
        """The gateway's address of IPv6 on its line, for the router."""
        return _link_local(self.gateway, "wan")

    @property
    def line(self) -> str:
        """The router's end of the gateway's line."""
        (route,) = self.router.check("ip", "route", "show", f"{self.public}/32").splitlines()
        return route.split()[route.split().index("dev") + 1]

    @contextmanager
    def without_our_firewall(self) -> Iterator[None]:
        """What is found then, our firewall keeps off: else a test could not fail."""
        self.gateway.check("nft", "delete", "table", "inet", "site_gateway")
        try:
            yield
        finally:
            self.site.tool("revive")


@pytest.fixture(scope="module")
def outside(world: World) -> Iterator[Outside]:
    lab, site = world.lab, world.sites["rack-a"]
    neighbour, engineer = lab.node("neighbour"), lab.node("engineer")
    lab.internet.attach(neighbour, _NEIGHBOUR)
    lab.internet.attach(engineer, ENGINEER)
    made = Outside(world, site, neighbour, engineer, lab.internet.router)
    made.router.ip(f"route add {site.gateway.lan} via {made.public} dev {made.line} onlink")
    # Of the gateway's own, bgpd is there.
    processes = [
        *(_listens(site.node, port) for port in (*_SERVICES, 443) if port not in (179, 2605)),
        *(_listens(site.host, port) for port in _SERVICES),
    ]
    _listens(neighbour, 80)
    # As kube-proxy has it: at every address of the node.
    site.node.nft(
        "table ip node_port {\n  chain before {\n    type nat hook prerouting priority dstnat\n"
        f"    tcp dport {_NODE_PORT} dnat to {site.host_address}:22\n  }}\n}}\n"
    )
    yield made
    for process in processes:
        process.stop()
    site.node.check("nft", "delete", "table", "ip", "node_port")
    made.router.ip(f"route delete {site.gateway.lan}")
    for node in (neighbour, engineer):
        lab.remove(node)


def _listens(node: Node, port: int) -> Process:
    listener = f"TCP6-LISTEN:{port},ipv6only=0,reuseaddr,fork"
    process = node.start("socat", listener, "SYSTEM:echo here", name=f"port-{port}")
    node.wait_for(lambda: node.check("ss", "-Hltn", f"sport = {port}"), f"port {port}")
    return process


def _answering(node: Node, address: str, *ports: int) -> list[int]:
    wanted = " ".join(map(str, ports or _TCP))
    return [
        int(port) for port in node.check("python3", "-c", _SCAN, address, stdin=wanted, timeout=120).split()
    ]


@contextmanager
def _arriving(node: Node) -> Iterator[Callable[[int], str]]:
    """What comes to a UDP port of a node after it was asked for a first time."""
    seen = node.start("tcpdump", "-n", "-l", "-i", "any", "-Q", "in", "udp")
    node.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    yield lambda port: "\n".join(line for line in seen.log().splitlines() if f".{port}: " in line)
    seen.stop()


def test_a_scan_finds_the_vpn_server_alone(outside: Outside) -> None:
    lan = str(outside.site.gateway.address)
    assert {443, *_SERVICES} - {2605} <= {*_answering(outside.site.host, lan)}, "what there is to be found"
    assert _answering(outside.neighbour, outside.public) == [443]
    # An address of the LAN is the gateway's as well, whichever line it is asked by.
    assert _answering(outside.neighbour, lan) == [443]
    with outside.without_our_firewall():
        assert {*_SERVICES} - {2605} <= {*_answering(outside.neighbour, outside.public)}


def test_ssh_is_open_to_whom_the_spec_names(outside: Outside) -> None:
    assert _answering(outside.engineer, outside.public, 22, 443, 10250) == [22, 443]
    assert _answering(outside.engineer, outside.site.host_address, 22) == []


def test_nothing_behind_the_gateway_is_reached(outside: Outside) -> None:
    host = outside.site.host_address
    assert _answering(outside.neighbour, host, *_SERVICES) == []
    assert _answering(outside.neighbour, outside.public, _NODE_PORT) == []
    assert not outside.neighbour.reaches(host, seconds=2)
    with outside.without_our_firewall():
        assert _answering(outside.neighbour, host, 22) == [22]
        assert _answering(outside.neighbour, outside.public, _NODE_PORT) == [_NODE_PORT]
    # The other way, and by the tunnels, all is as ever.
    assert _answering(outside.site.host, _NEIGHBOUR, 80) == [80]
    assert outside.world.regions["us-west-2"].worker.reaches(host)
    assert outside.neighbour.reaches(outside.public)


def test_nobody_outside_has_an_address_of_the_plan(outside: Outside) -> None:
    plan = outside.world.cluster.network
    region = str(outside.world.regions["us-west-2"].region.vpc[77])
    forged = [region, str(plan.pods[77]), str(plan.clients[77]), str(outside.site.gateway.lan[77])]
    outside.neighbour.ip(*(f"address add {each}/32 dev wan" for each in forged))
    host, own = outside.site.host_address, str(outside.site.gateway.address)
    with _arriving(outside.site.host) as at_host, _arriving(outside.gateway) as at_gateway:
        before = outside.site.dropped("arriving")
        for each in forged:
            for address in (host, own, outside.public):
                outside.neighbour.check("python3", "-c", _SEND, each, address, "4789")
        outside.gateway.wait_for(
            lambda: outside.site.dropped("arriving") >= before + 3 * len(forged), "twelve that are dropped"
        )
        assert outside.gateway.wait_for(lambda: at_gateway(4789), "packets on the line")
        with outside.without_our_firewall():
            outside.neighbour.check("python3", "-c", _SEND, region, host, "4790")
            outside.site.host.wait_for(lambda: at_host(4790), "a forged packet in the LAN")
        assert at_host(4789) == ""


def test_datagrams_of_the_overlay_are_not_taken(outside: Outside) -> None:
    told = outside.gateway.start("socat", "-u", f"UDP-RECV:{_VXLAN}", "-", name="vxlan")
    outside.gateway.wait_for(lambda: outside.gateway.check("ss", "-Hlun", f"sport = {_VXLAN}"), "socket")
    outside.neighbour.check("python3", "-c", _SEND, _NEIGHBOUR, outside.public, str(_VXLAN))
    outside.site.host.check(
        "python3", "-c", _SEND, outside.site.host_address, str(outside.site.gateway.address), str(_VXLAN)
    )
    outside.gateway.wait_for(lambda: f"from {outside.site.host_address}" in told.log(), "the LAN's")
    told.stop()
    assert _NEIGHBOUR not in told.log()


def test_ike_is_for_peers_alone(outside: Outside) -> None:
    def answered() -> str:
        return outside.neighbour.check("python3", "-c", _IKE, outside.public).strip()

    assert answered() == ""
    with outside.without_our_firewall():
        assert answered() == "34"


def test_the_same_by_ipv6(outside: Outside) -> None:
    gateway, host, router = outside.gateway, outside.site.host, outside.router
    own = f"{outside.link_local}%{outside.line}"
    gateway.sysctl(net__ipv6__conf__all__forwarding=1)
    far = f"{_LAN6[:-1]}ffff::1"
    made = [
        (gateway, f"address % {_LAN6}1/64 dev lan"),
        (host, f"address % {_LAN6}9/64 dev eth0"),
        (host, f"route % default via {_LAN6}1 dev eth0"),
        (router, f"address % {far}/128 dev lo"),
        (router, f"route % {_LAN6}/64 via {outside.link_local} dev {outside.line}"),
        (gateway, f"route % {far}/128 via {_link_local(router, outside.line)} dev wan"),
    ]
    for node, line in made:
        node.ip(line.replace("%", "add") + (" nodad" if line.startswith("address") else ""))
    assert router.run("ping", "-c", "1", "-W", "5", own).ok, "neighbours find each other"
    assert _answering(router, own, *_SERVICES, 443, _NODE_PORT) == [443]
    assert _answering(router, f"{_LAN6}9", *_SERVICES) == []
    with outside.without_our_firewall():
        assert 22 in _answering(router, own, 22)
        assert 22 in _answering(router, f"{_LAN6}9", 22)
    assert host.run("ping", "-c", "1", "-W", "5", far).ok, "the LAN's way out"
    for node, line in reversed(made):
        node.ip(line.replace("%", "delete"))
    gateway.sysctl(net__ipv6__conf__all__forwarding=0)


def _link_local(node: Node, interface: str) -> str:
    (line,) = node.check("ip", "-o", "-6", "addr", "show", "dev", interface, "scope", "link").splitlines()
    return line.split()[3].partition("/")[0]


def test_tunnels_begin_from_the_other_end(outside: Outside) -> None:
    """Nothing that connection tracking still knows lets them in: they are the peers'."""
    region = outside.world.regions["us-west-2"]
    outside.gateway.run("conntrack", "--flush")
    for number in (1, 2):
        end = region.end("rack-a", number)
        outside.gateway.run("swanctl", "--terminate", "--ike", f"us-west-2-{number}", "--force")
        region.node.run("swanctl", "--initiate", "--child", end.name, "--timeout", "5")
    outside.world.wait_joined()
    outside.world.wait_healthy(60)


def test_what_nobody_confirms_is_taken_back(outside: Outside) -> None:
    site, path = outside.site, "/etc/nftables/site-gateway.nft"
    before, file = site.rules(), site.node.read(path)
    locking_out = file.replace(f"{ENGINEER}/32", f"{_NEIGHBOUR}/32")
    assert locking_out != file

    def open_to(node: Node) -> bool:
        return _answering(node, outside.public, 22) == [22]

    site.node.write(path, locking_out)
    there = site.host.pinging(outside.world.regions["us-west-2"].worker_address, 0.1)
    site.tool("reload", "--confirm", "20", timeout=120)
    assert open_to(outside.neighbour)
    assert not open_to(outside.engineer)
    site.node.wait_for(lambda: site.rules() == before, "the rules of before", 60)
    assert there.stop().lost == 0
    assert open_to(outside.engineer)
    assert ENGINEER in site.node.read(path)
    site.tool("revive")
    assert site.rules() == before
    # And what is confirmed stays, as does what did not change.
    site.node.write(path, locking_out)
    site.tool("reload", "--confirm", "1000", timeout=120)
    site.tool("confirm")
    assert not site.node.exists("/run/site-gateway/firewall.before")
    site.tool("rollback")
    assert open_to(outside.neighbour)
    site.tool("reload", "--confirm", "1000", timeout=120)
    assert not site.node.exists("/run/site-gateway/firewall.before")
    site.node.write(path, file)
    site.tool("reload", timeout=120)
    assert site.rules() == before


def test_rules_of_ones_own_are_kept(outside: Outside) -> None:
    site = outside.site
    path = "/etc/nftables/site-gateway.d/metrics.nft"
    site.node.write(path, "add rule inet site_gateway from-outside tcp dport 9100 accept\n")
    site.tool("firewall")
    assert _answering(outside.neighbour, outside.public, *_SERVICES) == [9100]
    site.node.check("rm", path)
    site.tool("firewall")
    assert _answering(outside.neighbour, outside.public, *_SERVICES) == []
