"""Starts the daemons on a node as their units would, without systemd."""

from __future__ import annotations

import base64
import json
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from network.machine import PATIENCE
from network.node import Node, Process
from vici.protocol import FiniteStream, Message

# Messages to a file that the harness can read; the journal, where the unit's go, is not there.
_CHARON_LOG = """\
charon-systemd {
  filelog {
    lab {
      path = /var/log/charon.log
      time_format = %T
      default = 1
      flush_line = yes
    }
  }
}
"""

_BUS = """\
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="signal"/>
    <allow eavesdrop="false"/>
  </policy>
</busconfig>
"""


@dataclass(frozen=True)
class IkeSa:
    """An IKE SA, as one end has it. `spis`: the same at both; `children`: how many are installed."""

    state: str
    spis: tuple[str, str]
    children: int


@dataclass
class Charon:
    """charon-systemd on a node, with the node's /etc/swanctl and /etc/strongswan.d."""

    node: Node
    process: Process

    @classmethod
    def start(cls, node: Node) -> Charon:
        node.write("/etc/strongswan.d/zz-lab.conf", _CHARON_LOG)
        node.run("rm", "-f", "/run/charon.vici")
        process = node.start(
            "sh",
            "-c",
            ": > /var/log/charon.log; tail -F /var/log/charon.log & exec charon-systemd",
            name="charon",
        )
        charon = cls(node, process)
        node.wait_for(lambda: node.exists("/run/charon.vici"), "socket of charon")
        return charon

    def load(self) -> str:
        """Loads /etc/swanctl, all of it or an error."""
        return self.node.check("swanctl", "--load-all", "--noprompt")

    def established(self) -> set[str]:
        """The names of child SAs that are installed."""
        return set(self.associations())

    def associations(self) -> dict[str, list[str]]:
        """Child's name → the SPIs of its associations that are installed, in any order."""
        found: dict[str, list[str]] = {}
        for _, sa in self._sas():
            for child in _installed(sa):
                found.setdefault(child["name"].decode(), []).append(child["spi-in"].decode())
        return found

    def ends(self) -> dict[str, list[IkeSa]]:
        """Connection's name → its IKE SAs, those that are being made too."""
        found: dict[str, list[IkeSa]] = {}
        for name, sa in self._sas():
            spis = sa["initiator-spi"].decode(), sa["responder-spi"].decode()
            found.setdefault(name, []).append(IkeSa(sa["state"].decode(), spis, len(_installed(sa))))
        return found

    def end(self, *orphans: IkeSa) -> None:
        """Ends these, which the other end does not know any more."""
        spis = {each.spis[0] for each in orphans}
        for _, sa in self._sas():
            if sa["initiator-spi"].decode() in spis:
                self.node.run("swanctl", "--terminate", "--ike-id", sa["uniqueid"].decode(), "--force")

    def _sas(self) -> list[tuple[str, Any]]:
        node = self.node
        told = node.machine.ask("vici", 10 * PATIENCE, node=node.first, command="list-sas", event="list-sa")
        return [
            row
            for each in told["events"]
            for row in Message.deserialize(FiniteStream(base64.b64decode(each))).items()
        ]

    def wait_established(self, *children: str, seconds: float = 30) -> None:
        """Waits until these children are installed."""
        self.node.wait_for(
            lambda: set(children) <= self.established(), f"tunnels {', '.join(children)}", seconds
        )

    def log(self) -> str:
        return self.process.log()

    def kill(self) -> None:
        """As a power cut would; the kernel's states go too."""
        self.process.kill()
        self.node.run("ip", "xfrm", "state", "flush")
        self.node.run("ip", "xfrm", "policy", "flush")


def _installed(sa: Any) -> list[Any]:
    return [child for child in sa.get("child-sas", {}).values() if child["state"] == b"INSTALLED"]


