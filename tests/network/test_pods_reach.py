"""What a pod reaches of machines: by connections, and by packets that a machine unpacks and sends on.

Two workers, a master and a file server on one LAN, with flannel's VXLAN drawn by hand. One of the workers has
further tunnels, of kinds that no machine of ours has: their packets must not get there either. The pod has
the capabilities that containerd gives by default, NET_RAW among them, which an admission policy takes away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from golden_clusters import golden
from network import pod_rules
from network.lab import Lab
from network.node import Node

LAN = {
    "storage-a": "10.200.0.5",
    "master-1": "10.200.0.6",
    "titan-01": "10.200.0.7",
    "titan-02": "10.200.0.8",
}
BLOCKS = {"master-1": 3, "titan-01": 1, "titan-02": 2}
"""Node → the third byte of its pods' addresses."""
OUTSIDE = "198.51.100.1"
SERVER, MASTER, OWN, OTHER = LAN.values()
NEIGHBOR = "10.4.2.2"
SERVICE, API, NAMES = "10.0.16.50", "10.0.16.1", "10.0.16.10"
NFS, METRICS, NODE_PORT = 2049, 9100, 30080

CAPABILITIES = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,"
    "audit_write,setfcap"
)
"""containerd's default (``defaultUnixCaps``)."""

NODE = """
ip link add cni0 type bridge
ip address add 10.4.$block.1/24 dev cni0
ip link set cni0 up
ip netns add pod
ip link add veth0 type veth peer name eth0 netns pod
ip link set veth0 master cni0 up
ip -n pod link set lo up
ip -n pod address add 10.4.$block.2/24 dev eth0
ip -n pod link set eth0 up
ip -n pod route add default via 10.4.$block.1
ip link add flannel.1 address 0e:00:00:00:00:0$block type vxlan id 1 local $address dstport 8472 nolearning
ip address add 10.4.$block.0/32 dev flannel.1
ip link set flannel.1 up
sysctl -q net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
ip link add nodelocaldns type dummy
ip address add 10.0.16.10/32 dev nodelocaldns
ip link set nodelocaldns up
ip route add 198.51.100.0/24 via 10.200.0.5
nft -f - <<EOF
table ip proxy {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    ip daddr 10.0.16.50 tcp dport 80 dnat to 10.4.2.2:8080
    ip daddr 10.0.16.1 tcp dport 443 dnat to 10.200.0.6:6443
    fib daddr type local tcp dport 30080 dnat to 10.4.2.2:8080
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr 10.4.0.0/14 ip daddr != 10.4.0.0/14 masquerade
  }
}
EOF
"""
"""A node with a pod; what flannel and kube-proxy do."""

PEER = """
ip neighbor replace 10.4.$block.0 lladdr 0e:00:00:00:00:0$block dev flannel.1 nud permanent
bridge fdb replace 0e:00:00:00:00:0$block dev flannel.1 dst $address
ip route replace 10.4.$block.0/24 via 10.4.$block.0 dev flannel.1 onlink
"""

TUNNELS = """
modprobe -a geneve ipip ip_gre
ip link add geneve1 address 0e:00:00:00:00:02 type geneve id 1 remote 10.200.0.7
ip link add ipip1 type ipip local 10.200.0.8
ip link add gre1 type gre local 10.200.0.8
ip link set geneve1 up
ip link set ipip1 up
ip link set gre1 up
"""

