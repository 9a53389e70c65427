"""A conductor that is killed between any two requests: nothing is lost, nothing is done twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from client.conductor_world import (
    JOBSETS,
    WORKLOADS,
    ConductorWorld,
    KilledError,
    conductor_world,
    job_of,
)
from client.mlflow_server import needs_mlflow

from causeway.cluster.sweeps import Order
from causeway.tracking.searches import Ledger, Row

pytestmark = needs_mlflow
_TRIALS, _PARALLEL, _STEPS = 10, 3, 9
_KILLS = 25


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConductorWorld]:
    with conductor_world(tmp_path_factory.mktemp("conductor")) as found:
        yield found


def conducted(world: ConductorWorld, name: str, draw: random.Random | None) -> tuple[list[Row], int]:
    """A search from its beginning to its end, and how often its conductor was killed. ``draw``: when; None
    for never."""
    whole = world.begin(job_of(name, _TRIALS, _PARALLEL, _STEPS))
    bench, kills = world.bench(whole), 0
    for _ in range(400):
        if draw is not None and kills < _KILLS and world.kill_after < 0:
            world.kill_after = draw.randrange(24)
        try:
            if not world.round(bench, whole, _STEPS):
                break
        except KilledError:
            kills += 1
            bench = world.bench(whole)
    else:
        raise AssertionError("it does not end")
    world.kill_after = -1
    assert Ledger(world.plain, whole.id).whole().state == "done"
    return Ledger(world.plain, whole.id).rows(whole.experiment, "loss"), kills


def test_killed_at_25_points_it_comes_to_the_same_end(world: ConductorWorld) -> None:
    undisturbed, _ = conducted(world, "calm", None)
    rows, kills = conducted(world, "shaken", random.Random(7))
    assert kills == _KILLS
    assert [row.number for row in rows] == [*range(1, _TRIALS + 1)]
    assert [row.parameters for row in rows] == [row.parameters for row in undisturbed]
    assert {row.state for row in rows} <= {"done", "paused", "stopped"}
    assert best(rows) == best(undisturbed)
    # One JobSet and one Workload a trial; a trial is out of its queue if it was stopped, and only then.
    jobsets = named(world.admin.call("GET", JOBSETS)["items"], "shaken-s1-")
    workloads = named(world.admin.call("GET", WORKLOADS)["items"], "shaken-s1-")
    assert {*jobsets} == {*workloads} == {f"shaken-s1-{row.number}" for row in rows}
    for row in rows:
        active = workloads[f"shaken-s1-{row.number}"]["spec"].get("active", True)
        assert active is (row.state == "done"), row
    assert all(len(row.reports) == len(dict(row.reports)) for row in rows)


def best(rows: list[Row]) -> int:
    return min((value, row.number) for row in rows for _, value in row.reports if row.state == "done")[1]


def named(found: list[Any], prefix: str) -> dict[str, Any]:
    names = [each["metadata"]["name"] for each in found]
    assert len(names) == len({*names})
    return {each["metadata"]["name"]: each for each in found if each["metadata"]["name"].startswith(prefix)}


def test_requests_do_not_grow_with_trials_that_have_ended(world: ConductorWorld) -> None:
    """A round asks MLflow for the search and for a hundred trials at once, and watches."""
    whole = world.begin(job_of("quiet", 4, 2, 6))
    bench = world.bench(whole)
    world.round(bench, whole, 6)
    before = dict(world.seen)
    world.round(bench, whole, 6)
    assert world.seen["API server"] - before["API server"] <= 2
    assert world.seen["MLflow"] - before["MLflow"] <= 4
    assert Order.of(whole).job.name == "quiet"
