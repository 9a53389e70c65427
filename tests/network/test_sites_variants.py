"""Sites that are joined otherwise: by two providers, from behind NAT, with static routes instead of BGP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from network.aws import AwsRegion
from network.lab import Lab
from network.machine import Machine
from network.node import Node
from network.world import Site, World, research

_FIRST, _SECOND = "198.51.100.10", "198.51.100.11"
_UNJOINED = ("us-east-1", "eu-west-1")
_STATIC = """\
  rack-c:
    kind: physical
    cidr: 10.200.8.0/22
    gateway: {addresses: [198.51.100.30], routing: static}
    nodes:
      gateway-c: {address: 10.200.8.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}
      titan-c01: {address: 10.200.8.11, cpus: 4, memory: 8 GiB}
"""


@pytest.fixture(scope="module")
def world(machine: Machine) -> Iterator[World]:
    """rack-a with a line of each of two providers, rack-b behind NAT, rack-c with static routes; one region.
    No provider takes packets that come from an address of the other one."""

    def change(text: str) -> str:
        for plain, other in (
            (f"gateway: {{addresses: [{_FIRST}], ", f"gateway: {{addresses: [{_FIRST}, {_SECOND}], "),
            (
                "gateway: {addresses: [198.51.100.20], ",
                "gateway: {addresses: [198.51.100.20], behind_nat: true, ",
            ),
            ("\nsites:\n", f"\nsites:\n{_STATIC}"),
            *(
                (f"  {name}:\n    kind: aws\n", f"  {name}:\n    kind: aws\n    vpn: []\n")
                for name in _UNJOINED
            ),
        ):
            assert plain in text
            text = text.replace(plain, other)
        return text

    lab = Lab(machine)
    router = lab.internet.router
    router.nft(
        "table ip providers {\n  chain pass {\n    type filter hook forward priority 0\n"
        f"    ip saddr {{ {_FIRST}, {_SECOND} }} fib saddr . iif oif missing counter drop\n  }}\n}}\n"
    )
    yield World.made(lab, research(change), regions=["us-west-2"], prefix="v-", providers=True)
    lab.close()


@pytest.fixture
def region(world: World) -> AwsRegion:
    return world.regions["us-west-2"]


def test_each_address_leaves_by_its_own_line(world: World, site: Site) -> None:
    names = {f"us-west-2-{number}" for number in (1, 2, 3, 4)}
    assert site.charon.established() == names | {"rack-b-1", "rack-c-1"}
    lines = {
        address: site.node.check("ip", "route", "get", "203.0.113.1", "from", address)
        for address in (_FIRST, _SECOND)
    }
    assert " dev wan " in lines[_FIRST]
    assert " dev wan2 " in lines[_SECOND]
    # What is near, and what is the plan's, is found as ever.
    near = site.node.check("ip", "route", "get", site.host_address, "from", _SECOND)
    assert " dev lan " in near
    before = site.node.check("ip", "-4", "rule", "show")
    site.tool("interfaces")
    assert site.node.check("ip", "-4", "rule", "show") == before


def test_rules_come_back_and_go_with_the_line(site: Site) -> None:
    before = site.node.check("ip", "-4", "rule", "show")
    site.node.check(
        "sh", "-c", "ip -4 rule del priority 18402; ip -4 rule del priority 18403; ip route flush table 18402"
    )
    site.tool("revive")
    assert site.node.check("ip", "-4", "rule", "show") == before
    # In nobody's way where a line has no default route, and said.
    site.node.ip("route delete default dev wan2 metric 2")
    told = site.node.run("/usr/local/sbin/site-tunnel", "interfaces")
    assert told.ok
    assert _SECOND in told.stderr
    assert _SECOND not in site.node.check("ip", "-4", "rule", "show")
    site.node.ip(f"route add default via 192.0.2.1 dev wan2 src {_SECOND} metric 2")
    site.tool("interfaces")
    assert site.node.check("ip", "-4", "rule", "show") == before


def test_traffic_goes_where_aws_says_it_is_better(world: World, site: Site, region: AwsRegion) -> None:
    """Tunnel endpoint updates: AWS lowers the MED of a connection's other tunnel, then works on the end."""
    vpc = str(region.region.vpc)
    first, second = (site.interface("us-west-2", order) for order in (1, 2))
    ends = [region.end("rack-a", number) for number in (1, 2)]
    world.wait_settled()
    there = site.host.pinging(region.worker_address, 0.1)
    back = region.worker.pinging(site.host_address, 0.1)
    region.prefer(ends[1], med=50)
    world.wait_path("rack-a", vpc, second)
    assert (there.stop().lost, back.stop().lost) == (0, 0)
    there = site.host.pinging(region.worker_address, 0.1)
    with region.maintenance(ends[0]):
        world.wait_path("us-west-2", site.gateway.lan, ends[1].name, 10)
        assert site.node.routes()[vpc] == second
        assert site.host.reaches(region.worker_address)
    down = there.stop()
    assert down.longest_gap < 8, down  # AWS's own way back, which its end turns when the session ends
    region.prefer(ends[1], med=100)
    site.tool("revive")
    world.wait_path("rack-a", vpc, first, 60)
    world.wait_healthy(60)


