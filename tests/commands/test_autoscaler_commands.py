"""`invoke autoscaler.…` over a made-up API and a real secrets store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from autoscaler import make
from golden_clusters import golden
from msgspec.structs import replace

from infra.autoscaler.memory import Backoff, Booking, Drain, Memory, Resize, dump
from infra.autoscaler.reasons import Reason
from infra.autoscaler.reporting.explain import Change, Explained
from infra.commands.autoscaler import answers, explaining, simulating, status
from infra.commands.cluster.up import unscaled
from infra.commands.environment import Project, find, load_project
from infra.drive.kubernetes.api import Api
from infra.errors import UsageError
from infra.model import Cluster
from infra.render.kubernetes import autoscaler

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Objects:
    """An API that has these objects, by path."""

    def __init__(self, found: dict[str, Any] | None = None) -> None:
        self.found = found or {}

    def find(self, path: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.found.get(path)
        return found


def api(objects: Objects) -> Api:
    return cast("Api", objects)


@pytest.fixture
def research() -> Cluster:
    return golden("research")


# -- status -----------------------------------------------------------------------------------------------


def deployed(cluster: Cluster, *, ready: int = 2, renewed: str = "2026-11-20T11:59:57.000000Z") -> Objects:
    deployment = autoscaler.objects(cluster)["controller.yaml"][0]
    group = "research-us-west-2-gpu-p3"
    at = NOW.timestamp()
    memory = Memory(
        backoffs={
            group: Backoff("capacity", "none left", at - 9, at - 9, at + 300, 2),
            "over": Backoff("capacity", "", 1.0, 1.0, 2.0, 1),
        },
        drains={"ip-10-0-0-1": Drain(group, "i-1", "draining", at - 60, at - 90, "idle")},
        bookings={"Job/user-ada/train": Booking(("a", "b"), at + 600)},
        resizes={group: Resize(at - 9, 1, 4)},
        idle={"ip-10-0-0-1": at - 900},
    )
    system = "namespaces/causeway-system"
    lease = {"spec": {"holderIdentity": "autoscaler-1", "renewTime": renewed}}
    return Objects(
        {
            f"/apis/apps/v1/{system}/deployments/autoscaler": {
                **deployment,
                "status": {"readyReplicas": ready},
            },
            f"/apis/coordination.k8s.io/v1/{system}/leases/autoscaler": lease,
            f"/api/v1/{system}/configmaps/autoscaler-memory": {"data": {"memory.json": dump(memory)}},
        }
    )


def test_status_tells_what_is_remembered_and_that_all_is_well(
    research: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    found = status.gather(api(deployed(research)), research, NOW)
    assert found["problems"] == []
    assert found["leader"] == {"holder": "autoscaler-1", "seconds_ago": 3.0}
    assert [each["group"] for each in found["backoffs"]] == ["research-us-west-2-gpu-p3"]
    assert [(each["node"], each["stage"]) for each in found["drains"]] == [("ip-10-0-0-1", "draining")]
    assert found["bookings"][0]["machines"] == 2
    json.dumps(found)
    status._tell(found)
    words = capsys.readouterr().out.split()
    assert {"autoscaler-1", "research-us-west-2-gpu-p3", "capacity", "12:05"} <= {*words}


@pytest.mark.parametrize(
    ("changes", "ready", "renewed", "says"),
    [
        ({"enabled": False}, 2, "2026-11-20T11:59:57Z", "disabled"),
        ({"image": None}, 2, "2026-11-20T11:59:57Z", "no image"),
        ({"image": "registry.lab.example/x:2"}, 2, "2026-11-20T11:59:57Z", "registry.lab.example/x:2"),
        ({}, 1, "2026-11-20T11:59:57Z", "1 of 2"),
        ({}, 2, "2026-11-20T11:50:00Z", "600 seconds"),
        ({}, 2, "", "Lease"),
    ],
)
def test_status_says_what_keeps_it_from_its_work(
    research: Cluster, changes: dict[str, Any], ready: int, renewed: str, says: str
) -> None:
    objects = deployed(research, ready=ready, renewed=renewed)
    other = replace(research, autoscaler=replace(research.autoscaler, **changes))
    (problem,) = status.gather(api(objects), other, NOW)["problems"]
    assert says in problem


def test_a_cluster_without_one_says_how_it_gets_one(research: Cluster) -> None:
    (problem,) = status.gather(api(Objects()), research, NOW)["problems"]
    assert "invoke cluster.up" in problem


# -- explain and simulate ---------------------------------------------------------------------------------


LAB = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return load_project(find("lab"), changeable=True)


def test_an_explanation_is_a_line_and_then_group_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    explaining.tell(
        Explained(
            pod="user-ada/train-0",
            outcome="waits",
            text="8 x A100",
            gang="Job/user-ada/train",
            obstacles=(
                Reason("unreadable", "gpu-west", until=make.NOW),
                Reason("deleting", "cpu"),
            ),
            changes=(Change("cpu", 1, 2, "demand"),),
            unknown=("aws/eu-west-1: no answer",),
        )
    )
    captured = capsys.readouterr()
    first, second, *lines = captured.out.splitlines()
    assert first.startswith("user-ada/train-0 ")
    assert "Job/user-ada/train" in first
    assert second == "waits: 8 x A100"
    rows = [(words[0], words[-1]) for words in map(str.split, lines) if words]
    assert ("gpu-west", "08:00") in rows
    assert "cpu" in [group for group, _ in rows]
    assert "aws/eu-west-1" in captured.err


def test_variables_are_set_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with answers.environment({"AWS_PROFILE": "lab"}):
        assert os.environ["AWS_PROFILE"] == "lab"
    assert "AWS_PROFILE" not in os.environ


def test_a_trace_is_run_with_the_environments_own_pools(
    lab: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infra.autoscaler import config
    from infra.simulator import command

    asked: dict[str, Any] = {}

    def simulate(trace: Path | None, **more: Any) -> int:
        asked.update(more, trace=trace, groups=config.read(more["config"]).groups)
        return 0

    monkeypatch.setattr(command, "simulate", simulate)
    assert simulating.simulate(lab, "t.jsonl", plot="p.svg", days="7", json=True) == 0
    assert [each.name for each in asked["groups"]] == ["lab-us-west-2-cpu"]
    assert (asked["trace"], asked["plot"], asked["until"]) == (Path("t.jsonl"), Path("p.svg"), 7.0)
    assert asked["physical"] == ()
    assert asked["rules"] is None, "it has no groups, and so no queues"
    assert not asked["config"].exists()
    asked.clear()
    monkeypatch.setattr(command, "simulate", lambda **more: asked.update(more) or 0)
    assert simulating.simulate(lab, "", plot="", days="", json=True) == 0
    assert "config" not in asked, "the story asks for pools of its own lab"
    with pytest.raises(UsageError, match="--days"):
        simulating.simulate(lab, "", plot="", days="a week", json=False)


def test_a_trace_meets_the_racks_of_the_spec(research: Cluster) -> None:
    found = simulating.machines(research)
    assert sum(each.count for each in found) == 16
    assert {each.gpus for each in found} == {4}
    assert {each.labels["causeway.dev/site"] for each in found} == {"rack-a", "rack-b"}
    assert found[0].memory > 200_000


def test_cluster_up_says_which_pools_nothing_makes_grow(lab: Project, research: Cluster) -> None:
    assert unscaled(lab.cluster) == ["cpu"]
    assert unscaled(research) == []
