"""The harness itself: what other tests take for granted."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from network.lab import Lab
from network.machine import Machine, Vm
from network.node import wait_for


def test_nodes_are_apart(lab: Lab) -> None:
    one, other = lab.node("one"), lab.node("other")
    one.write("/etc/swanctl/conf.d/a.conf", "one's")
    one.write("/run/only-here", "")
    one.ip("link add d0 type dummy")
    assert one.check("hostname") == "one\n"
    assert one.read("/etc/swanctl/conf.d/a.conf") == "one's"
    assert other.run("ls", "/etc/swanctl/conf.d/a.conf").code == 2
    assert not other.run("test", "-e", "/run/only-here").ok
    assert not other.run("ip", "link", "show", "d0").ok


def test_many_things_at_once(lab: Lab) -> None:
    one = lab.node("busy")
    pings = one.pinging("127.0.0.1", interval=0.05)
    sleeper = one.start("sleep", "1000")
    assert sleeper.running
    sleeper.kill()
    assert not sleeper.running
    wait_for(lambda: "icmp_seq=10 " in pings.process.log(), "ten pings", nodes=[one])
    seen = pings.stop()
    assert seen.received >= 10
    assert seen.lost == 0


def test_late_command_is_ended(lab: Lab) -> None:
    result = lab.node("late").run("sh", "-c", "echo early; sleep 60", timeout=1)
    assert result.late
    assert not result.ok
    assert result.stdout == "early\n"


def test_nat_and_cut(lab: Lab) -> None:
    server = lab.node("server")
    lab.internet.attach(server, "198.51.100.80")
    home = lab.nat("home", "203.0.113.7", "192.168.1.1/24")
    laptop = lab.node("laptop")
    home.attach(laptop, "eth0", "192.168.1.50/24", gateway="192.168.1.1")
    assert laptop.reaches("198.51.100.80")
    server.ip("route add 192.168.1.0/24 via 192.0.2.1")
    assert not server.reaches("192.168.1.50", seconds=1)
    seen = server.start("tcpdump", "-n", "-l", "-i", "wan", "icmp")
    wait_for(
        lambda: laptop.reaches("198.51.100.80") and "203.0.113.7 >" in seen.log(), "ping from the NAT box", 10
    )
    seen.stop()
    assert "192.168.1.50" not in seen.log()
    with lab.internet.cut("203.0.113.7"):
        assert not laptop.reaches("198.51.100.80", seconds=1)
    assert laptop.reaches("198.51.100.80")


def test_regions_are_peered_but_no_transit(lab: Lab) -> None:
    one, other = lab.node("vpc-1"), lab.node("vpc-2")
    for node, address in ((one, "10.31.0.1/16"), (other, "10.32.0.1/16")):
        node.ip("link add inner type dummy", f"address add {address} dev inner", "link set inner up")
    lan = lab.segment("site-lan")
    site = lab.node("beyond")
    lan.attach(site, "eth0", "10.30.0.9/16", gateway="10.30.0.1")
    lan.attach(one, "site", "10.30.0.1/16")
    inside, host = lab.segment("vpc-1-net"), lab.node("vpc-1-host")
    inside.attach(one, "net", "10.31.1.1/24")
    inside.attach(host, "eth0", "10.31.1.9/24", gateway="10.31.1.1")
    lab.peer(one, ["10.31.0.0/16"], other, ["10.32.0.0/16"])
    other.ip("route add 10.30.0.0/16 via 169.254.255.0 dev p-vpc-1")
    assert host.reaches("10.32.0.1")
    assert not site.reaches("10.32.0.1", seconds=1)


def test_the_vm_starts_programs_from_its_memory(machine: Machine) -> None:
    if not isinstance(machine, Vm):
        pytest.skip("this machine's own kernel carries the lab, there is no VM")
    of_the_host, kept = (
        machine.run(["stat", "--format", "%s", f"{root}/usr/sbin/swanctl"]).stdout
        for root in ("", "/run/lab/resident")
    )
    assert of_the_host == kept != ""
    assert machine.run(["stat", "--file-system", "--format", "%T", "/usr"]).stdout == "overlayfs\n"
    assert not machine.run(["ip", "link", "show", "dev", "nothing0"]).ok
    assert machine.run(["ls", "/run/lab/no-module/nothing0"]).ok, "the kernel has asked once"
    assert machine.run(["modprobe", "nfsd"]).ok, "and finds what there is"


def test_vm_ends_with_who_started_it(machine: Machine) -> None:
    if not isinstance(machine, Vm):
        pytest.skip("this machine's own kernel carries the lab, there is no VM")
    script = f"import sys; sys.path[:] = {sys.path!r}; from network.machine import Vm; Vm()"
    with subprocess.Popen([sys.executable, "-c", script]) as parent:

        def vms() -> list[psutil.Process]:
            return [child for child in psutil.Process(parent.pid).children() if "qemu" in child.name()]

        (vm,) = wait_for(vms, "VM of another process")
        parent.kill()
    assert psutil.wait_procs([vm], timeout=60)[1] == []
