"""Routes of a gateway whose LAN loses its address: the script as rendered, real zebra and staticd."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from render.tools import needs
from waiting import until

SCRIPT = Path(__file__).parents[2] / "templates/strongswan/static/usr/local/sbin/site-tunnel"
ZEBRA = "/usr/lib/frr/zebra"
MAP = "ip protocol static route-map from-lan"
TOOL = ("sh", "/etc/frr/site-tunnel")
REVIVE = (*TOOL, "revive")
FIREWALL = "site-gateway.nft"
RULES = "table inet site_gateway {\n  set inside { type ifname; }\n}\n"
LAN, ODD = "10.9.0.0/16", "10.8.0.0/16"
CONFIGURATION = f"""\
frr version 8.1
frr defaults traditional
route-map from-lan permit 10
 match interface one
 set src 10.200.0.1
route-map from-lan permit 20
 set src 10.77.0.1
{MAP}
ip route {LAN} one
ip route {ODD} two
"""
SCENE = """\
set -eu
for folder in /run /var/tmp; do mount -t tmpfs tmpfs $folder; done
mkdir /run/frr /run/site-gateway
chown frr:frr /run/frr
mount --bind "$1" /etc/frr
mount --bind /bin/true "$(command -v swanctl)"
for link in lan one two; do
    ip link add $link type veth peer name to-$link
    ip link set $link up
    ip link set to-$link up
done
ip link set lo up
ip address add 10.77.0.1/32 dev lo
ip address add 10.200.0.1/24 dev lan
for daemon in zebra staticd; do /usr/lib/frr/$daemon --daemon --vty_addr 127.0.0.1; done
vtysh -c 'configure terminal' -c 'zebra route-map delay-timer 0'
vtysh -f /etc/frr/frr.conf
touch /run/ready
exec sleep infinity
"""

pytestmark = [needs("frr", ZEBRA), needs("iproute2", "ip"), needs("util-linux", "unshare")]


class Gateway:
    """Namespaces with FRR, in which the script runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def enter(self, *words: str) -> list[str]:
        return ["nsenter", f"--target={self._pid}", "--mount", "--net", "--", *words]

    def run(self, *words: str) -> str:
        """What a command prints, with its errors."""
        return subprocess.run(
            self.enter(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        ).stdout

    def revive(self) -> str:
        return self.run(*REVIVE)

    def source(self, block: str) -> str:
        """Of the kernel's route: ``src 10.200.0.1``; empty without one."""
        return self.run("ip", "route", "show", block).partition(" src ")[2].split(" ")[0]

    def maps(self) -> bool:
        return MAP in self.run("vtysh", "-c", "show running-config").splitlines()

    def refused(self) -> list[str]:
        lines = self.run("vtysh", "-c", "show ip route").splitlines()
        return sorted(line.split()[1] for line in lines if line.startswith("S>r"))

    def lose_lan(self) -> None:
        """Its address goes and comes back."""
        self.run("ip", "address", "delete", "10.200.0.1/24", "dev", "lan")
        until(lambda: LAN in self.refused())
        self.run("ip", "address", "add", "10.200.0.1/24", "dev", "lan")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*spaces, "true"], check=False).returncode:
        pytest.skip("needs root, as FRR's daemons change their user, and namespaces")
    etc = tmp_path / "etc"
    etc.mkdir()
    # Other folders are there on gateways alone.
    script = SCRIPT.read_text().replace("/etc/site-gateway", "/etc/frr").replace("/etc/nftables", "/etc/frr")
    files = {
        "frr.conf": CONFIGURATION,
        "vtysh.conf": "",
        "tunnels": "",
        "site-tunnel": script,
        FIREWALL: RULES,
    }
    for name, text in files.items():
        (etc / name).write_text(text)
    tmp_path.chmod(0o755)
    with subprocess.Popen([*spaces, "sh", "-c", SCENE, "sh", etc]) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            child = int(until(lambda: children.read_text().split())[0])
            until(lambda: process.poll() is None and Path(f"/proc/{child}/root/run/ready").exists())
            found = Gateway(child)
            until(lambda: (found.source(LAN), found.source(ODD)) == ("10.200.0.1", "10.77.0.1"))
            yield found
        finally:
            process.kill()


def test_routes_come_back_with_the_address_of_the_lan(gateway: Gateway) -> None:
    gateway.lose_lan()
    gateway.revive()
    assert (gateway.source(LAN), gateway.refused()) == ("10.200.0.1", [])


def test_an_interrupted_run_leaves_the_map_and_a_killed_one_is_made_good(gateway: Gateway) -> None:
    gateway.lose_lan()
    with subprocess.Popen(gateway.enter(*REVIVE)) as process:
        until(lambda: not gateway.maps(), every=0.02)
        process.terminate()
    assert gateway.maps()
    gateway.run("vtysh", "-c", "configure terminal", "-c", f"no {MAP}")
    until(lambda: not gateway.source(LAN))
    gateway.revive()
    assert gateway.maps()
    until(lambda: gateway.source(LAN) == "10.200.0.1")


def test_a_route_refused_for_another_reason_is_told_once_and_disturbs_no_other(gateway: Gateway) -> None:
    gateway.run("ip", "address", "delete", "10.77.0.1/32", "dev", "lo")
    gateway.lose_lan()
    assert ODD in gateway.revive()
    assert (gateway.source(LAN), gateway.refused()) == ("10.200.0.1", [ODD])
    with subprocess.Popen(
        gateway.enter("ip", "-oneline", "monitor", "route"), stdout=subprocess.PIPE, text=True
    ) as monitor:
        assert ODD not in gateway.revive()
        # The last change that it tells: what came before is read then.
        gateway.run("ip", "route", "add", "192.0.2.0/24", "dev", "lan")
        assert monitor.stdout is not None
        seen = next(line for line in monitor.stdout if LAN in line or "192.0.2.0/24" in line)
        monitor.kill()
    assert LAN not in seen
    gateway.lose_lan()
    gateway.revive()
    assert gateway.source(LAN) == "10.200.0.1"


@needs("nftables", "nft")
@needs("frr-pythontools", "/usr/lib/frr/frr-reload.py")
@needs("strongswan-swanctl", "swanctl")
def test_a_reload_ends_with_the_reason_why_it_failed(gateway: Gateway, tmp_path: Path) -> None:
    """``vpn.push`` shows the last line."""

    def reload() -> tuple[int, str]:
        done = subprocess.run(
            gateway.enter(*TOOL, "reload"), capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, (done.stderr.splitlines() or [""])[-1]

    assert reload()[0] == 0
    etc = tmp_path / "etc"
    (etc / "frr.conf").write_text(f"{CONFIGURATION}ip route 10.7.0.0/16 nowhere odd\n")
    code, last = reload()
    assert (code, "10.7.0.0/16 nowhere odd" in last) == (1, True), last
    (etc / "frr.conf").write_text(CONFIGURATION)
    (etc / FIREWALL).write_text(RULES.replace("ifname", "bogus"))
    code, last = reload()
    assert (code, "/etc/frr/site-gateway.nft:2:" in last) == (1, True), last
