"""That sites, regions and pods reach each other: over the right tunnel, with packets of the right size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from network.aws import AwsRegion
from network.daemons import networkd
from network.lab import ROUTER
from network.node import Node, wait_for
from network.world import Site, World


def test_tools_take_the_files(world: World) -> None:
    """The same that systemd's units load; each once more where everything is up."""
    for site in world.sites.values():
        names = {tunnel.name for tunnel in site.gateway.tunnels}
        told = site.node.check("swanctl", "--load-all", "--noprompt")
        assert set(re.findall(r"loaded connection '(.*)'", told)) == names
        assert set(re.findall(r"loaded ike secret 'ike-(.*)'", told)) == names
        site.node.check("nft", "--check", "--file", "/etc/nftables/site-gateway.nft")
        site.node.check("vtysh", "--dryrun", "--inputfile", "/etc/frr/frr.conf")
        told = site.tool("status")
        for tunnel in site.gateway.tunnels:
            assert re.search(rf"^{tunnel.name} +{tunnel.interface} +up +ESTABLISHED +\d+", told, re.M), told


def test_every_site_and_region_reach_each_other(world: World) -> None:
    with ThreadPoolExecutor() as together:
        list(together.map(lambda pair: _reach_each_other(*pair), world.pairs()))


def _reach_each_other(site: Site, region: AwsRegion) -> None:
    assert site.host.pings(region.worker_address, count=3).lost == 0
    assert region.worker.pings(site.host_address, count=3).lost == 0
    # The gateway itself as well: it speaks from its address on the LAN.
    assert site.node.reaches(region.worker_address)


def test_packets_are_as_large_as_the_plan_says(world: World) -> None:
    with ThreadPoolExecutor() as together:
        list(together.map(lambda pair: _sizes(*pair), world.pairs()))


def _sizes(site: Site, region: AwsRegion) -> None:
    mtu = site.tunnel(f"{region.region.name}-1").mtu
    assert site.host.fits(region.worker_address, mtu)
    assert not site.host.fits(region.worker_address, mtu + 1)
    assert region.worker.fits(site.host_address, mtu)
    assert not region.worker.fits(site.host_address, mtu + 1)


def test_tcp_fits_without_path_mtu_discovery(world: World) -> None:
    """AWS's end tells nobody that a packet is too large, and machines in a VPC believe in 9001 bytes."""
    with ThreadPoolExecutor() as together:
        list(together.map(lambda pair: _tcp(*pair), world.pairs()))


def _tcp(site: Site, region: AwsRegion) -> None:
    mss = site.tunnel(f"{region.region.name}-1").mss
    with _segments(region.worker) as at_worker, _segments(site.host) as at_host:
        site.host.sends(region.worker, region.worker_address, 300_000)
        region.worker.sends(site.host, site.host_address, 300_000)
        # From the rack a machine offers what its LAN carries, a worker what its VPC does: neither arrives.
        wait_for(lambda: at_worker(site.host_address), "segments at the worker", 5)
        wait_for(lambda: at_host(region.worker_address), "segments in the rack", 5)
        assert (at_worker(site.host_address), at_host(region.worker_address)) == ({mss}, {mss})


@contextmanager
def _segments(node: Node) -> Iterator[Callable[[str], set[int]]]:
    """Who offers segments of which size to a machine, as its interface sees it."""
    seen = node.start("tcpdump", "-n", "-l", "-i", "eth0", "-Q", "in", "tcp[tcpflags] & tcp-syn != 0")
    node.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    yield lambda source: {
        int(mss) for mss in re.findall(rf"IP {re.escape(source)}\.\d+ > .*\bmss (\d+)", seen.log())
    }
    seen.stop()


def test_both_directions_use_the_preferred_tunnel(world: World) -> None:
    for site, region in world.pairs():
        first, second = (site.interface(region.region.name, order) for order in (1, 2))
        before = site.packets()
        pings = site.host.pings(region.worker_address, count=20, interval=0.02)
        after = site.packets()
        assert pings.lost == 0
        for interface, least, most in ((first, 20, 40), (second, 0, 15)):
            for direction in ("rx", "tx"):
                count = after[interface][direction] - before[interface][direction]
                assert least <= count <= most, f"{site.name} {interface} {direction}: {count}"


