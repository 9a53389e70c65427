"""Changes while traffic flows: new keys, rekeying, both ends that begin at once, tunnels that come and go."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from network.daemons import Charon
from network.node import Node, wait_for
from network.shell import Shell
from network.world import Site, World

from infra.drive.secrets.local import LocalStore
from infra.drive.vpn.gateways import LiveGateway
from infra.drive.vpn.keys import KEYS_FILE, keys
from infra.drive.vpn.rotation import Rotation
from infra.model.tunnels import SiteTunnel


def wait_single(charon: Charon, *names: str) -> None:
    """Waits until each of these tunnels has one IKE SA, with one child."""

    def single() -> bool:
        found, children = connections(charon), associations(charon)
        assert [(found.get(name), len(children.get(name, []))) for name in names] == [(1, 1) for _ in names]
        return True

    wait_for(single, f"single associations of {', '.join(names)}", 45, [charon.node])


def associations(charon: Charon) -> dict[str, list[str]]:
    """Child's name → the SPIs of its associations that are installed, in any order."""
    told = charon.node.check("swanctl", "--list-sas", "--raw")
    found: dict[str, list[str]] = {}
    for name, spi in re.findall(r"\{name=(\S+) [^{}]*state=INSTALLED [^{}]*spi-in=(\w+)", told):
        found.setdefault(name, []).append(spi)
    return found


def connections(charon: Charon) -> dict[str, int]:
    """IKE connection → how many SAs it has."""
    told = charon.node.check("swanctl", "--list-sas", "--raw")
    found: dict[str, int] = {}
    for name in re.findall(r"list-sa event \{(\S+) \{", told):
        found[name] = found.get(name, 0) + 1
    return found


def test_one_association_a_tunnel_although_both_ends_begin(world: World) -> None:
    """What the timer leaves of the world's start, where all ends began at once."""
    for site in world.sites.values():
        site.tool("revive")
        wait_single(site.charon, *(tunnel.name for tunnel in site.gateway.tunnels))


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
    wait_single(site.charon, name)
    wait_single(region.charon, end.name)
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
        wait_single(site.charon, "us-west-2-1")
    assert [pinging.stop().lost for pinging in (there, back)] == [0, 0]
    assert site.is_up(site.interface("us-west-2"))


def _rekey_child(site: Site, node: Node, name: str) -> None:
    before = associations(site.charon)["us-west-2-1"]
    node.check("swanctl", "--rekey", "--child", name)
    site.node.wait_for(
        lambda: not set(before) & set(associations(site.charon)["us-west-2-1"]), "new SPIs", 15
    )


def test_tunnels_come_and_go_and_others_do_not_notice(world: World) -> None:
    site, region = world.sites["rack-b"], world.regions["eu-west-1"]
    link = region.end(site.name).link.name
    without = replace(
        world.outputs, tunnels={name: pair for name, pair in world.outputs.tunnels.items() if name != link}
    )
    gone = {tunnel.name for tunnel in site.gateway.tunnels if tunnel.link == link}
    interfaces = {tunnel.interface for tunnel in site.gateway.tunnels if tunnel.link == link}
    before = {name: spis for name, spis in associations(site.charon).items() if name not in gone}

    far = world.regions["us-west-2"]
    there = site.host.pinging(far.worker_address, 0.1)
    site.install(world.site_files(site.name, outputs=without), keys(site.gateway, without, world.kept))
    site.tool("reload", timeout=120)
    assert associations(site.charon) == before
    assert not interfaces & site.packets().keys()
    assert str(region.region.vpc) not in site.node.routes()
    assert len(site.frr.peers()) == len(before)

    site.install(world.site_files(site.name), keys(site.gateway, world.outputs, world.kept))
    site.tool("reload", timeout=120)
    world.wait_healthy(60)
    now = associations(site.charon)
    assert {name: spis for name, spis in now.items() if name not in gone} == before
    assert gone <= now.keys()
    assert there.stop().lost == 0


def dropped(site: Site) -> dict[str, int]:
    """Tunnel → how often its BGP session has ended."""
    peers = site.frr.show("bgp ipv4 unicast summary")["peers"]
    return {each.name: peers[str(each.inside_remote)]["connectionsDropped"] for each in site.gateway.tunnels}


@dataclass(frozen=True)
class Aws:
    """AWS's end in a rotation, as `Cloud` is: ModifyVpnTunnelOptions."""

    world: World
    site: str

    def change_key(self, tunnel: SiteTunnel, key: str) -> None:
        region = self.world.regions[tunnel.peer]
        region.change_key(region.end(self.site, tunnel.number), key)


def test_keys_are_rotated_while_traffic_flows(world: World, tmp_path: Path) -> None:
    site, region, other = world.sites["rack-a"], world.regions["us-west-2"], world.sites["rack-b"]
    names = ("rack-b-1", "us-west-2-1", "us-west-2-2")
    tunnels = [site.tunnel(name) for name in names]
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    store = LocalStore("lab", tmp_path, {"CAUSEWAY_SECRETS_KEY": key})
    store.add(world.kept)

    def deliver(sites: Iterable[str]) -> None:
        for each in sites:
            to = world.sites[each]
            to.node.write(KEYS_FILE, keys(to.gateway, world.outputs, store.read(world.kept)), 0o600)
            to.tool("reload", timeout=120)

    gateway = LiveGateway(site.gateway, Shell("gateway-a", site.node))
    said: list[str] = []
    pings = [
        site.host.pinging(region.worker_address, 0.1),
        region.worker.pinging(site.host_address, 0.1),
        site.host.pinging(other.host_address, 0.1),
        other.host.pinging(site.host_address, 0.1),
    ]
    before = associations(site.charon)
    sessions = dropped(site)
    Rotation(gateway, Aws(world, site.name), store, deliver, said.append).run(site.name, tunnels)
    world.wait_healthy()
    seen = [pinging.stop() for pinging in pings]
    now = store.read(world.kept)
    old, world.kept = world.kept, dict(now)
    assert [each.lost for each in seen] == [0, 0, 0, 0], said
    assert dropped(site)["rack-b-1"] == sessions["rack-b-1"]
    assert [name for name in names if now[site.tunnel(name).secret] == old[site.tunnel(name).secret]] == []
    assert store.names("") == tuple(sorted(now))  # no next key waits any more
    states = gateway.states()
    assert all(states[name].established and states[name].session == "Established" for name in names)
    after = associations(site.charon)
    begun_anew = names[1:]  # sites prove the new key to each other when they next meet
    assert all(len(after[name]) == 1 and after[name] != before[name] for name in begun_anew)
    assert {name: spis for name, spis in after.items() if name not in begun_anew} == {
        name: spis for name, spis in before.items() if name not in begun_anew
    }
    site.tool("restart", names[0])
    world.wait_healthy(60)
    log = site.charon.log() + other.charon.log()
    assert not [name for name, value in {**old, **now}.items() if value in log]


def test_a_gateway_tells_how_its_tunnels_are(world: World) -> None:
    site = world.sites["rack-b"]
    states = LiveGateway(site.gateway, Shell("gateway-b", site.node)).states()
    assert states.keys() == {tunnel.name for tunnel in site.gateway.tunnels}
    for name, state in states.items():
        assert state.established, name
        assert (state.state, state.session) == ("ESTABLISHED", "Established")
        assert state.routes == len(site.tunnel(name).accepts)
        assert state.bytes_in > 0 < state.bytes_out
