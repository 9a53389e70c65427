"""Pods of racks and regions over flannel's VXLAN, drawn by hand from the rendered figures, over real tunnels:
how large their packets are, and what happens when a region is cut off."""

from __future__ import annotations

import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from network.figures import figures
from network.node import Node, wait_for
from network.world import World

_RACK, _FIRST, _SECOND = "rack-a", "us-west-2", "us-east-1"
_TIMESTAMPS = 12
"""Bytes of TCP's option in each segment (RFC 7323)."""
_HEADERS = 40


def _refused(node: Node, address: str, mtu: int) -> bool:
    """Whether the node's own kernel says at once that a packet of so many bytes is too large."""
    size = str(mtu - 28)
    told = node.run("ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", size, address)
    return not told.ok and "essage too long" in told.stdout + told.stderr


def _dropped(world: World) -> dict[str, int]:
    """What gateways' firewalls have dropped, by chain."""
    return {
        f"{site.name} {chain}": site.dropped(chain)
        for site in world.sites.values()
        for tunnel in site.gateway.tunnels
        for chain in (f"from-{tunnel.name}", f"to-{tunnel.name}")
    }


def test_the_lab_is_drawn_as_flannel_is_told(world: World) -> None:
    wanted = figures(world.cluster)
    assert world.cluster.kubernetes.overlay.mtu == wanted.mtu
    world.pods()
    for node in (world.sites[_RACK].host, world.regions[_FIRST].worker):
        (link,) = json.loads(node.check("ip", "-json", "-details", "link", "show", "flannel.1"))
        data = link["linkinfo"]["info_data"]
        assert (link["mtu"], data["id"], data["port"]) == (wanted.mtu, wanted.vni, wanted.port)
        assert data["learning"] is False


def test_every_pod_sends_every_other_the_largest_packets_and_no_larger(world: World) -> None:
    mtu, pods = figures(world.cluster).mtu, world.pods()
    ways = [(one, other) for one in pods for other in pods if one != other]
    before = _dropped(world)

    def wrong(way: tuple[str, str]) -> str:
        source, address = pods[way[0]][0], pods[way[1]][1]
        if not source.fits(address, mtu):
            return f"{way}: {mtu} bytes do not fit"
        # It is the source's own interface that refuses: once is enough.
        if way in first and not _refused(source, address, mtu + 1):
            return f"{way}: {mtu + 1} bytes are not refused at once"
        return ""

    first = {one: (one, other) for one, other in ways}.values()
    with ThreadPoolExecutor() as together:
        assert [text for text in together.map(wrong, ways) if text] == []
    assert _dropped(world) == before


@pytest.mark.parametrize(("source", "target"), [(_RACK, _FIRST), (_SECOND, _RACK), (_FIRST, _SECOND)])
def test_bulk_goes_in_segments_that_fill_packets(world: World, source: str, target: str) -> None:
    mtu, pods = figures(world.cluster).mtu, world.pods()
    (sender, _), (receiver, address) = pods[source], pods[target]
    sender.sends(receiver, address, 500_000)
    measured = sender.throughput(receiver, address, 1)
    assert measured.segment == mtu - _HEADERS - _TIMESTAMPS


def _transfers(sender: Node, receiver: Node, address: str) -> Generator[int]:
    """Bytes that have arrived over one connection that goes on, whenever asked; the last time it is ended."""
    port = "22100"
    sink = receiver.start("socat", "-u", f"TCP-LISTEN:{port}", "OPEN:/tmp/sink,creat,trunc", name="sink")
    receiver.wait_for(lambda: receiver.check("ss", "-Hltn", f"sport = {port}"), "a listener")
    loop = f"while :; do head -c 2000 /dev/zero; sleep 0.1; done | socat -u - TCP:{address}:{port}"
    source = sender.start("sh", "-c", loop, name="source")
    try:
        while True:
            yield int(receiver.run("stat", "-c", "%s", "/tmp/sink").stdout or 0)
    finally:
        source.stop()
        sink.stop()


def test_a_region_is_cut_off_and_comes_back(world: World) -> None:
    """Nothing of the pods' network changes meanwhile: its routes are of nodes, which are still nodes."""
    pods, region = world.pods(), world.regions[_FIRST]
    rack, _ = pods[_RACK]
    there, address = pods[_FIRST]
    second, _ = pods[_SECOND]
    arrived = _transfers(rack, there, address)
    rack.wait_for(lambda: next(arrived) > 0, "a transfer")
    with world.lab.internet.cut(*(str(end.outside) for end in region.ends.values())):
        vpc = str(region.region.vpc)
        gateway = world.sites[_RACK].node
        gateway.wait_for(
            lambda: "unreachable" in gateway.check("ip", "route", "show", vpc), f"no way to {vpc}", 20
        )
        assert not rack.reaches(address)
        assert second.reaches(address), "regions have a line of their own"
        assert rack.reaches(pods[_SECOND][1])
        stuck = next(arrived)
    world.wait_healthy(60)
    wait_for(lambda: rack.reaches(address), "ping", 10)
    # The very connection goes on.
    rack.wait_for(lambda: next(arrived) > stuck, "the transfer going on", 60)
    assert rack.fits(address, figures(world.cluster).mtu)
    arrived.close()