def test_sites_reach_each_other_directly(world: World) -> None:
    one, other = world.sites.values()
    mesh = one.interface(other.name)
    before = one.packets()[mesh]
    assert one.host.pings(other.host_address, count=10, interval=0.02).lost == 0
    assert one.packets()[mesh]["tx"] - before["tx"] >= 10
    mtu = one.tunnel(f"{other.name}-1").mtu
    assert one.host.fits(other.host_address, mtu)
    assert not one.host.fits(other.host_address, mtu + 1)
    one.host.sends(other.host, other.host_address, 300_000)


def test_nothing_goes_in_the_clear_without_the_tunnel(world: World) -> None:
    one, other = world.sites.values()
    name, mesh, block = f"{other.name}-1", one.interface(other.name), str(other.gateway.lan)
    seen = one.node.start("tcpdump", "-n", "-l", "-i", "wan", "net 10.0.0.0/8")
    one.node.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    addresses = [str(site.gateway.tunnels[0].local) for site in (one, other)]
    with world.cut_between(*addresses):
        # First while nobody knows.
        assert not one.host.reaches(other.host_address, seconds=1)
        # Then when charon does, and FRR is yet to hear: the kernel takes an interface's routes by itself.
        with one.frr.late("zebra"):
            one.node.run("swanctl", "--terminate", "--ike", name, "--force", "--timeout", "1")
            one.node.wait_for(lambda: not one.is_up(mesh), f"{mesh} down", 15)
            assert one.node.routes().get(block) != mesh
            _goes_nowhere(one, other)
        # And at last when all do.
        rejected = ("ip", "route", "show", block, "type", "unreachable")
        one.node.wait_for(
            lambda: len(one.node.check(*rejected).splitlines()) == 2, f"FRR's own rejection of {block}", 15
        )
        _goes_nowhere(one, other)
    world.wait_joined()  # charon was told to end it: the timer of site-gateway-revive begins it again
    world.wait_healthy()
    one.node.wait_for(lambda: one.host.reaches(other.host_address), "ping", 10)
    # What comes now comes after all that was there to see: tcpdump writes one line after the other.
    one.node.ip("route add 10.255.255.255/32 dev wan")
    assert not one.node.reaches("10.255.255.255", seconds=1)
    one.node.ip("route delete 10.255.255.255/32 dev wan")
    one.node.wait_for(lambda: "who-has 10.255.255.255" in seen.log(), "the last that tcpdump is to see")
    seen.stop()
    assert " IP " not in seen.log()


def test_what_would_leave_by_another_interface_is_dropped(world: World) -> None:
    """A route that somebody else made, or none, as to pods, services and laptops where flannel, kube-
    proxy and OpenVPN do not run: all that keeps traffic inside then is the firewall."""
    one, other = world.sites.values()
    default = one.node.check("ip", "-4", "route", "show", "default").split()
    hop, interface = default[default.index("via") + 1], default[default.index("dev") + 1]
    network = world.cluster.network
    elsewhere = [str(each[-2]) for each in (network.pods, network.services, network.clients)]
    dropped = one.dropped("leaving")
    seen = one.node.start("tcpdump", "-n", "-l", "-i", interface, "net 10.0.0.0/8 or net 100.64.0.0/10")
    one.node.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    one.node.ip(f"route add {other.host_address}/32 via {hop} dev {interface}")
    try:
        for address in (other.host_address, *elsewhere):
            assert f" dev {interface} " in one.node.check("ip", "route", "get", address)
            assert not one.host.reaches(address, seconds=1)
            assert not one.node.reaches(address, seconds=1)
    finally:
        one.node.ip(f"route delete {other.host_address}/32")
    assert one.dropped("leaving") >= dropped + 2 * (1 + len(elsewhere))
    one.node.wait_for(lambda: one.host.reaches(other.host_address), "ping", 10)
    seen.stop()
    assert " IP " not in seen.log()


def test_routes_and_rules_that_somebody_took_are_put_back(world: World) -> None:
    """By what `site-gateway-revive.timer` does."""
    one, _ = world.sites.values()
    kept = ("ip", "-4", "route", "show", "type", "unreachable", "metric", "4278198272")
    before = one.node.check(*kept)
    rules = one.node.check("nft", "--stateless", "list", "table", "inet", "site_gateway")
    assert before
    for route in before.splitlines():
        one.node.ip(f"route delete {route.strip()}")
    one.node.check("nft", "delete", "table", "inet", "site_gateway")
    one.tool("revive")
    assert one.node.check(*kept) == before
    assert one.node.check("nft", "--stateless", "list", "table", "inet", "site_gateway") == rules