POD = """
import json, os, select, socket, struct, sys, time

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF

def syn(source, target, port, mine):
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    tcp = struct.pack("!HHIIBBHHH", mine, port, 7, 0, 5 << 4, 2, 64000, 0, 0)
    tcp = tcp[:16] + struct.pack("!H", checksum(ends + struct.pack("!BBH", 0, 6, len(tcp)) + tcp)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, mine, 0, 64, 6, 0) + ends
    return ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + tcp

def packed(attempt, mine):
    inner = syn(attempt["source"], *attempt["target"], mine)
    frame = bytes.fromhex(attempt["mac"] + "0e0000000009" + "0800") + inner
    udp = socket.SOCK_DGRAM, 0
    return {
        "vxlan": (*udp, 8472, struct.pack("!II", 0x08000000, 1 << 8) + frame),
        "geneve": (*udp, 6081, struct.pack("!BBHI", 0, 0, 0x6558, 1 << 8) + frame),
        "ipip": (socket.SOCK_RAW, 4, 0, inner),
        "gre": (socket.SOCK_RAW, 47, 0, struct.pack("!HH", 0, 0x0800) + inner),
    }[attempt["by"]]

attempts = json.loads(sys.argv[1])
answers = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
waiting, synned, reached = {}, {}, []
first = 10000 + os.getpid() % 5000 * 10  # a server goes on with its answers to the one before
for number, attempt in enumerate(attempts):
    if attempt["by"] in ("tcp", "udp"):
        host, port = attempt["target"]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        one = socket.socket(family, socket.SOCK_STREAM if attempt["by"] == "tcp" else socket.SOCK_DGRAM)
        one.setblocking(False)
        address = socket.getaddrinfo(host, port, family)[0][4]
        try:
            one.connect(address)
            if attempt["by"] == "udp":
                one.send(b"?")
        except BlockingIOError:
            pass
        except OSError:
            continue
        waiting[one] = attempt
    elif attempt["by"] == "raw":
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, attempt["protocol"]) as one:
            one.sendto(bytes(24), (attempt["target"][0], 0))
    else:
        kind, protocol, port, data = packed(attempt, first + number)
        with socket.socket(socket.AF_INET, kind, protocol) as one:
            one.sendto(data, (attempt["at"], port))
        synned[attempt["target"][1], first + number] = attempt
end = time.monotonic() + 4
while (left := end - time.monotonic()) > 0 and (waiting or synned):
    writers = [one for one, attempt in waiting.items() if attempt["by"] == "tcp"]
    readable, writable, _ = select.select([answers, *(set(waiting) - set(writers))], writers, [], left)
    for one in readable:
        if one is answers:
            packet = one.recv(2048)
            start = (packet[0] & 15) * 4
            theirs, mine = struct.unpack_from("!HH", packet, start)
            if packet[start + 13] & 18 == 18 and (theirs, mine) in synned:
                reached.append(synned.pop((theirs, mine))["name"])
            continue
        try:
            one.recv(100)
            reached.append(waiting[one]["name"])
        except OSError:
            pass
        del waiting[one]
    for one in writable:
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            reached.append(waiting[one]["name"])
        del waiting[one]
print(json.dumps(sorted(reached)))
"""
"""Tries all of a list at once, and prints the names of those that were answered."""


class Nodes(NamedTuple):
    """The lab: the pod that tries is on ``own``."""

    server: Node
    master: Node
    own: Node
    other: Node


@pytest.fixture(scope="module")
def nodes(lab: Lab) -> Nodes:
    made = Nodes(*(lab.node(name) for name in LAN))
    lan = lab.segment("lan")
    for node, address in zip(made, LAN.values(), strict=True):
        lan.attach(node, "eth0", f"{address}/21")
    workers = {name: node for name, node in zip(LAN, made, strict=True) if name in BLOCKS}
    for name, node in workers.items():
        node.check("env", f"block={BLOCKS[name]}", f"address={LAN[name]}", "sh", "-ec", NODE)
        for peer, block in BLOCKS.items():
            if peer != name:
                node.check("env", f"block={block}", f"address={LAN[peer]}", "sh", "-ec", PEER)
        for port in (NFS, METRICS, 6443):
            node.start("socat", f"TCP6-LISTEN:{port},ipv6only=0,fork,reuseaddr", "OPEN:/dev/null")
        node.start("socat", "UDP4-LISTEN:53,bind=10.0.16.10,fork,reuseaddr", "PIPE")
        node.start("ip", "netns", "exec", "pod", "socat", "TCP-LISTEN:8080,fork,reuseaddr", "OPEN:/dev/null")
    made.other.check("sh", "-ec", TUNNELS)
    made.server.check("ip", "address", "add", f"{OUTSIDE}/24", "dev", "lo")
    for port in (NFS, METRICS, 443):
        made.server.start("socat", f"TCP-LISTEN:{port},fork,reuseaddr", "OPEN:/dev/null")
    made.server.start("socat", "UDP4-LISTEN:53,fork,reuseaddr", "PIPE")
    return made


@pytest.fixture
def without_rules(nodes: Nodes) -> Iterator[None]:
    yield
    for node in nodes:
        pod_rules.unload(node)


def tries(node: Node, attempts: Sequence[dict[str, Any]]) -> list[str]:
    """The names of a pod's attempts that were answered."""
    only = ",".join(["-all", *(f"+{each}" for each in CAPABILITIES.split(","))])
    words = ("ip", "netns", "exec", "pod", "setpriv", f"--bounding-set={only}", "python3", "-c", POD)
    found: list[str] = json.loads(node.check(*words, json.dumps(list(attempts)), timeout=60))
    return found


def connects(name: str, host: str, port: int, by: str = "tcp") -> dict[str, Any]:
    return {"name": name, "by": by, "target": [host, port]}


def packed(
    by: str, at: str, target: tuple[str, int] = (SERVER, NFS), source: str = "10.4.1.2"
) -> dict[str, Any]:
    mac = "0e0000000001" if at in (OWN, "10.4.1.1") else "0e0000000002"
    name = f"{by} to {at} for {target[0]}"
    return {"name": name, "by": by, "at": at, "mac": mac, "target": list(target), "source": source}


THROUGH_ANOTHER = [
    packed("vxlan", OTHER),
    packed("vxlan", OTHER, (OTHER, METRICS)),
    packed("vxlan", "10.4.2.0"),
    packed("vxlan", NEIGHBOR.replace(".2.2", ".2.1")),
    packed("geneve", OTHER),
    packed("ipip", OTHER),
    packed("gre", OTHER),
]
THROUGH_ITS_OWN = [packed("vxlan", OWN), packed("vxlan", "10.4.1.1")]