def test_a_better_med_does_not_leave_the_preferred_connection(
    site: Site, region: AwsRegion, world: World
) -> None:
    vpc = str(region.region.vpc)
    tunnel = site.tunnel("us-west-2-3")
    third = region.end_of(tunnel)
    ends = [each for each in region.ends.values() if each.link.site == site.name]
    site.frr.wait_established(*(str(each.tunnel.aws_inside) for each in ends))
    region.prefer(third, med=1)
    told = str(tunnel.inside_remote)
    site.node.wait_for(lambda: _paths(site, vpc)[told]["metric"] == 1, "the new MED", 15)
    assert site.node.routes()[vpc] == site.interface("us-west-2", 1)
    region.prefer(third, med=100)
    # Who drains both tunnels of the first connection is on the second one, which no drained tunnel precedes.
    for name in ("us-west-2-1", "us-west-2-2"):
        site.node.run("/usr/local/sbin/site-tunnel", "drain", name, timeout=60)
    assert site.node.routes()[vpc] == site.interface("us-west-2", 3)
    for name in ("us-west-2-1", "us-west-2-2"):
        site.tool("restore", name)
    world.wait_healthy(60)


def _paths(site: Site, block: str) -> dict[str, dict[str, int]]:
    """What each neighbour tells of a block."""
    found = site.frr.show(f"bgp ipv4 unicast {block}")["paths"]
    return {path["peer"]["peerId"]: path for path in found}


def test_behind_nat(world: World) -> None:
    site, region = world.sites["rack-b"], world.regions["us-west-2"]
    assert site.tunnel("us-west-2-1").mtu == 1438
    assert site.host.fits(region.worker_address, 1438)
    assert not site.host.fits(region.worker_address, 1439)
    site.host.sends(region.worker, region.worker_address, 300_000)
    region.worker.sends(site.host, site.host_address, 300_000)
    told = site.node.check("swanctl", "--list-sas", "--ike", "us-west-2-1")
    assert "192.168.77.2[4500]" in told
    assert f"{region.end(site.name).outside}[4500]" in told
    # The other site reaches it too: it is this one that calls.
    assert world.sites["rack-c"].host.reaches(site.host_address)


def _out_of_unready_interfaces(node: Node) -> int:
    """How many packets came out of an interface that is not ready for them."""
    told = dict(line.split() for line in node.read("/proc/net/xfrm_stat").splitlines())
    return int(told["XfrmInNoPols"])


def test_static_routes_fail_over(world: World) -> None:
    site, region = world.sites["rack-c"], world.regions["us-west-2"]
    vpc = str(region.region.vpc)
    first, second = (site.interface("us-west-2", order) for order in (1, 2))
    assert site.node.run("pgrep", "-x", "bgpd").stdout == ""
    assert site.host.reaches(region.worker_address)
    world.wait_settled()
    with world.lab.internet.cut(str(region.end(site.name).outside)):
        # Who has no BGP learns it from charon: dpd_delay, and the transmissions that follow.
        world.wait_path(site.name, vpc, second, 45)
        world.wait_path("us-west-2", site.gateway.lan, region.end(site.name, 2).name, 60)
        assert site.host.reaches(region.worker_address)
        # It stays ready for what the other end sends first, and is not used.
        assert site.is_up(first)
    early, outside = world.refused(site.name, "us-west-2"), _out_of_unready_interfaces(site.node)
    there = site.host.pinging(region.worker_address, 0.1)
    world.wait_path(site.name, vpc, first, 60)
    world.wait_healthy(30)
    lost = there.stop().lost
    assert _out_of_unready_interfaces(site.node) == outside
    # No session of BGP makes the ends wait for each other: AWS's sends as soon as it has its half of an
    # association, before its answer is here (RFC 7296, 1.2), and the kernel over the newest of two that both
    # ends began. Either is counted where it arrives, and nothing else is lost.
    assert lost <= world.refused(site.name, "us-west-2") - early


def test_static_routes_drain(world: World) -> None:
    site, region = world.sites["rack-c"], world.regions["us-west-2"]
    vpc = str(region.region.vpc)
    world.wait_settled()
    there = site.host.pinging(region.worker_address, 0.1)
    site.tool("drain", "us-west-2-1")
    assert site.node.routes()[vpc] == site.interface("us-west-2", 2)
    site.tool("restore", "us-west-2-1")
    world.wait_path(site.name, vpc, site.interface("us-west-2"))
    assert there.stop().lost == 0
    # A tunnel without a sibling stays, and its command says so.
    assert site.node.run("/usr/local/sbin/site-tunnel", "drain", "rack-b-1", timeout=60).code == 4
    site.tool("restore", "rack-b-1")
