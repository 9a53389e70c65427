"""Sites that are joined in other ways: static routes in place of BGP, a gateway behind NAT."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from network.lab import Lab
from network.machine import Machine
from network.node import Node
from network.world import World, research


@pytest.fixture(scope="module")
def variants(machine: Machine) -> Iterator[World]:
    """rack-a with static routes, rack-b behind NAT, and one region."""

    def change(text: str) -> str:
        for address, more in (("198.51.100.10", "routing: static"), ("198.51.100.20", "behind_nat: true")):
            plain = f"gateway: {{addresses: [{address}], "
            assert plain in text
            text = text.replace(plain, f"{plain}{more}, ")
        return text

    lab = Lab(machine)
    yield World.made(lab, research(change), regions=["us-west-2"], prefix="v-")
    lab.close()


def test_behind_nat(variants: World) -> None:
    site, region = variants.sites["rack-b"], variants.regions["us-west-2"]
    assert site.tunnel("us-west-2-1").mtu == 1438
    assert site.host.fits(region.worker_address, 1438)
    assert not site.host.fits(region.worker_address, 1439)
    site.host.sends(region.worker, region.worker_address, 300_000)
    region.worker.sends(site.host, site.host_address, 300_000)
    told = site.node.check("swanctl", "--list-sas", "--ike", "us-west-2-1")
    assert "192.168.77.2[4500]" in told
    assert f"{region.end(site.name).outside}[4500]" in told
    # The other site reaches it too: it is this one that calls.
    assert variants.sites["rack-a"].host.reaches(site.host_address)


def _out_of_unready_interfaces(node: Node) -> int:
    """How many packets came out of an interface that is not ready for them."""
    told = dict(line.split() for line in node.read("/proc/net/xfrm_stat").splitlines())
    return int(told["XfrmInNoPols"])


def test_static_routes_fail_over(variants: World) -> None:
    site, region = variants.sites["rack-a"], variants.regions["us-west-2"]
    vpc = str(region.region.vpc)
    first, second = (site.interface("us-west-2", order) for order in (1, 2))
    assert site.node.run("pgrep", "-x", "bgpd").stdout == ""
    assert site.host.reaches(region.worker_address)
    variants.wait_settled()
    with variants.lab.internet.cut(str(region.end(site.name).outside)):
        # Who has no BGP learns it from charon: dpd_delay, and the transmissions that follow.
        variants.wait_path(site.name, vpc, second, 45)
        variants.wait_path("us-west-2", site.gateway.lan, region.end(site.name, 2).name, 60)
        assert site.host.reaches(region.worker_address)
        # It stays ready for what the other end sends first, and is not used.
        assert site.is_up(first)
    early, outside = variants.refused(site.name, "us-west-2"), _out_of_unready_interfaces(site.node)
    there = site.host.pinging(region.worker_address, 0.1)
    variants.wait_path(site.name, vpc, first, 60)
    variants.wait_healthy(30)
    lost = there.stop().lost
    assert _out_of_unready_interfaces(site.node) == outside
    # No session of BGP makes the ends wait for each other: AWS's sends as soon as it has its half of an
    # association, before its answer is here (RFC 7296, 1.2), and the kernel over the newest of two that both
    # ends began. Either is counted where it arrives, and nothing else is lost.
    assert lost <= variants.refused(site.name, "us-west-2") - early


def test_static_routes_drain(variants: World) -> None:
    site, region = variants.sites["rack-a"], variants.regions["us-west-2"]
    vpc = str(region.region.vpc)
    variants.wait_settled()
    there = site.host.pinging(region.worker_address, 0.1)
    site.tool("drain", "us-west-2-1")
    assert site.node.routes()[vpc] == site.interface("us-west-2", 2)
    site.tool("restore", "us-west-2-1")
    variants.wait_path(site.name, vpc, site.interface("us-west-2"))
    assert there.stop().lost == 0
    # A tunnel without a sibling stays, and its command says so.
    assert site.node.run("/usr/local/sbin/site-tunnel", "drain", "rack-b-1", timeout=60).code == 4
    site.tool("restore", "rack-b-1")
