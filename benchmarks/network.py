"""What a gateway's firewall costs a packet, by the number of its tunnels.

``PYTHONPATH=tests python -m benchmarks.network``. The rendered rules, in the lab's VM (`tests/network`),
whose processor time is that of its process here. Pings go from a machine of the LAN to one behind the
gateway's last tunnel and back: two packets each. A wire stands in for the tunnel, so no encryption is
counted. Without KVM all figures are large; what counts is how they compare.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from network.lab import Lab
from network.machine import Vm
from network.node import Node
from network.world import research
from strategies.outputs import outputs_for

from benchmarks.specs import Size, big
from infra.load import load
from infra.model import Cluster
from infra.render import strongswan
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

SIZE: Final = Size(regions=9, sites=108, pools=1, nodes=108)
"""Two tunnels to the hub of so many regions, and one to each other site: 109 at each gateway."""
PINGS: Final = 10_000
ROUNDS: Final = 7


@dataclass(frozen=True)
class Way:
    """A machine, and the address behind a gateway that it pings."""

    machine: Vm
    host: Node
    address: str

    def cost(self, pings: int) -> float:
        """Microseconds of the machine's processors for each packet."""
        before = self.machine.spent()
        self.host.check("ping", "-q", "-f", "-c", str(pings), self.address, timeout=120)
        return (self.machine.spent() - before) / (2 * pings) * 1e6


def large() -> Cluster:
    """A cluster whose gateways have 109 tunnels."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "big.yaml"
        path.write_text(big(SIZE.regions, SIZE.sites, SIZE.pools, SIZE.nodes), encoding="utf-8")
        return resolve(load(path).spec, Lock(), "big")[0]


def way(lab: Lab, machine: Vm, name: str, cluster: Cluster, *, firewall: bool = True) -> Way:
    """A LAN, its gateway and what is behind the last of its tunnels, with the rendered rules or with none."""
    gateway = cluster.gateways[0]
    tunnel = gateway.tunnels[-1]
    node, host, far = (lab.node(f"{name}-{part}") for part in ("gateway", "host", "far"))
    block, length = tunnel.accepts[0], gateway.lan.prefixlen
    here, there = (
        f"{tunnel.inside_local}/{tunnel.inside_prefix}",
        f"{tunnel.inside_remote}/{tunnel.inside_prefix}",
    )
    lab.wire(
        (host, "eth0"),
        (node, "lan"),
        settings=(
            [f"address add {gateway.lan[-2]}/{length} dev eth0", f"route add default via {gateway.address}"],
            [f"address add {gateway.address}/{length} dev lan"],
        ),
    )
    lab.wire(
        (node, tunnel.interface),
        (far, "tunnel"),
        settings=(
            [
                f"address add {here} dev {tunnel.interface}",
                f"route add {block} via {tunnel.inside_remote}",
            ],
            [
                f"address add {there} dev tunnel",
                f"address add {block[9]}/32 dev lo",
                f"route add default via {tunnel.inside_local}",
            ],
        ),
    )
    node.forwards()
    if firewall:
        rules = strongswan.render(cluster, outputs_for(cluster))[
            f"{gateway.site}/etc/nftables/site-gateway.nft"
        ]
        node.nft(f'{rules}\nadd element inet site_gateway inside {{ "lan" }}\n')
    return Way(machine, host, str(block[9]))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="processor time of a gateway's firewall")
    parser.add_argument("--pings", type=int, default=PINGS, help="in each round")
    pings = parser.parse_args().pings
    few, many = research(), large()
    machine = Vm()
    try:
        lab = Lab(machine)
        ways = {
            "no firewall": way(lab, machine, "none", few, firewall=False),
            **{
                f"{len(each.gateways[0].tunnels)} tunnels": way(lab, machine, name, each)
                for name, each in (("few", few), ("many", many))
            },
        }
        # In turns, and the least of each: what else the machine does is in the others.
        rounds = [{name: each.cost(pings) for name, each in ways.items()} for _ in range(ROUNDS)]
    finally:
        machine.close()
    for name in ways:
        sys.stdout.write(f"{name:12} {min(each[name] for each in rounds):6.1f} µs a packet\n")


if __name__ == "__main__":
    main()
