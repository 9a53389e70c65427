"""That sites and regions reach each other."""

from __future__ import annotations

from network.world import World


def test_every_site_and_region_reach_each_other(world: World) -> None:
    for site, region in world.pairs():
        assert site.host.pings(region.worker_address, count=3).lost == 0
        assert region.worker.pings(site.host_address, count=3).lost == 0
