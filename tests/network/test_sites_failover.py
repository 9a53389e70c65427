"""What happens when tunnels, endpoints, regions and daemons fail: who goes on over what, and what is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from network.daemons import Frr
from network.node import wait_for
from network.world import Site, World

HOLD = 18
"""Seconds: BGP's hold time of 9, and what a busy machine takes to change the routes. charon by itself would
take longer than that: dpd_delay and the transmissions that follow."""


def test_tunnel_dies_silently_and_comes_back(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-west-2"]
    end, vpc = region.end(site.name, 1), str(region.region.vpc)
    first, second = (site.interface("us-west-2", order) for order in (1, 2))
    there = site.host.pinging(region.worker_address, 0.2)
    back = region.worker.pinging(site.host_address, 0.2)
    with world.lab.internet.cut(str(end.outside)):
        world.wait_path(site.name, vpc, second)
        world.wait_path("us-west-2", site.gateway.lan, region.end(site.name, 2).name)
        assert region.worker.reaches(site.host_address)
        cut = [pinging.stop() for pinging in (there, back)]
        # charon finds the peer dead later than BGP does, and tries on.
        site.node.wait_for(lambda: not site.is_up(first), f"{first} down", 45)
    assert all(pings.longest_gap < HOLD for pings in cut), cut
    there = site.host.pinging(region.worker_address, 0.1)
    back = region.worker.pinging(site.host_address, 0.1)
    early = world.refused(site.name, "us-west-2")
    world.wait_healthy(60)
    wait_for(lambda: region.worker.reaches(site.host_address), "ping", 5)
    # Where both ends begin at once, one may still send over what the other has ended (see `wait_settled`).
    assert (
        sum(pinging.stop().lost for pinging in (there, back)) <= world.refused(site.name, "us-west-2") - early
    )


def test_endpoint_goes_down_in_an_orderly_way(world: World) -> None:
    """AWS's maintenance: sessions are ended with a word, and the endpoint does not answer for a while."""
    site, region = world.sites["rack-b"], world.regions["us-east-1"]
    vpc, second = str(region.region.vpc), site.interface("us-east-1", 2)
    there = site.host.pinging(region.worker_address, 0.1)
    with region.maintenance(region.end(site.name, 1)):
        world.wait_path(site.name, vpc, second, 10)
        world.wait_path("us-east-1", site.gateway.lan, region.end(site.name, 2).name, 10)
        assert site.host.reaches(region.worker_address)
    down = there.stop()
    assert down.longest_gap < 8, down  # nobody had to wait for the hold time
    there = site.host.pinging(region.worker_address, 0.1)
    site.tool("revive")
    world.wait_healthy(60)
    assert there.stop().lost == 0


def test_region_dies_and_only_its_ranges_go(world: World) -> None:
    lost, region = "us-east-1", world.regions["us-east-1"]
    vpc = str(region.region.vpc)
    others = {key: path for key, path in world.best_paths().items() if key[1] != vpc and key[0] != lost}
    there = {
        (site.name, far.region.name): site.host.pinging(far.worker_address, 0.2)
        for site, far in world.pairs()
        if far is not region
    }
    with world.lab.internet.cut(*(str(end.outside) for end in region.ends.values())):
        for site in world.sites.values():
            # It goes nowhere: not to the Internet, nor over another region.
            _wait_rejected(site, vpc)
        found = world.paths()
        assert {key: found.get(key) for key in others} == others
        assert {key: pinging.stop().lost for key, pinging in there.items()} == dict.fromkeys(there, 0)
    world.wait_healthy(60)


def _wait_rejected(site: Site, block: str) -> None:
    site.node.wait_for(lambda: site.node.routes().get(block) == "", f"no way to {block}", 20)


def test_frr_restarts_and_nothing_is_lost(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-west-2"]
    there = site.host.pinging(region.worker_address, 0.1)
    back = region.worker.pinging(site.host_address, 0.1)
    for process in site.frr.processes.values():
        process.stop()
    site.frr = Frr.start(site.node)
    site.frr.wait_established()
    world.wait_healthy()
    assert [pinging.stop().lost for pinging in (there, back)] == [0, 0]


def test_strongswan_restarts(world: World) -> None:
    site = world.sites["rack-b"]
    site.stop_charon()
    assert not any(site.is_up(tunnel.interface) for tunnel in site.gateway.tunnels)
    # Nothing goes out in the clear meanwhile.
    assert not set(world.best_paths().values()) & set(site.node.routes().values())
    site.start_charon()
    # Who called while charon had no connections yet heard "no proposal chosen" and gave up: timers mend it.
    world.wait_joined()
    world.wait_healthy(60)
    with ThreadPoolExecutor() as together:
        workers = [region.worker_address for region in world.regions.values()]
        assert all(together.map(site.host.reaches, workers))