def test_networkd_takes_no_route_and_no_rule_away(world: World) -> None:
    """`netplan apply`: the real systemd-networkd configures the gateway's own interfaces again. What it would
    do without our networkd.conf.d is in tests/cookbooks/test_networkd.py."""
    site, region = world.sites["rack-b"], world.regions["us-west-2"]
    node, sign = site.node, "192.0.2.200"
    public = node.address("wan")
    rule = "priority 18402 from 192.0.2.9 lookup 18402"  # as of a second provider
    default = ("ip", "route", "show", "default", "proto", "static")
    networks = {
        "lan": f"[Network]\nAddress={site.gateway.address}/{site.gateway.lan.prefixlen}\n",
        "wan": f"[Network]\nAddress={public}/32\n"
        f"[Route]\nDestination={ROUTER}/32\nScope=link\nPreferredSource={public}\n"
        f"[Route]\nGateway={ROUTER}\nGatewayOnLink=yes\nPreferredSource={public}\n",
    }
    others = _routes(site)
    # Some releases do not take over addresses that are there. FRR's routes go with the LAN's.
    for interface in networks:
        node.check("ip", "address", "flush", "dev", interface)
    with networkd(node, networks):
        node.wait_for(lambda: node.check(*default), "default route")
        node.wait_for(lambda: _revived(site) == others, "routes through tunnels", 30)
        world.wait_healthy(60)
        node.ip(f"rule add {rule}")
        guards, rules = _guards(node), site.rules()
        assert "18402:" in guards
        assert f"unreachable {region.region.vpc} " in guards
        seen = node.start("tcpdump", "-n", "-l", "-i", "wan", "net 10.0.0.0/8")
        node.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
        there = site.host.pinging(region.worker_address, 0.1)
        node.write(
            "/etc/systemd/network/10-lan.network", f"[Match]\nName=lan\n{networks['lan']}Address={sign}/32\n"
        )
        node.check("networkctl", "reload")
        node.check("networkctl", "reconfigure", "lan", "wan")
        node.wait_for(
            lambda: node.check("ip", "address", "show", "dev", "lan", "to", sign), "its new address"
        )
        node.wait_for(lambda: node.check(*default), "default route")
        after = _guards(node)
    there.stop()
    assert after == guards
    node.ip(f"address delete {sign}/32 dev lan", f"rule delete {rule}")
    assert site.rules() == rules
    # Those that had the LAN's address as their source may have gone with it for a moment.
    node.wait_for(lambda: _revived(site) == others, "routes through tunnels", 30)
    node.wait_for(lambda: site.host.reaches(region.worker_address), "ping", 10)
    seen.stop()
    assert " IP " not in seen.log()
    world.wait_healthy(60)


def _guards(node: Node) -> str:
    """Routes that go nowhere, and rules."""
    return node.check("sh", "-c", "ip -4 route show type unreachable | sort; ip -4 rule show")


def _revived(site: Site) -> dict[str, str]:
    """`_routes` after what a timer does each minute."""
    site.tool("revive")
    return _routes(site)


def _routes(site: Site) -> dict[str, str]:
    """Block → the tunnel that leads there."""
    return {block: device for block, device in site.node.routes().items() if device.startswith("t")}


def _goes_nowhere(one: Site, other: Site) -> None:
    assert not one.host.reaches(other.host_address, count=3, seconds=3)
    assert not one.node.reaches(other.host_address, seconds=1)


def test_a_site_carries_nothing_from_region_to_region(world: World) -> None:
    site = world.sites["rack-a"]
    one, other = world.regions["us-west-2"], world.regions["us-east-1"]
    assert one.worker.reaches(other.worker_address)  # by the regions' own line
    told = site.dropped("from-us-west-2-1")
    way = (f"{other.worker_address}/32", "dev", one.end(site.name).name)
    one.node.check("ip", "route", "add", *way)
    try:
        assert not one.worker.reaches(other.worker_address, count=3, seconds=3)
        assert site.dropped("from-us-west-2-1") >= told + 3
    finally:
        one.node.check("ip", "route", "delete", *way)
