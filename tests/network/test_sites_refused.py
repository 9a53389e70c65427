"""What a gateway does not take from the other end: keys, names, algorithms, routes, addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from network.aws import AwsRegion, End
from network.node import wait_for
from network.world import Site, World


def test_wrong_key(world: World) -> None:
    site, region = world.sites["rack-b"], world.regions["us-east-1"]
    end = region.end(site.name, 2)
    good = region.keys[end.tunnel.secret]
    log = site.log_from_here()
    region.change_key(end, "another.key")
    try:
        _wait_said(site, log, "tried 1 shared key for", "but MAC mismatched")
        _refused(site, "us-east-1-2")
    finally:
        region.change_key(end, good)
    _comes_back(world, site, "us-east-1-2")


def test_wrong_identity(world: World) -> None:
    site, region = world.sites["rack-b"], world.regions["us-east-1"]
    end = region.end(site.name, 2)
    log = site.log_from_here()
    with _changed(region, end, identity="vpn.example"):
        _wait_said(site, log, "no matching peer config found")
        _refused(site, "us-east-1-2")
    _comes_back(world, site, "us-east-1-2")


def test_weak_proposal(world: World) -> None:
    site, region = world.sites["rack-b"], world.regions["us-west-2"]
    end = region.end(site.name, 2)
    log = site.log_from_here()
    with _changed(region, end, ike="aes128-sha1-modp1024"):
        _wait_said(site, log, "received proposals unacceptable")
        said = log()
        assert "AES_CBC_128/HMAC_SHA1_96/PRF_HMAC_SHA1/MODP_1024" in said  # what was offered
        assert "AES_GCM_16_256/PRF_HMAC_SHA2_384/ECP_384" in said  # and what would have done
        _refused(site, "us-west-2-2")
    log = site.log_from_here()
    with _changed(region, end, esp="aes128-sha1"):
        _wait_said(site, log, "no acceptable proposal found")
        _refused(site, "us-west-2-2")
    _comes_back(world, site, "us-west-2-2")


@contextmanager
def _changed(region: AwsRegion, end: End, **values: Any) -> Iterator[None]:
    region.load(end, **values)
    region.terminate(end)
    region.node.run("swanctl", "--initiate", "--child", end.name, "--timeout", "1")
    try:
        yield
    finally:
        region.load(end)


def _wait_said(site: Site, log: Any, *words: str) -> None:
    def said() -> bool:
        return any(all(word in line for word in words) for line in log().splitlines())

    wait_for(said, f"line with {words} in charon's log", 20, [site.node])


def _refused(site: Site, name: str) -> None:
    """This tunnel is down, and the others do not mind."""
    assert site.charon.established() == {tunnel.name for tunnel in site.gateway.tunnels} - {name}


def _comes_back(world: World, site: Site, name: str) -> None:
    """As the timer of site-gateway-revive has it: charon itself gives up after a permanent failure."""
    site.node.run("/usr/local/sbin/site-tunnel", "revive", timeout=90)
    site.charon.wait_established(name)
    world.wait_healthy()


def test_routes_outside_the_plan(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-west-2"]
    end = region.end(site.name)
    inside = str(end.tunnel.aws_inside)
    wrong = ("0.0.0.0/0", "10.201.0.0/16", "10.200.0.0/22", "10.2.64.0/20", "10.64.0.0/16")
    before = site.node.routes()
    region.announce(*wrong)
    try:
        neighbour = f"bgp ipv4 unicast neighbors {inside}"
        received = f"{neighbour} received-routes"
        site.node.wait_for(
            lambda: set(wrong) <= set(site.frr.show(received)["receivedRoutes"]), "routes from AWS", 15
        )
        assert set(site.frr.show(f"{neighbour} routes")["routes"]) == {"10.2.0.0/16"}
        assert site.node.routes() == before
    finally:
        region.announce(*wrong, withdraw=True)
    assert site.host.reaches(region.worker_address)


def test_we_announce_our_lan_alone(world: World) -> None:
    for region in world.regions.values():
        told = region.told()
        for end in region.ends.values():
            lan = str(world.sites[end.link.site].gateway.lan)
            assert told[str(end.tunnel.site_inside)] == {lan}
    one, other = world.sites.values()
    for site, peer in ((one, other), (other, one)):
        inside = site.tunnel(f"{peer.name}-1").inside_remote
        received = site.frr.show(f"bgp ipv4 unicast neighbors {inside} received-routes")["receivedRoutes"]
        assert set(received) == {str(peer.gateway.lan)}


def test_spoofed_sources(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-west-2"]
    seen = site.host.start("tcpdump", "-n", "-l", "-i", "eth0", "icmp")
    site.host.wait_for(lambda: "listening on" in seen.log(), "tcpdump")
    own_lan, elsewhere, internet = "10.200.0.77", "10.201.0.77", "192.0.2.77"
    inside = str(region.end(site.name).tunnel.aws_inside)
    for source in (own_lan, elsewhere, internet, inside):
        dropped = site.dropped("from-us-west-2-1")
        if source != inside:
            region.node.ip(f"address add {source}/32 dev lo")
        region.node.run("ping", "-c", "3", "-i", "0.2", "-W", "1", "-I", source, site.host_address)
        if source != inside:
            region.node.ip(f"address del {source}/32 dev lo")
        assert site.dropped("from-us-west-2-1") >= dropped + 3, source
    assert region.worker.reaches(site.host_address)
    site.host.wait_for(lambda: region.worker_address in seen.log(), "the worker's own ping", 5)
    seen.stop()
    for source in (own_lan, elsewhere, internet, inside):
        assert source not in seen.log()
