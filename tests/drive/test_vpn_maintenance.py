"""Pending maintenance of tunnels. Both ends are played here; `tests/network` does it with real daemons."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from drive import vpn_world

from infra.drive.vpn.cloud import Maintenance
from infra.drive.vpn.maintenance import Upkeep
from infra.errors import DriveError
from infra.load import load
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

RESEARCH = Path(__file__).parents[2] / "environments" / "research.yaml"
WEST = {"us-west-2-1", "us-west-2-2"}


class World(vpn_world.World):
    """Both ends of each tunnel, and the marks on the gateway."""

    def __init__(self, gateway: SiteGateway) -> None:
        super().__init__(gateway)
        self.up_at_aws = set(self.up)
        self.pending = set(WEST)
        self.marked: set[str] = set()
        self.said: list[str] = []
        self.comes_back = True
        self.interrupts: Callable[[str], None] = lambda _: None

    def run(self, *names: str) -> tuple[str, ...]:
        ticks = itertools.count()
        upkeep = Upkeep(
            gate=self,
            endpoints=self,
            marks=self,
            command="invoke vpn.maintain --site rack-a",
            say=self.said.append,
            wait=lambda _: None,
            clock=lambda: float(next(ticks)),
            patience=5,
        )
        return upkeep.run(self.gateway.tunnels, names or WEST)

    # -- the gateway

    def names(self) -> frozenset[str]:
        return frozenset(self.marked)

    def put(self, tunnel: str) -> None:
        self.marked.add(tunnel)

    def take(self, tunnel: str) -> None:
        self.marked.discard(tunnel)

    # -- AWS

    def maintenance(self, tunnel: SiteTunnel) -> Maintenance:
        return Maintenance(tunnel.name in self.pending, None, None)

    def is_up(self, tunnel: SiteTunnel) -> bool:
        return tunnel.name in self.up_at_aws

    def replace(self, tunnel: SiteTunnel) -> None:
        self.step("replace", tunnel)
        self.pending.discard(tunnel.name)
        self.up.discard(tunnel.name)
        self.look()
        if self.comes_back:
            self.up.add(tunnel.name)

    def step(self, verb: str, tunnel: SiteTunnel) -> None:
        super().step(verb, tunnel)
        self.interrupts(self.steps[-1])


@pytest.fixture
def world() -> World:
    cluster, _ = resolve(load(RESEARCH).spec, Lock(), "research")
    return World(cluster.gateways[0])


def whole(world: World) -> bool:
    return not (world.drained or world.marked or world.pending or world.lost)


def test_one_tunnel_after_the_other_the_spare_one_first(world: World) -> None:
    assert world.run() == ("us-west-2-2", "us-west-2-1")
    assert world.steps == [
        f"{verb} us-west-2-{number}" for number in (2, 1) for verb in ("drain", "replace", "restore")
    ]
    assert whole(world)


def test_what_is_not_pending_is_left_alone(world: World) -> None:
    world.pending = {"us-west-2-1"}
    world.drained = {"us-west-2-2"}  # by hand
    assert world.run("us-west-2-2") == ()
    assert world.steps == []
    assert world.drained == {"us-west-2-2"}


@pytest.mark.parametrize("end", ["up", "up_at_aws"])
def test_the_other_tunnel_must_carry_at_both_ends(world: World, end: str) -> None:
    getattr(world, end).discard("us-west-2-1")
    with pytest.raises(DriveError, match=r"us-west-2-1"):
        world.run("us-west-2-2")
    assert world.steps == []
    assert not world.marked


def test_a_tunnel_whose_sibling_is_being_worked_on_waits(world: World) -> None:
    world.marked = {"us-west-2-1"}
    with pytest.raises(DriveError, match=r"us-west-2-1 .* finished"):
        world.run("us-west-2-2")
    assert world.steps == []


def test_a_tunnel_that_does_not_come_back_stays_drained_and_the_next_is_not_touched(world: World) -> None:
    world.comes_back = False
    with pytest.raises(DriveError, match="us-west-2-2"):
        world.run()
    assert world.drained == world.marked == {"us-west-2-2"}
    assert "us-west-2-1" in world.pending
    # What it left is finished by the next run, once it is up.
    world.up.add("us-west-2-2")
    world.comes_back = True
    assert world.run() == ("us-west-2-2", "us-west-2-1")
    assert whole(world)


@pytest.mark.parametrize("moment", ["drain", "replace", "restore"])
def test_a_run_that_is_cut_off_says_what_it_left_and_the_next_one_goes_on(world: World, moment: str) -> None:
    def interrupt(step: str) -> None:
        if step == f"{moment} us-west-2-2":
            raise KeyboardInterrupt

    world.interrupts = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert world.said[-1].startswith("us-west-2-2 is left")
    assert "invoke vpn.maintain --site rack-a" in world.said[-1]
    assert "us-west-2-1" in world.pending
    world.interrupts = lambda _: None
    assert world.run() == ("us-west-2-2", "us-west-2-1")
    assert whole(world)


def test_a_drain_that_fails_is_taken_back(world: World) -> None:
    def refuse(step: str) -> None:
        if step.startswith("drain"):
            raise DriveError("still carries what has no other way")

    world.interrupts = refuse
    with pytest.raises(DriveError, match="other way"):
        world.run()
    assert not world.marked
    assert world.pending == WEST
