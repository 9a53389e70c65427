"""Changes while traffic flows: new keys, rekeying, both ends that begin at once, tunnels that come and go."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace
from network.daemons import IkeSa
from network.node import Node, wait_for
from network.world import Site, World

from infra.drive.vpn.keys import keys


def wait_single(site: Site, *names: str) -> None:
    """Waits until each of these tunnels has one IKE SA, with one child. What the timer does is done while
    there are more: on a busy machine a second one may come to be after it had been there."""

    def single() -> bool:
        found = site.charon.ends()
        wrong = {name: found.get(name, []) for name in names if not _is_single(found.get(name, []))}
        if any(len(sas) != 1 and all(sa.state == "ESTABLISHED" for sa in sas) for sas in wrong.values()):
            site.tool("revive")
        assert not wrong
        return True

    wait_for(single, f"single associations of {', '.join(names)}", 45, [site.node])


def _is_single(sas: list[IkeSa]) -> bool:
    return [(sa.state, sa.children) for sa in sas] == [("ESTABLISHED", 1)]


def test_one_association_a_tunnel_although_both_ends_begin(world: World) -> None:
    """What the timer leaves of the world's start, where all ends began at once."""
    for site in world.sites.values():
        site.tool("revive")
        wait_single(site, *(tunnel.name for tunnel in site.gateway.tunnels))


def test_simultaneous_initiation_settles(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-east-1"]
    name, end = "us-east-1-2", region.end("rack-a", 2)
    world.lab.internet.shape(site.node, "delay 150ms")
    try:
        both = (site.node, name), (region.node, end.name)
        _at_both(both, "--terminate", "--force", "--ike")
        _at_both(both, "--initiate", "--child")
    finally:
        world.lab.internet.shape(site.node, "")
    there = site.host.pinging(region.worker_address, 0.05)
    site.tool("revive")
    world.wait_settled()
    assert there.stop().lost == 0
    assert site.is_up(site.interface("us-east-1", 2))


def _at_both(ends: Iterable[tuple[Node, str]], *words: str) -> None:
    with ThreadPoolExecutor() as together:
        list(together.map(lambda end: end[0].run("swanctl", *words, end[1], "--timeout", "5"), ends))


def test_rekeying_under_traffic(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-west-2"]
    end = region.end(site.name)
    there = site.host.pinging(region.worker_address, 0.05)
    back = region.worker.pinging(site.host_address, 0.05)
    for node, name in ((site.node, "us-west-2-1"), (region.node, end.name)):
        _rekey_child(site, node, name)
        node.check("swanctl", "--rekey", "--ike", name)
        wait_single(site, "us-west-2-1")
    assert [pinging.stop().lost for pinging in (there, back)] == [0, 0]
    assert site.is_up(site.interface("us-west-2"))


def _rekey_child(site: Site, node: Node, name: str) -> None:
    before = site.charon.associations()["us-west-2-1"]
    node.check("swanctl", "--rekey", "--child", name)

    def rekeyed() -> bool:
        now = site.charon.associations().get("us-west-2-1")  # absent for a moment
        return now is not None and not set(before) & set(now)

    site.node.wait_for(rekeyed, "new SPIs", 15)


def test_tunnels_come_and_go_and_others_do_not_notice(world: World) -> None:
    site, region = world.sites["rack-b"], world.regions["us-east-1"]
    link = region.end(site.name).link.name
    without = replace(
        world.outputs, tunnels={name: pair for name, pair in world.outputs.tunnels.items() if name != link}
    )
    gone = {tunnel.name for tunnel in site.gateway.tunnels if tunnel.link == link}
    interfaces = {tunnel.interface for tunnel in site.gateway.tunnels if tunnel.link == link}
    before = {name: spis for name, spis in site.charon.associations().items() if name not in gone}

    far = world.regions["us-west-2"]
    there = site.host.pinging(far.worker_address, 0.1)
    site.install(world.site_files(site.name, outputs=without), keys(site.gateway, without, world.kept))
    site.tool("reload", timeout=120)
    assert site.charon.associations() == before
    assert not interfaces & site.packets().keys()
    assert str(region.region.vpc) not in site.node.routes()
    assert len(site.frr.peers()) == len(before)

    site.install(world.site_files(site.name), keys(site.gateway, world.outputs, world.kept))
    site.tool("reload", timeout=120)
    world.wait_healthy(60)
    now = site.charon.associations()
    assert {name: spis for name, spis in now.items() if name not in gone} == before
    assert gone <= now.keys()
    assert there.stop().lost == 0
