"""A gateway with two public addresses, each of a provider of its own: which tunnel is used, by which line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from network.aws import AwsRegion
from network.lab import Lab
from network.machine import Machine
from network.world import Site, World, research

_FIRST, _SECOND = "198.51.100.10", "198.51.100.11"


@pytest.fixture(scope="module")
def providers(machine: Machine) -> Iterator[World]:
    """One rack and one region. No provider takes packets that come from an address of the other one."""

    def change(text: str) -> str:
        plain = f"gateway: {{addresses: [{_FIRST}], "
        assert plain in text
        return text.replace(plain, f"gateway: {{addresses: [{_FIRST}, {_SECOND}], ")

    lab = Lab(machine)
    router = lab.internet.router
    router.nft(
        "table ip providers {\n  chain pass {\n    type filter hook forward priority 0\n"
        f"    ip saddr {{ {_FIRST}, {_SECOND} }} fib saddr . iif oif missing counter drop\n  }}\n}}\n"
    )
    yield World.made(
        lab, research(change), sites=["rack-a"], regions=["us-west-2"], prefix="m-", providers=True
    )
    lab.close()


@pytest.fixture
def site(providers: World) -> Site:
    return providers.sites["rack-a"]


@pytest.fixture
def region(providers: World) -> AwsRegion:
    return providers.regions["us-west-2"]


def test_each_address_leaves_by_its_own_line(providers: World, site: Site) -> None:
    names = {f"us-west-2-{number}" for number in (1, 2, 3, 4)}
    assert site.charon.established() == names
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


def test_traffic_goes_where_aws_says_it_is_better(providers: World, site: Site, region: AwsRegion) -> None:
    """Tunnel endpoint updates: AWS lowers the MED of a connection's other tunnel, then works on the end."""
    vpc = str(region.region.vpc)
    first, second = (site.interface("us-west-2", order) for order in (1, 2))
    ends = [region.end("rack-a", number) for number in (1, 2)]
    providers.wait_settled()
    there = site.host.pinging(region.worker_address, 0.1)
    back = region.worker.pinging(site.host_address, 0.1)
    region.prefer(ends[1], med=50)
    providers.wait_path("rack-a", vpc, second)
    assert (there.stop().lost, back.stop().lost) == (0, 0)
    there = site.host.pinging(region.worker_address, 0.1)
    with region.maintenance(ends[0]):
        providers.wait_path("us-west-2", site.gateway.lan, ends[1].name, 10)
        assert site.node.routes()[vpc] == second
        assert site.host.reaches(region.worker_address)
    down = there.stop()
    assert down.longest_gap < 8, down  # AWS's own way back, which its end turns when the session ends
    region.prefer(ends[1], med=100)
    site.tool("revive")
    providers.wait_path("rack-a", vpc, first, 60)
    providers.wait_healthy(60)


def test_a_better_med_does_not_leave_the_preferred_connection(
    site: Site, region: AwsRegion, providers: World
) -> None:
    vpc = str(region.region.vpc)
    tunnel = site.tunnel("us-west-2-3")
    third = region.end_of(tunnel)
    site.frr.wait_established(*(str(each.tunnel.aws_inside) for each in region.ends.values()))
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
    providers.wait_healthy(60)


def _paths(site: Site, block: str) -> dict[str, dict[str, int]]:
    """What each neighbour tells of a block."""
    found = site.frr.show(f"bgp ipv4 unicast {block}")["paths"]
    return {path["peer"]["peerId"]: path for path in found}
