"""Draws networks of namespaces on a `Machine`, in which real daemons run.

How a test is written:

    def test_site_reaches_region(lab: Lab) -> None:
        gateway, region = lab.node("gateway"), lab.node("region")
        lab.internet.attach(gateway, "198.51.100.10")          # public side `wan`, a default route
        lab.internet.attach(region, "203.0.113.1", "203.0.113.2")
        lan = lab.segment("lan")                                # a switch
        lan.attach(gateway, "lan", "10.0.0.1/24")
        host = lab.node("host")
        lan.attach(host, "eth0", "10.0.0.9/24", gateway="10.0.0.1")
        gateway.write_tree(files, base="/etc/swanctl")          # rendered, as they are
        Charon.start(gateway).load()
        pings = host.pinging("10.1.0.9")                        # goes on while we do other things
        with lab.internet.cut("203.0.113.1"):                   # the first tunnel dies, nobody is told
            second = lambda: gateway.routes().get("10.1.0.0/16") == "tunnel2"
            wait_for(second, "route over tunnel 2", 10, [gateway])
        assert pings.stop().longest_gap < 10

Nodes have their own /etc (a layer over the installed one; /etc/swanctl, /etc/frr and /etc/openvpn start
empty), /run,
/tmp, /var/lib, /var/log, host name and processes, so any number of charons, bgpds and openvpns live side by
side
(`daemons.py` starts them). Where a condition is not met in time, the message carries the logs of all that
was started on
the nodes given. Nothing here knows an address of any spec.

    internet                one router; each attached node has a wire of its own, so any address may be
    anywhere
      ├─ gateway ─ segment ─ nodes             a site; `nat` puts a box in between
      ├─ region ─ segment ─ gateway, worker    AWS's role; `peer` joins two regions as VPC peering does
      └─ nat box ─ laptop
    `overlay`               pods behind nodes, as flannel's VXLAN does; `service` a service address, as
    kube-proxy's
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from network.machine import Machine
from network.node import Cut, Node

# The router's address on each wire to the internet: RFC 5737, TEST-NET-1, which nothing else here uses.
ROUTER = "192.0.2.1"


@dataclass
class Lab:
    """All nodes of one set-up. `close` ends them; the machine's end does so too."""

    machine: Machine
    nodes: dict[str, Node] = field(default_factory=dict)
    _segments: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _peerings: itertools.count[int] = field(default_factory=itertools.count)
    _internet: Internet | None = None

    def node(self, name: str) -> Node:
        """A new node. Names are host names, unique in the lab."""
        assert name not in self.nodes, f"two nodes named {name}"
        self.nodes[name] = Node.made(self.machine, name)
        return self.nodes[name]

    def remove(self, node: Node) -> None:
        node.close()
        del self.nodes[node.name]

    @property
    def internet(self) -> Internet:
        """The router between all that has a public address; made when first asked for."""
        if self._internet is None:
            self._internet = Internet(self, self.node("internet"))
            self._internet.router.forwards()
        return self._internet

    @property
    def switches(self) -> Node:
        """The node with the bridges of all segments."""
        return self.nodes.get("switches") or self.node("switches")

    def segment(self, name: str, mtu: int = 1500) -> Segment:
        """A switch, to which nodes are attached."""
        bridge = f"s{next(self._segments)}"
        self.switches.ip(f"link add {bridge} mtu {mtu} type bridge", f"link set {bridge} up")
        return Segment(self, bridge, mtu)

    def wire(
        self,
        one: tuple[Node, str],
        other: tuple[Node, str],
        mtu: int = 1500,
        settings: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> None:
        """A cable between two nodes: an interface on each, up.

        Args:
            one: A node, and the name of its new interface.
            other: The same for the other end.
            mtu: Of both interfaces, in bytes.
            settings: Lines for `ip -batch` at each end, once its interface is up.
        """
        (node, name), (peer, peer_name) = one, other
        ends = [["netns", str(end.first), "mtu", str(mtu)] for end in (node, peer)]
        made = self.machine.run(
            ["ip", "link", "add", name, *ends[0], "type", "veth", "peer", "name", peer_name, *ends[1]]
        )
        assert made.ok, str(made)
        for (end, interface), lines in zip((one, other), settings, strict=True):
            end.ip(f"link set {interface} up", *lines)

    def nat(self, name: str, public: str, inside: str) -> Segment:
        """A home router or an office's: all behind it share the address `public`.

        Args:
            name: Of the box, which is `lab.nodes[name]`, with interfaces `wan` and `lan`.
            public: Its address on the internet.
            inside: Its address inside with its length, "192.168.1.1/24".

        Returns:
            The segment behind it.
        """
        box = self.node(name)
        self.internet.attach(box, public)
        box.forwards()
        behind = self.segment(f"behind-{name}")
        behind.attach(box, "lan", inside)
        box.nft(
            "table ip nat {\n  chain after {\n    type nat hook postrouting priority 100\n"
            "    oifname wan masquerade\n  }\n}\n"
            "table ip filter {\n  chain pass {\n    type filter hook forward priority 0; policy drop\n"
            "    ct state established,related accept\n    iifname lan accept\n  }\n}\n"
        )
        return behind

    def peer(self, one: Node, one_blocks: Sequence[str], other: Node, other_blocks: Sequence[str]) -> None:
        """VPC peering: routes for each other's blocks, and nothing else passes, as AWS has it (it is not
        transitive)."""
        to_other, to_one = f"p-{other.name}"[:15], f"p-{one.name}"[:15]
        self.wire((one, to_other), (other, to_one))
        # A node may have many peers, so each pair has two addresses of its own.
        first = 2 * next(self._peerings)
        near, far_end = f"169.254.255.{first}", f"169.254.255.{first + 1}"
        for node, interface, own, theirs, local, remote in (
            (one, to_other, one_blocks, other_blocks, near, far_end),
            (other, to_one, other_blocks, one_blocks, far_end, near),
        ):
            node.forwards()
            node.ip(
                f"address add {local}/32 peer {remote} dev {interface}",
                *(f"route add {block} via {remote} dev {interface}" for block in theirs),
            )
            ours, far = (f"{{ {', '.join(blocks)} }}" for blocks in (own, theirs))
            node.nft(
                f"table ip peering_{interface.replace('-', '_')} {{\n  chain pass {{\n"
                "    type filter hook forward priority -10\n"
                f"    iifname {interface} ip saddr != {far} drop\n"
                f"    iifname {interface} ip daddr != {ours} drop\n"
                f"    oifname {interface} ip saddr != {ours} drop\n"
                f"    oifname {interface} ip daddr != {far} drop\n"
                "  }\n}\n"
            )

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(node.logs() for node in self.nodes.values() if node.processes)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        self.nodes.clear()
        self._internet = None

    def __repr__(self) -> str:
        return f"Lab({', '.join(self.nodes)})"


@dataclass
class Internet:
    """A router with a wire to each node. `cut` and `shape` are how the world gets worse."""

    lab: Lab
    router: Node
    _wires: dict[str, str] = field(default_factory=dict)
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def attach(
        self, node: Node, *addresses: str, interface: str = "wan", mtu: int = 1500, metric: int = 0
    ) -> None:
        """Gives a node public addresses (without length) and a default route. `metric`: its, of a further
        line."""
        wire = f"to{next(self._count)}"
        self._wires[node.name] = wire
        at_node = (
            *(f"address add {address}/32 dev {interface}" for address in addresses),
            f"route add {ROUTER}/32 dev {interface} src {addresses[0]} metric {metric}",
            f"route add default via {ROUTER} dev {interface} src {addresses[0]} metric {metric}",
        )
        at_router = (
            f"address add {ROUTER}/32 dev {wire}",
            *(f"route add {address}/32 dev {wire}" for address in addresses),
        )
        self.lab.wire((node, interface), (self.router, wire), mtu, (at_node, at_router))

    def cut(self, *addresses: str) -> Cut:
        """Drops what goes from and to these addresses, until `mend` or the end of a `with`."""
        return self.router.cut(*addresses)

    @contextmanager
    def unplugged(self, node: Node) -> Iterator[None]:
        """Takes a node's cable out."""
        wire = self._wires[node.name]
        routes = self.router.check("ip", "route", "show", "dev", wire).splitlines()
        self.router.ip(f"link set {wire} down")
        yield
        self.router.ip(f"link set {wire} up", *(f"route replace {route} dev {wire}" for route in routes))

    def shape(self, node: Node, options: str) -> None:
        """Makes the way to a node worse, in tc-netem(8)'s words: `delay 40ms loss 1%`; "" takes it back."""
        wire = self._wires[node.name]
        self.router.run("tc", "qdisc", "del", "dev", wire, "root")
        if options:
            self.router.check("tc", "qdisc", "add", "dev", wire, "root", "netem", *options.split())


@dataclass
class Segment:
    """A switch."""

    lab: Lab
    bridge: str
    mtu: int
    _ports: itertools.count[int] = field(default_factory=itertools.count)
    _of: dict[str, str] = field(default_factory=dict)

    def attach(self, node: Node, interface: str, address: str, gateway: str = "") -> None:
        """Plugs a node in.

        Args:
            node: The node.
            interface: The name of its new interface.
            address: Its address with the segment's length.
            gateway: Its default route, where it is to have one.
        """
        port = self._of[node.name] = f"{self.bridge}p{next(self._ports)}"
        settings = [f"address add {address} dev {interface}"]
        if gateway:
            settings.append(f"route add default via {gateway} dev {interface}")
        switches = self.lab.switches
        self.lab.wire(
            (node, interface),
            (switches, port),
            self.mtu,
            (settings, [f"link set {port} master {self.bridge}"]),
        )

    @contextmanager
    def unplugged(self, node: Node) -> Iterator[None]:
        """Takes a node's cable out."""
        self.lab.switches.ip(f"link set {self._of[node.name]} down")
        yield
        self.lab.switches.ip(f"link set {self._of[node.name]} up")


@dataclass(frozen=True)
class OverlayMember:
    """A node of the overlay. `underlay`: its address among nodes; `pods`: its block of pod addresses."""

    node: Node
    underlay: str
    pods: str


def overlay(members: Sequence[OverlayMember], mtu: int, vni: int = 1, port: int = 8472) -> None:
    """Joins nodes as flannel's VXLAN backend does: `flannel.1` with a /32 of the node's pod block's first
    address, a
    bridge `cni0` with the next one, and static neighbours, forwarding entries and routes to all others.

    Source: flannel, pkg/backend/vxlan/vxlan_network.go.
    """
    rows = [
        (
            m,
            ipaddress.ip_network(m.pods),
            f"0e:00:00:00:{number >> 8:02x}:{number & 255:02x}",
        )
        for number, m in enumerate(members, 1)
    ]
    name = f"flannel.{vni}"
    for member, pods, mac in rows:
        node = member.node
        node.forwards()
        node.ip(
            f"link add {name} address {mac} mtu {mtu} type vxlan"
            f" id {vni} local {member.underlay} dstport {port} nolearning",
            f"address add {pods[0]}/32 dev {name}",
            f"link set {name} up",
            f"link add cni0 mtu {mtu} type bridge",
            f"address add {pods[1]}/{pods.prefixlen} dev cni0",
            "link set cni0 up",
        )
        others = [(other, block, hardware) for other, block, hardware in rows if other is not member]
        node.ip(
            *(
                f"neighbour add {block[0]} lladdr {hardware} dev {name} nud permanent"
                for _, block, hardware in others
            ),
            *(f"route add {block} via {block[0]} dev {name} onlink" for _, block, _ in others),
        )
        entries = (
            f"fdb append {hardware} dev {name} dst {other.underlay}\n" for other, _, hardware in others
        )
        node.check("bridge", "-batch", "-", stdin="".join(entries))


def pod(lab: Lab, name: str, on: Node, address: str, gateway: str, mtu: int) -> Node:
    """A pod on a node of the overlay: a node of its own behind `cni0`. `address` with its length."""
    made = lab.node(name)
    port = f"veth-{name}"[:15]
    settings = [f"address add {address} dev eth0", f"route add default via {gateway} dev eth0"]
    lab.wire((made, "eth0"), (on, port), mtu, (settings, [f"link set {port} master cni0"]))
    return made


def service(on: Node, address: str, backends: Mapping[int, tuple[str, int]]) -> None:
    """A service address on a node, as kube-proxy's nftables rules have it: port → (pod's address, port)."""
    rules = "\n".join(
        f"    ip daddr {address} tcp dport {port} dnat to {pod_address}:{target}"
        for port, (pod_address, target) in backends.items()
    )
    table = "service_" + address.replace(".", "_")
    on.nft(
        f"table ip {table} {{\n"
        f"  chain before {{\n    type nat hook prerouting priority -100\n{rules}\n  }}\n"
        f"  chain out {{\n    type nat hook output priority -100\n{rules}\n  }}\n}}\n"
    )
