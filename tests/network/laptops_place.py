"""The small set-up for remote access: two servers of research.yaml, and all that is behind them on one node.

::

    laptop, desk ─ home ─┐            ┌─ igw ─ us-west-2 ─┐
                         ├─ internet ─┤                   ├─ inside: pods, services, machines
    other laptops ───────┘            └──────── rack-a ───┘

There are no tunnels between sites here, so this kernel will do where it lets us make namespaces; the third
server, in eu-west-1, does not answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from network.engineer import ROOT
from network.lab import Lab, Segment
from network.laptops import Access, Laptop, Server, echoes, resolver
from network.machine import Direct, Machine, MachineFault, machine
from network.node import Node
from network.world import research
from qemu import Unavailable

POD, SERVICE, LOGIN, MASTER, STORAGE = "10.4.0.5", "10.0.16.20", "10.2.0.13", "10.2.0.10", "10.200.0.3"
METADATA = "169.254.169.254"
WORLD = "198.51.100.80"
"""Somebody on the internet, who also answers for its names."""

REGION, RACK = "us-west-2", "rack-a"
_PUBLIC = {REGION: "192.0.2.16", RACK: "198.51.100.10", "eu-west-1": "192.0.2.17"}
HOME = "203.0.113.200"
_AMONG_PODS = "10.7.255.2"
"""Of `inside`, where pods and services are, in the overlay."""


@dataclass
class Place:
    """All of it. `servers`: by site."""

    lab: Lab
    access: Access
    servers: dict[str, Server]
    inside: Node
    overlay: Segment
    world: Node
    home: Segment
    laptop: Laptop
    desk: Laptop

    @property
    def region(self) -> Server:
        return self.servers[REGION]

    @property
    def rack(self) -> Server:
        return self.servers[RACK]

    def join_overlay(self, server: Node, address: str) -> None:
        """Gives a server in a region what flannel would. `address`: its own among nodes."""
        _join(self.overlay, server, address)

    @contextmanager
    def bare_server(self, name: str, *, public: str, address: str, router: str) -> Iterator[Node]:
        """A machine of eu-west-1 with the packages and nothing else. `router`: `inside`'s address there."""
        server = self.lab.node(name)
        try:
            self.lab.internet.attach(server, public)
            lan = self.lab.segment(name)
            lan.attach(server, "ens5", f"{address}/16")
            lan.attach(self.inside, "eu", f"{router}/16")
            server.ip(f"route add 10.0.0.0/8 via {router}")
            self.join_overlay(server, address)
            systemctl = Path(__file__).with_name("systemctl.py").read_text()
            server.write("/usr/local/sbin/systemctl", systemctl, 0o755)
            server.check("mkdir", "-p", "/run/systemd/system")  # how programs know systemd, sd_booted(3)
            yield server
        finally:
            # The region's block is another server's next.
            self.inside.run("ip", "link", "delete", "eu")
            self.lab.remove(server)


def specs(*changes: tuple[str, str]) -> dict[str, str]:
    """`environments/` of an engineer whose secrets are in a file. `changes`: old words and new ones."""
    files = {
        file.name: file.read_text(encoding="utf-8")
        for file in (ROOT / "environments").iterdir()
        if file.name.startswith(("base", "research"))
    }
    for old, new in (("secrets: {store: ssm}", "secrets: {store: local}"), *changes):
        assert old in files["research.yaml"], f"research.yaml does not say {old!r}"
        files["research.yaml"] = files["research.yaml"].replace(old, new)
    return files


def place_machine() -> Machine:
    """This machine where its kernel has what laptops need, which starts programs far quicker than a VM."""
    if os.environ.get("CAUSEWAY_LAB") == "vm":
        return machine()
    try:
        direct = Direct()
    except Unavailable:
        return machine()
    try:
        trial = direct.run(["sh", "-c", "ip tuntap add t0 mode tun && nft list ruleset"])
    except MachineFault:
        direct.close()
        return machine()
    if trial.ok:
        return direct
    direct.close()
    return machine()


