"""New keys for tunnels. The gateways and AWS are played here; `tests/network` does it with real daemons."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from drive import vpn_world

from infra.drive.secrets import gateway_keys, open_store
from infra.drive.secrets.store import Store
from infra.drive.vpn.keys import Rotation
from infra.errors import DriveError
from infra.load import load
from infra.model.cluster import Secrets
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

RESEARCH = Path(__file__).parents[2] / "environments" / "research.yaml"


class World(vpn_world.World):
    """Both ends of each tunnel, and what traffic can take: those whose two keys are the same."""

    def __init__(self, gateway: SiteGateway, store: Store) -> None:
        super().__init__(gateway)
        self.store = store
        keys = gateway_keys([gateway], store)
        self.ours = {tunnel.name: keys[tunnel.secret] for tunnel in gateway.tunnels}
        self.theirs = dict(self.ours)
        self.refuses = ""

    def rotation(self, patience: float = 5) -> Rotation:
        ticks = itertools.count()
        return Rotation(
            gate=self,
            cloud=self,
            store=self.store,
            deliver=self.deliver,
            say=lambda _: None,
            wait=lambda _: None,
            clock=lambda: float(next(ticks)),
            patience=patience,
        )

    def reconnect(self, tunnel: SiteTunnel) -> None:
        self.up.discard(tunnel.name)
        if self.ours[tunnel.name] == self.theirs[tunnel.name]:
            self.up.add(tunnel.name)
        self.look()

    def change_key(self, tunnel: SiteTunnel, key: str) -> None:
        if self.refuses == tunnel.name:
            raise DriveError("AWS refuses")
        self.step("AWS", tunnel)
        self.theirs[tunnel.name] = key
        self.up.discard(tunnel.name)
        self.look()

    def deliver(self, sites: Iterable[str]) -> None:
        keys = gateway_keys([self.gateway], self.store)
        self.ours = {tunnel.name: keys[tunnel.secret] for tunnel in self.gateway.tunnels}
        for tunnel in self.gateway.tunnels:
            if tunnel.peer in sites:
                self.theirs[tunnel.name] = keys[tunnel.secret]


@pytest.fixture
def world(tmp_path: Path) -> World:
    cluster, _ = resolve(load(RESEARCH).spec, Lock(), "research")
    store = open_store(Secrets("local", "", ""), "research", tmp_path, {})
    return World(cluster.gateways[0], store)


def test_every_tunnel_gets_a_new_key_at_both_ends(world: World) -> None:
    before = dict(world.ours)
    world.rotation().run("rack-a", world.gateway.tunnels)
    assert world.ours == world.theirs
    assert all(world.ours[name] != key for name, key in before.items())
    assert world.up == set(before)
    assert not world.drained
    assert not world.lost
    assert not [name for name in world.store.names("vpn/") if name.endswith(".next")]


def test_one_tunnel_of_a_region_at_a_time_the_spare_one_first(world: World) -> None:
    world.rotation().run("rack-a", world.gateway.tunnels)
    west = [step for step in world.steps if "us-west-2" in step]
    assert west == [f"{verb} us-west-2-{number}" for number in (2, 1) for verb in ("drain", "AWS", "restore")]


def test_a_tunnel_without_a_sibling_is_left_alone(world: World) -> None:
    before = dict(world.ours)
    world.up.discard("us-west-2-1")
    with pytest.raises(DriveError, match=r"us-west-2-2: .*us-west-2 "):
        world.rotation().run("rack-a", world.gateway.tunnels)
    assert world.ours["us-west-2-2"] == before["us-west-2-2"]
    assert not any("us-west-2" in step for step in world.steps)


def test_when_aws_refuses_all_is_as_before(world: World) -> None:
    before = dict(world.ours)
    world.refuses = "eu-west-1-2"
    with pytest.raises(DriveError, match="AWS refuses"):
        world.rotation().run("rack-a", world.gateway.tunnels)
    assert world.ours == world.theirs == before
    assert not world.drained
    assert not world.lost
    world.refuses = ""
    world.rotation().run("rack-a", world.gateway.tunnels)
    assert world.ours == world.theirs


def test_a_tunnel_that_stays_down_is_told_and_stays_drained(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "reconnect", lambda _: None)
    with pytest.raises(DriveError, match=r"eu-west-1-2 .* 5 s"):
        world.rotation().run("rack-a", world.gateway.tunnels)
    assert world.drained == {"eu-west-1-2"}
    assert not world.lost


@pytest.mark.parametrize("moment", ["change_key", "deliver", "reconnect", "restore"])
def test_cut_off_at_any_moment_it_is_finished_by_another_run(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Cut off right after each step: the step is done, and nothing that follows."""
    real = getattr(world, moment)

    def once(*arguments: object) -> None:
        real(*arguments)
        monkeypatch.setattr(world, moment, real)
        raise KeyboardInterrupt

    monkeypatch.setattr(world, moment, once)
    with pytest.raises(KeyboardInterrupt):
        world.rotation().run("rack-a", world.gateway.tunnels)
    world.rotation().run("rack-a", world.gateway.tunnels)
    assert world.ours == world.theirs
    assert world.up == set(world.ours)
    assert not world.drained
    assert not world.lost