@dataclass
class Frr:
    """zebra, staticd and bgpd on a node, with /etc/frr/frr.conf and the options of /etc/frr/daemons."""

    node: Node
    processes: dict[str, Process]

    @classmethod
    def start(cls, node: Node) -> Frr:
        node.check(
            "sh",
            "-c",
            "touch /etc/frr/vtysh.conf && mkdir -p /run/frr && rm -f /run/frr/*.vty"
            " && chown -R frr:frr /run/frr /etc/frr",
        )
        told = node.read("/etc/frr/daemons") if node.exists("/etc/frr/daemons") else ""
        options = {
            name: shlex.split(text) for name, text in re.findall(r'^(\w+)_options="(.*)"$', told, re.M)
        }
        daemons = [name for name in ("zebra", "staticd", "bgpd") if f"{name}=no" not in told.splitlines()]
        # Each waits for zebra by itself.
        processes = {
            daemon: node.start(
                f"/usr/lib/frr/{daemon}",
                *options.get(daemon, ["-A", "127.0.0.1"]),
                "--log",
                "stdout",
                name=daemon,
            )
            for daemon in daemons
        }
        node.wait_for(
            lambda: all(node.exists(f"/run/frr/{daemon}.vty") for daemon in processes), "sockets of FRR"
        )
        frr = cls(node, processes)
        frr.load()
        return frr

    def load(self) -> None:
        """Hands /etc/frr/frr.conf to the daemons."""
        self.node.check("vtysh", "-b")

    @contextmanager
    def late(self, daemon: str) -> Iterator[None]:
        """One that does nothing for a while, as on a machine that has too much to do."""
        self.processes[daemon].send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.processes[daemon].send(signal.SIGCONT)

    def show(self, command: str) -> Any:
        """`show …` of bgpd's as JSON."""
        node = self.node
        told = node.machine.ask("vty", 30, node=node.first, daemon="bgpd", command=f"show {command} json")
        assert told["code"] == 0, told["text"]
        return json.loads(told["text"])

    def peers(self) -> dict[str, str]:
        """Neighbour → its state, "Established" in the end."""
        return {
            name: peer["state"]
            for name, peer in self.show("bgp ipv4 unicast summary").get("peers", {}).items()
        }

    def wait_established(self, *peers: str, seconds: float = 30) -> None:
        """Waits until these neighbours are; all where none is named."""
        self.node.wait_for(
            lambda: (
                (found := self.peers()) and all(found.get(peer) == "Established" for peer in peers or found)
            ),
            f"BGP session with {', '.join(peers) or 'all'}",
            seconds,
        )


def openvpn(node: Node, config: str, name: str = "openvpn") -> Process:
    """openvpn with a configuration file of the node, in its folder, where relative names are looked for."""
    node.check("sh", "-c", "test -c /dev/net/tun || modprobe tun")
    return node.start("openvpn", "--cd", str(Path(config).parent), "--config", config, name=name)


def dnsmasq(node: Node, *options: str) -> Process:
    """dnsmasq as a resolver alone, with options such as `--host-record=master.lab,10.0.0.9`."""
    fixed = (
        "--keep-in-foreground",
        "--no-hosts",
        "--no-resolv",
        "--bind-interfaces",
        "--conf-file=/dev/null",
    )
    return node.start("dnsmasq", *fixed, "--log-facility=-", "--user=root", *options)


def bus(node: Node) -> Process:
    """The system's D-Bus, on which everybody may do everything."""
    node.write("/run/bus.conf", _BUS)
    node.check("mkdir", "-p", "/run/dbus")
    process = node.start("dbus-daemon", "--config-file=/run/bus.conf", "--nofork", "--nopidfile", name="bus")
    node.wait_for(lambda: node.exists("/run/dbus/system_bus_socket"), "bus")
    return process


def keepalived(node: Node) -> Process:
    """As its unit starts it, with the node's /etc/keepalived."""
    return node.start("keepalived", "--dont-fork", "--log-console", name="keepalived")


def without_udev(node: Node) -> None:
    """As in a container: NetworkManager and networkd tell by this that nobody will announce interfaces."""
    node.check("mount", "-o", "remount,bind,ro", "/sys")


@contextmanager
def networkd(node: Node, networks: Mapping[str, str]) -> Iterator[None]:
    """systemd-networkd with a file for each of these interfaces (systemd.network(5), without ``[Match]``)."""
    folder = "/etc/systemd/network"
    without_udev(node)
    # It gives its root up for a user that has none on a bus without polkit; that user is root here.
    node.check("sed", "-i", "s/^systemd-network:x:[0-9]*:[0-9]*/systemd-network:x:0:0/", "/etc/passwd")
    state = [f"/run/systemd/netif/{name}" for name in ("links", "leases", "lldp")]
    node.check("mkdir", "-p", folder, *state)
    for name, text in networks.items():
        node.write(f"{folder}/10-{name}.network", f"[Match]\nName={name}\n{text}")
    started = [bus(node), node.start("/lib/systemd/systemd-networkd", name="networkd")]
    try:
        yield
    finally:
        for process in reversed(started):
            process.stop()
        node.check("rm", "-r", folder)
        node.check("mount", "-o", "remount,bind,rw", "/sys")