def named(attempts: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(each["name"] for each in attempts)


@pytest.mark.usefixtures("without_rules")
def test_nothing_that_machines_unpack_leads_a_pod_to_a_server(nodes: Nodes) -> None:
    """Each lock alone: the pod's own machine lets none of it out, and one that unpacks it sends none on."""
    research = golden("research")
    attempts = [*THROUGH_ANOTHER, *THROUGH_ITS_OWN]
    assert tries(nodes.own, attempts) == named(attempts), "the attack works where there are no rules"
    pod_rules.load(nodes.own, research)
    assert tries(nodes.own, attempts) == []
    pod_rules.unload(nodes.own)
    pod_rules.load(nodes.other, research)
    unpacked = [each for each in THROUGH_ANOTHER if each["by"] == "vxlan"]
    assert tries(nodes.own, unpacked) == []


REFUSED = [
    connects("a port of its own node", OWN, METRICS),
    connects("by the bridge's address", "10.4.1.1", METRICS),
    connects("by the address that no router hands on", "fe80::ff:fe00:fe%eth0", METRICS),
    connects("another node", OTHER, METRICS),
    connects("another node's bridge", "10.4.2.1", METRICS),
    connects("another node by its address among pods", "10.4.2.0", METRICS),
    connects("a master's figures", MASTER, METRICS),
    connects("a server", SERVER, METRICS),
    connects("a server of HTTPS", SERVER, 443),
    connects("files", SERVER, NFS),
    connects("files outside", OUTSIDE, NFS),
    connects("a node port of its own node", OWN, NODE_PORT),
    connects("a node port of another", OTHER, NODE_PORT),
]
REACHED = [
    connects("another pod", NEIGHBOR, 8080),
    connects("a service", SERVICE, 80),
    connects("the API", API, 443),
    connects("the API by its address", MASTER, 6443),
    connects("names of its node's cache", NAMES, 53, "udp"),
    connects("names of a resolver", SERVER, 53, "udp"),
    connects("the internet", OUTSIDE, METRICS),
]


@pytest.mark.usefixtures("without_rules")
def test_a_pod_reaches_pods_services_names_and_the_internet(nodes: Nodes) -> None:
    research = golden("research")
    nodes.own.check("ip", "address", "replace", "fe80::ff:fe00:fe/64", "dev", "cni0", "nodad")
    assert tries(nodes.own, [*REFUSED, *REACHED]) == named([*REFUSED, *REACHED])
    for node in (nodes.own, nodes.other):
        pod_rules.load(node, research)
    pod_rules.load(nodes.master, research, master=True)
    assert tries(nodes.own, [*REFUSED, *REACHED]) == named(REACHED)
    # What goes on between machines and pods the other way, and between machines.
    for node, host, port in (
        (nodes.own, "10.4.1.2", 8080),
        (nodes.master, "10.4.1.2", 8080),
        (nodes.master, OWN, METRICS),
        (nodes.own, SERVER, NFS),
        (nodes.own, "10.4.1.1", METRICS),
    ):
        assert node.run("socat", "-u", "OPEN:/dev/null", f"TCP:{host}:{port},connect-timeout=3").ok, (
            host,
            port,
        )
    assert nodes.own.run("ip", "netns", "exec", "pod", "ping", "-c1", "-W3", OTHER).ok


@pytest.mark.usefixtures("without_rules")
def test_of_machines_a_master_s_pods_are_refused_files_alone(nodes: Nodes) -> None:
    """Prometheus asks machines for their figures; it runs on a master, and no pod of anybody's does."""
    research = golden("research")
    pod_rules.load(nodes.master, research, master=True)
    figures = [connects(f"figures of {host}", host, METRICS) for host in (MASTER, OTHER, SERVER)]
    refused = [connects("files", SERVER, NFS), connects("a node port", MASTER, NODE_PORT)]
    attacks = [packed("vxlan", OTHER, source="10.4.3.2")]
    assert tries(nodes.master, [*figures, *refused, *attacks]) == named(figures)


@pytest.mark.usefixtures("without_rules")
def test_the_spec_lets_pods_reach_a_server_of_the_lab(nodes: Nodes) -> None:
    allowed = [{"block": f"{SERVER}/32", "protocol": "tcp", "ports": [METRICS]}]
    text = pod_rules.text(golden("research"), allowed=allowed, endpoints=["10.200.0.4/31"])
    nodes.own.write(pod_rules.FILE, text)
    nodes.own.check("nft", "--file", pod_rules.FILE)
    reached = [connects("the server", SERVER, METRICS), connects("an endpoint", SERVER, 443)]
    assert tries(nodes.own, [*reached, connects("another", OTHER, METRICS)]) == named(reached)
