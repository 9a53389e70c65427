"""Pods and EC2's metadata service, by the node's own rules; a node waits until network policies are in force.

The service is a program that answers on its addresses. The queue is the kernel's own, held open by a few
lines of Python: kube-network-policies itself is not here.
"""

from __future__ import annotations

import pytest
from golden_clusters import golden
from network import pod_rules
from network.lab import Lab
from network.node import Node, wait_for

from infra.render.kubernetes import pod_network
from infra.render.kubernetes.manifests import Object

WORKER, ROUTER = "10.200.0.7", "10.200.0.1"
METADATA = ("169.254.169.254", "[fd00:ec2::254]")
RESOLVER = "169.254.169.253"
"""Amazon's, which pods and their node may ask."""

POD = """
ip link add cni0 type bridge
ip address add 10.128.7.1/24 dev cni0
ip address add fd00:7::1/64 dev cni0 nodad
ip link set cni0 up
for pod in one two; do
  ip netns add $pod
  ip link add veth-$pod type veth peer name eth0 netns $pod
  ip link set veth-$pod master cni0 up
  ip -n $pod link set eth0 up
done
ip -n one address add 10.128.7.2/24 dev eth0
ip -n one address add fd00:7::2/64 dev eth0 nodad
ip -n one route add default via 10.128.7.1
ip -n one route add default via fd00:7::1
# Another bridge plugin, or a container that a pod started: what counts is that the node forwards it.
ip link set veth-two nomaster
ip address add 10.128.8.1/24 dev veth-two
ip -n two address add 10.128.8.2/24 dev eth0
ip -n two route add default via 10.128.8.1
sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
"""

QUEUE = """
import socket, struct, sys, time
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
s.bind((0, 0))
number = int(sys.argv[1])
# NFQNL_MSG_CONFIG with NFQA_CFG_CMD: bind (linux/netfilter/nfnetlink_queue.h).
command = struct.pack("=HHBxH", 8, 1, 1, socket.htons(socket.AF_INET))
body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(number)) + command
s.send(struct.pack("=IHHII", 16 + len(body), 3 << 8 | 2, 5, 1, 0) + body)  # NLM_F_REQUEST, NLM_F_ACK
answer = s.recv(4096)
assert struct.unpack_from("=i", answer, 16)[0] == 0, answer
time.sleep(600)
"""


@pytest.fixture(scope="module")
def nodes(lab: Lab) -> tuple[Node, Node]:
    """Where the service answers, and a node with two pods."""
    cloud, worker = lab.node("ec2"), lab.node("worker-1")
    subnet = lab.segment("subnet")
    subnet.attach(cloud, "eth0", f"{ROUTER}/24")
    subnet.attach(worker, "eth0", f"{WORKER}/24")
    cloud.check("sh", "-ec", "ip address add fd00:2::1/64 dev eth0 nodad; ip link set lo up")
    for address in (METADATA[0], RESOLVER, METADATA[1].strip("[]")):
        cloud.check("ip", "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
    cloud.check("ip", "route", "add", "10.128.0.0/16", "via", WORKER)
    worker.check("sh", "-ec", POD)
    worker.check("ip", "address", "add", "fd00:2::7/64", "dev", "eth0", "nodad")
    cloud.check("ip", "route", "add", "fd00:7::/64", "via", "fd00:2::7")
    worker.check("ip", "route", "add", "169.254.169.0/24", "dev", "eth0")
    worker.check("ip", "route", "add", "fd00:ec2::254", "via", "fd00:2::1")
    cloud.start("socat", "TCP6-LISTEN:80,ipv6only=0,fork,reuseaddr", "OPEN:/dev/null")
    return cloud, worker


def reaches(worker: Node, address: str, pod: str = "") -> bool:
    where = ("ip", "netns", "exec", pod) if pod else ()
    family = "TCP6" if "[" in address else "TCP4"
    return worker.run(*where, "socat", "-u", "OPEN:/dev/null", f"{family}:{address}:80,connect-timeout=3").ok


def test_the_metadata_service_answers_the_node_and_no_pod(nodes: tuple[Node, Node]) -> None:
    _, worker = nodes
    paths = [(METADATA[0], "one"), (METADATA[1], "one"), (METADATA[0], "two")]
    for address, pod in paths:  # without the rules, it answers
        wait_for(lambda: reaches(worker, address, pod), f"{address} from {pod}")  # noqa: B023
    pod_rules.load(worker, golden("research"))
    for address, pod in paths:
        assert not reaches(worker, address, pod), (address, pod)
    assert all(reaches(worker, RESOLVER, pod) for pod in ("one", "two"))
    # The node itself, and pods on its network.
    assert all(reaches(worker, address) for address in METADATA)


def test_a_service_leads_no_pod_around_the_rule(nodes: tuple[Node, Node]) -> None:
    """kube-proxy rewrites a service's address before packets are forwarded."""
    _, worker = nodes
    pod_rules.load(worker, golden("research"))
    chain = "chain prerouting { type nat hook prerouting priority dstnat; ip daddr 10.0.16.%d dnat to %s; }"
    for last, target in ((10, RESOLVER), (11, METADATA[0])):
        worker.check("nft", f"table ip service-{last} {{ {chain % (last, target)}; }}")
    assert reaches(worker, "10.0.16.10", "one")
    assert not reaches(worker, "10.0.16.11", "one")


def wait() -> Object:
    """The container of flannel's pods that waits."""
    cluster = golden("research")
    (found,) = [
        each
        for each in pod_network.flannel(cluster)["daemons.yaml"][0]["spec"]["template"]["spec"][
            "initContainers"
        ]
        if each["name"] == "wait-for-policies"
    ]
    assert isinstance(found, dict)
    return found


def test_containerd_gets_its_network_once_policies_are_in_force(nodes: tuple[Node, Node]) -> None:
    _, worker = nodes
    cluster = golden("research")
    (spared, *_) = pod_network.spared(cluster)
    data = pod_network.flannel(cluster)["configuration.yaml"][0]["data"]
    for name, text in data.items():
        worker.write(f"/etc/kube-flannel/{name}", text)

    def waited(node: str, seconds: int = 10) -> bool:
        words = ("timeout", str(seconds), "env", f"NODE={node}", *wait()["command"])
        return worker.run(*words, timeout=30).ok

    assert waited(spared)
    # It looks each second.
    assert not waited("ip-10-0-0-4", 3)
    other = worker.start("python3", "-c", QUEUE, str(pod_network.QUEUE + 900))
    assert not waited("ip-10-0-0-4", 3)
    worker.start("python3", "-c", QUEUE, str(pod_network.QUEUE))
    wait_for(lambda: waited("ip-10-0-0-4"), "the queue")
    assert other is not None
