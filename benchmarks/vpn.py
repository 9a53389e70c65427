"""Throughput and processor time of WireGuard beside OpenVPN, at one of our VPN servers.

``PYTHONPATH=tests python -m benchmarks.vpn``, as root. A laptop behind a router sends to a pod behind the
server and receives from it, by TCP (iperf3), with the rendered files of both kinds: profiles, firewall and
groups as in `tests/network`. Without a VPN the laptop talks to a machine on the internet, by the same router.

All ends are on this machine: the processor time is that of both ends, with iperf3's. In namespaces of this
kernel it is that of their processes; a kernel with WireGuard or with data channel offload (DCO) also works in
threads of its own, which are not among them. So ``CAUSEWAY_LAB=vm`` boots a kernel that has WireGuard, and
counts all that QEMU used; without KVM, where encryption has no instructions of the processor, its figures say
nothing. Where the kernel lacks WireGuard, wg-quick(8) takes wireguard-go.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from network.lab import Lab
from network.laptops import Server
from network.laptops_place import POD, WORLD, Place, draw, place_machine
from network.machine import Machine, Vm
from network.node import Node
from network.world import research

from benchmarks.run import machine as described
from infra.drive.secrets.local import LocalStore
from infra.drive.vpn.wireguard import Register, new_private_key, public_key, server_files
from infra.model import Cluster
from infra.render.openvpn import render
from infra.render.openvpn.wireguard import listener_of, profile

SECONDS: Final = 5
ROUNDS: Final = 3
USER: Final = "ada"
_GIB: Final = 1 << 30
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """One transfer."""

    mbits: float
    cpu: float
    """Seconds of processors for each GiB."""


def spent(machine: Machine) -> float:
    """Seconds of processors that the lab has used."""
    if isinstance(machine, Vm):
        return machine.spent()
    told = machine.run(["sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true"]).stdout
    # utime, stime, and those of children that have ended (proc(5)); a name may have blanks.
    rows = [line.rpartition(")")[2].split() for line in told.splitlines()]
    return sum(int(ticks) for row in rows for ticks in row[11:15]) / _TICKS


def transfer(machine: Machine, laptop: Node, to: Node, address: str, seconds: int, *options: str) -> Measured:
    before = spent(machine)
    rate = laptop.throughput(to, address, seconds, *options).bits_per_second
    return Measured(rate / 1e6, (spent(machine) - before) / (rate / 8 * seconds / _GIB))


def speaking_both(text: str) -> str:
    return text.replace("  vpn: {servers: [", "  vpn: {kinds: [openvpn, wireguard], servers: [")


@contextmanager
def wireguard(place: Place, cluster: Cluster) -> Iterator[None]:
    """Both ends of WireGuard, up."""
    access, server = place.access, place.region
    vpn, outputs = cluster.access.vpn, access.outputs
    shown = next(each for each in vpn.servers if each.site == server.site)
    listener = listener_of(shown)
    assert listener is not None
    store = LocalStore("bench", access.build / "bench", {"CAUSEWAY_SECRETS_KEY": access.key})
    register = Register(store, lambda: datetime.now(UTC))
    user = next(each for each in vpn.users if each.login == USER)
    ours, theirs = new_private_key(), new_private_key()
    device = register.add(user, "", public_key(theirs), datetime.now(UTC) + timedelta(days=1))
    tree = {
        path.removeprefix(f"{server.site}/"): text
        for path, text in render(cluster, outputs).items()
        if path.startswith((f"{server.site}/etc/wireguard/", f"{server.site}/etc/nftables/"))
    }
    server.node.write_tree({**tree, **server_files(ours, register.peers(vpn))}, 0o600)
    server.node.check("/usr/local/sbin/remote-access-firewall")
    text = profile(
        cluster, outputs, shown,
        whose=USER, address=device.address(user), private_key=theirs, server_key=public_key(ours),
    )  # fmt: skip
    laptop = place.laptop.node
    # No resolvconf(8) here, and no names are asked for.
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("DNS"))
    laptop.write("/etc/wireguard/bench.conf", plain, 0o600)
    ends = ((server.node, listener.device), (laptop, "bench"))
    try:
        for node, device_name in ends:
            node.check("wg-quick", "up", device_name, timeout=60)
        yield
    finally:
        for node, device_name in reversed(ends):
            node.run("wg-quick", "down", device_name, timeout=60)


def kind_of_wireguard(place: Place) -> str:
    userspace = place.laptop.node.run("pgrep", "-x", "wireguard-go").ok
    return f"WireGuard ({'wireguard-go' if userspace else 'kernel'})"


def kind_of_openvpn(server: Server) -> str:
    return f"OpenVPN UDP ({'DCO' if 'DCO device' in server.log() else 'without DCO'})"


def measure(place: Place, cluster: Cluster, seconds: int) -> Iterator[tuple[str, str, Measured]]:
    """Kind, direction and figures; each kind once."""
    machine, laptop = place.lab.machine, place.laptop

    def both(kind: str, to: Node, address: str) -> Iterator[tuple[str, str, Measured]]:
        for direction, options in (("sends", ()), ("receives", ("--reverse",))):
            yield kind, direction, transfer(machine, laptop.node, to, address, seconds, *options)

    yield from both("no VPN", place.world, WORLD)
    with laptop.connected(place.access.profile(USER, at=place.region.site)):
        yield from both(kind_of_openvpn(place.region), place.inside, POD)
    with wireguard(place, cluster):
        yield from both(kind_of_wireguard(place), place.inside, POD)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="WireGuard beside OpenVPN")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each transfer")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the table has their medians")
    arguments = parser.parse_args()
    lab_machine = place_machine()
    found: dict[tuple[str, str], list[Measured]] = {}
    try:
        with TemporaryDirectory() as folder:
            lab = Lab(lab_machine)
            place = draw(lab, Path(folder))
            # In turns: what else the machine does is then in all of them.
            for _ in range(arguments.rounds):
                for kind, direction, one in measure(place, research(speaking_both), arguments.seconds):
                    found.setdefault((kind, direction), []).append(one)
            kernel = lab_machine.kernel
    finally:
        lab_machine.close()
    row: Callable[..., str] = "| {} | {} | {} | {} |\n".format
    write = sys.stdout.write
    write(row("", "the laptop", "Mbit/s", "s of CPU a GiB") + row("---", "---", "---:", "---:"))
    for (kind, direction), those in found.items():
        mbits = statistics.median(each.mbits for each in those)
        write(row(kind, direction, f"{mbits:,.0f}", f"{statistics.median(each.cpu for each in those):.1f}"))
    load = os.getloadavg()[0]
    write(f"\n{described()}; the lab's kernel is {kernel}; load {load:.1f} at the end.\n")


if __name__ == "__main__":
    main()
