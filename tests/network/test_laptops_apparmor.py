"""OpenVPN under AppArmor, by a kernel that has it: the lab's VM. What Ubuntu's own profile gives a server is
restated here, as only Ubuntu 25.04 and later have that; where this machine has it, it is taken."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from network.lab import Lab
from network.laptops import Access, Server
from network.laptops_place import RACK
from network.machine import Machine, Vm
from network.node import Node
from network.world import research

from infra.render.templating import TEMPLATES

OURS = TEMPLATES / "openvpn/static/etc/apparmor.d/local/openvpn"
THEIRS = Path("/etc/apparmor.d/openvpn")

_CLIENT = "/usr/local/bin/client"
_RESTATED = """\
abi <abi/3.0>,
include <tunables/global>
profile openvpn /usr/sbin/openvpn flags=(attach_disconnected) {
  include <abstractions/base>
  include <abstractions/nameservice>
  include <abstractions/openssl>
  capability dac_override,
  capability dac_read_search,
  capability net_admin,
  capability setgid,
  capability setuid,
  network inet dgram,
  network inet stream,
  network inet6 dgram,
  network inet6 stream,
  /dev/net/tun rw,
  /etc/openvpn/{,**} r,
  @{PROC}/@{pid}/net/route r,
  @{run}/openvpn/*.{pid,status} rw,
  /usr/sbin/openvpn mr,
  /var/log/openvpn/*.log rw,
  include if exists <local/openvpn>
}
"""


def load(machine: Machine, *, ours: bool) -> None:
    """Puts the profile into the kernel, with our part or without."""
    local = OURS.read_bytes() if ours else b""
    for command, stdin in (
        ("mkdir -p /run/ours/local && cat >/run/ours/local/openvpn", local),
        ("exec apparmor_parser --replace --skip-cache --Include /run/ours", profile().encode()),
    ):
        done = machine.run(["sh", "-c", command], stdin=stdin)
        assert done.ok, str(done)


def profile() -> str:
    return THEIRS.read_text() if THEIRS.exists() else _RESTATED


def denials(machine: Machine) -> list[str]:
    told = machine.run(["dmesg"]).stdout
    return [line for line in told.splitlines() if 'apparmor="DENIED"' in line]


@dataclass
class Confined:
    """A gateway's VPN server and a laptop on the internet: as little as shows it, as the VM is slow."""

    server: Server
    laptop: Node

    @property
    def machine(self) -> Machine:
        return self.server.node.machine


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Confined]:
    if shutil.which("apparmor_parser", path="/usr/sbin:/sbin") is None:
        pytest.skip("needs the package apparmor")
    if missing := Vm.missing():
        pytest.skip(missing)
    machine = Vm()
    try:
        done = machine.run(["mount", "-t", "securityfs", "securityfs", "/sys/kernel/security"])
        if not done.ok or not machine.run(["test", "-d", "/sys/kernel/security/apparmor"]).ok:
            pytest.skip("the VM's kernel has no AppArmor")
        load(machine, ours=True)
        lab, access = Lab(machine), Access.made(research(), tmp_path_factory.mktemp("confined"))
        gate, laptop = lab.node(RACK), lab.node("laptop")
        lab.internet.attach(gate, "198.51.100.10")
        lab.internet.attach(laptop, "203.0.113.200")
        # What its rules translate to is its address on the LAN.
        gate.ip("address add 10.200.0.2/22 dev lo")
        server = Server(access, RACK, gate)
        server.install()
        server.start()
        # By another path, so that only the server is confined.
        laptop.check("cp", "/usr/sbin/openvpn", _CLIENT)
        host = access.server(RACK).host
        laptop.write("/etc/hosts", f"127.0.0.1 localhost\n198.51.100.10 {host}\n")
        yield Confined(server, laptop)
    finally:
        machine.close()


def test_with_our_part_both_listeners_run_and_a_laptop_comes_in(confined: Confined) -> None:
    server, laptop = confined.server, confined.laptop
    pids = server.node.check("pidof", "openvpn").split()
    labels = {server.node.read(f"/proc/{pid}/attr/current").strip() for pid in pids}
    assert labels == {"openvpn (enforce)"}
    laptop.write("/run/alan.ovpn", server.access.profile("alan", at=RACK), 0o600)
    came = laptop.start(_CLIENT, "--config", "/run/alan.ovpn")
    laptop.wait_for(lambda: "Initialization Sequence Completed" in came.log(), "connection", 60)
    # learn-address has let the laptop's packets in, and client-connect the laptop.
    session = server.session("alan")
    assert session is not None
    assert laptop.reaches("100.64.2.1", count=3, seconds=20)
    came.stop()
    assert [line for line in denials(confined.machine) if 'profile="openvpn"' in line] == []


def test_without_it_no_listener_starts(confined: Confined) -> None:
    """Else it would have nothing to do, and the other test could not fail."""
    server = confined.server
    server.daemons["udp"].stop()
    load(confined.machine, ours=False)
    unit = server._unit("openvpn-server@udp.service", "udp")
    again = server.node.start(*unit.command, name="openvpn-udp-confined")
    server.node.wait_for(lambda: not again.running, "end of a listener that may not listen", 60)
    assert "Permission denied" in again.log()
    assert [line for line in denials(confined.machine) if "openvpn-server" in line]
