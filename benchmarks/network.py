"""Throughput through our tunnels, next to the same daemons as they come: ``python -m benchmarks.network``.

TCP from a machine behind a gateway to one behind the other end, over the same wires of the lab of
``tests/network``, one after the other. With our files: AES-256-GCM over an XFRM interface, BGP, nftables. As
it comes: strongSwan with a connection of two addresses and two networks and nothing else said. Without a
tunnel: what the wires carry. In a VM without KVM all figures are small; what counts is how they compare.
"""

from __future__ import annotations

import argparse

from network.daemons import Charon
from network.lab import Lab
from network.machine import machine
from network.node import Node
from network.world import World, research

SECONDS = 5

_PLAIN = """\
connections {{ plain {{
  local_addrs = {local}
  remote_addrs = {remote}
  local {{ auth = psk }}
  remote {{ auth = psk }}
  children {{ plain {{
    local_ts = {inner}
    remote_ts = {outer}
  }} }}
}} }}
secrets {{ ike-1 {{ secret = only-for-this-measurement }} }}
"""


def plain(lab: Lab, *, tunnel: bool) -> tuple[Node, Node, str]:
    """Two gateways and a machine behind each; client, server and the server's address."""
    name = "plain" if tunnel else "bare"
    public = ("198.51.100.130", "203.0.113.130") if tunnel else ("198.51.100.140", "203.0.113.140")
    blocks = ("10.90.0", "10.91.0") if tunnel else ("10.92.0", "10.93.0")
    gateways, hosts = [], []
    for side, own in enumerate(public):
        gateway, host = lab.node(f"{name}-gateway-{side}"), lab.node(f"{name}-host-{side}")
        lab.internet.attach(gateway, own)
        gateway.forwards()
        lan = lab.segment(f"{name}-lan-{side}")
        lan.attach(gateway, "lan", f"{blocks[side]}.1/24")
        lan.attach(host, "eth0", f"{blocks[side]}.9/24", gateway=f"{blocks[side]}.1")
        if not tunnel:
            lab.internet.router.ip(f"route add {blocks[side]}.0/24 via {own}")
        gateways.append(gateway)
        hosts.append(host)
    if tunnel:
        charons = []
        for side, gateway in enumerate(gateways):
            inner, outer = (f"{blocks[each]}.0/24" for each in (side, 1 - side))
            text = _PLAIN.format(local=public[side], remote=public[1 - side], inner=inner, outer=outer)
            gateway.write("/etc/swanctl/conf.d/plain.conf", text, 0o600)
            charons.append(Charon.start(gateway))
        for charon in charons:
            charon.load()
        gateways[0].check("swanctl", "--initiate", "--child", "plain")
    return hosts[0], hosts[1], f"{blocks[1]}.9"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="throughput of site-to-site tunnels")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each measurement")
    seconds = parser.parse_args().seconds
    made = machine()
    try:
        lab = Lab(made)
        world = World.made(lab, research(), sites=["rack-a"], regions=["us-west-2"])
        site, region = world.sites["rack-a"], world.regions["us-west-2"]
        ways = {
            "our files": (site.host, region.worker, region.worker_address),
            "strongSwan as it comes": plain(lab, tunnel=True),
            "no tunnel": plain(lab, tunnel=False),
        }
        print(f"{'':24} {'Mbit/s':>8} {'ms':>6} {'resent':>7}")
        for what, (client, server, address) in ways.items():
            client.throughput(server, address, 1)  # the first packets find routes and neighbours
            seen = client.throughput(server, address, seconds)
            told = client.check("ping", "-n", "-q", "-c", "50", "-i", "0.02", address)
            trip = float(told.rpartition("= ")[2].split("/")[1])
            print(f"{what:24} {seen.bits_per_second / 1e6:8.1f} {trip:6.2f} {seen.retransmits:7}", flush=True)
    finally:
        made.close()


if __name__ == "__main__":
    main()