def draw(lab: Lab, folder: Path) -> Place:
    """The whole set-up, with its daemons."""
    access = Access.made(research(), folder)
    inside, world = _inside(lab), _world(lab)
    overlay = _overlay(lab, inside)
    servers = {
        REGION: Server(access, REGION, _in_region(lab, inside, overlay)),
        RACK: Server(access, RACK, _in_rack(lab, inside)),
    }
    for server in servers.values():
        server.node.write("/etc/resolv.conf", f"nameserver {WORLD}\n")
        echoes(server.node, 22)
        server.install()
        server.start()
        server.start_names()
    home = lab.nat("home", HOME, "192.168.178.1/24")
    laptop, desk = (
        Laptop.behind(home, name, f"192.168.178.{number}/24", "192.168.178.1", WORLD)
        for number, name in enumerate(("laptop", "desk"), 20)
    )
    return Place(lab, access, servers, inside, overlay, world, home, laptop, desk)


def _inside(lab: Lab) -> Node:
    node = lab.node("inside")
    node.forwards()
    addresses = (POD, SERVICE, LOGIN, MASTER, STORAGE, METADATA, "10.2.0.2", "10.0.16.10")
    node.ip(*(f"address add {address}/32 dev lo" for address in addresses))
    return node


def _world(lab: Lab) -> Node:
    node = lab.node("world")
    lab.internet.attach(node, WORLD)
    hosts = {f"vpn-{site}.research.lab.example": address for site, address in _PUBLIC.items()}
    resolver(node, [WORLD], {"www.example.org": WORLD, **hosts}, "--address=/#/")
    echoes(node, 80)
    return node


def _overlay(lab: Lab, inside: Node) -> Segment:
    """Stands for the pods' network: a server in a region reaches pods and services by it, and by nothing
    else."""
    overlay = lab.segment("overlay")
    overlay.attach(inside, "pods", f"{_AMONG_PODS}/24")
    return overlay


def _join(overlay: Segment, server: Node, address: str) -> None:
    overlay.attach(server, "flannel.1", f"{address}/32")
    pods_routes(server)


def pods_routes(server: Node) -> None:
    """As flannel makes them; the kernel takes them away when the interface goes down."""
    ways = (
        f"route replace {to} via {_AMONG_PODS} dev flannel.1 onlink" for to in ("10.4.0.0/14", "10.0.16.0/20")
    )
    server.ip(*ways)


def _in_region(lab: Lab, inside: Node, overlay: Segment) -> Node:
    """A server in a VPC, whose internet gateway translates one address to one."""
    private, public = "10.2.48.16", _PUBLIC[REGION]
    vpc, gateway, server = lab.segment("vpc"), lab.node("igw"), lab.node(REGION)
    lab.internet.attach(gateway, public)
    gateway.forwards()
    vpc.attach(gateway, "lan", "10.2.0.1/16")
    gateway.nft(
        "table ip nat {\n"
        "  chain before {\n    type nat hook prerouting priority -100\n"
        f"    iifname wan dnat to {private}\n  }}\n"
        "  chain after {\n    type nat hook postrouting priority 100\n"
        f"    oifname wan ip saddr {private} snat to {public}\n  }}\n}}\n"
    )
    vpc.attach(server, "ens5", f"{private}/16", gateway="10.2.0.1")
    vpc.attach(inside, "vpc", "10.2.255.1/16")
    server.ip("route add 10.0.0.0/8 via 10.2.255.1")
    _join(overlay, server, private)
    resolver(
        inside,
        ["10.2.0.2", "10.0.16.10"],
        {"fs-1.research.internal": "10.2.0.99", "web.default.svc.cluster.local": SERVICE},
        "--address=/#/",
    )
    echoes(inside, 22, 80)
    return server


def _in_rack(lab: Lab, inside: Node) -> Node:
    """A site's gateway, with a public address of its own."""
    lan, server = lab.segment("rack"), lab.node(RACK)
    lab.internet.attach(server, _PUBLIC[RACK])
    lan.attach(server, "lan", "10.200.0.2/22")
    lan.attach(inside, "rack", "10.200.3.1/22")
    server.ip("route add 10.0.0.0/8 via 10.200.3.1")
    return server
