"""Runs and Kueue itself: admitted, waiting, stopped and resumed, with the rights that people have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from client.jobset_world import World, worlds
from client.pods import can_run, wait
from client.test_run_in_cluster import Run, person, program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy(minutes=1),
    pytest.mark.skipif(bool(can_run()), reason=can_run()),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with worlds(tmp_path_factory.mktemp("queue"), queues=True) as found:
        yield found
        assert found.pods.problems == []


@pytest.fixture
def ada(world: World, folder: Path, environment: Mapping[str, str], command: list[str]) -> Run:
    return person(world, "ada", folder, environment, command)


def state(ada: Run, name: str) -> str:
    return str(yaml.safe_load(ada("why", name, "--json").out)["state"])


def test_what_has_quota_runs_and_what_has_no_machine_says_why_it_waits(ada: Run, folder: Path) -> None:
    program(folder, "print('ran')")
    done = ada("run", "--gpus", "0", "--name", "small", "--", "python3", "train.py")
    assert done.code == 0, done.err
    waiting = ada("run", "-d", "--json", "--gpus", "4", "--name", "large", "--", "python3", "train.py").json[
        "run"
    ]
    # There is no node with GPUs yet, so Kueue finds no place in its topology.
    found = wait(
        lambda: (
            (why := yaml.safe_load(ada("why", waiting, "--json").out))
            and "couldn't assign" in why["waits_for"]
            and why
        )
    )
    assert found["state"] == "queued"
    assert "couldn't assign" in ada("why", waiting).out


def test_a_stopped_run_saves_keeps_its_record_and_goes_on(ada: Run, folder: Path) -> None:
    program(
        folder,
        """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
        print("begun", flush=True)
        time.sleep(3600)
        """,
    )
    name = ada("run", "-d", "--json", "--gpus", "0", "--name", "long", "--", "python3", "train.py").json[
        "run"
    ]
    wait(lambda: "begun" in ada("logs", name).out)
    assert "is stopped" in ada("stop", name).out
    wait(lambda: state(ada, name) == "stopped")
    assert f"causeway resume {name}" in ada("why", name).out
    assert "already" in ada("stop", name).out
    assert "queued again" in ada("resume", name).out
    wait(lambda: state(ada, name) == "running")
    found = yaml.safe_load(ada("why", name, "--json").out)
    assert found["restarts"] == 0
    ada("stop", name)


def test_a_run_whose_time_is_up_is_stopped_and_says_so(ada: Run, folder: Path) -> None:
    program(
        folder,
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
        print("begun", flush=True)
        time.sleep(3600)
        """,
    )
    # The time counts from the admission on, and pods take theirs to start.
    limit = 30
    done = ada(
        "run",
        "--json",
        "--gpus",
        "0",
        "--name",
        "short",
        "--set",
        f"time={limit}s",
        "--",
        "python3",
        "train.py",
    )
    assert (done.code, done.json["state"]) == (1, "timed-out"), done.err
    assert "begun" in done.err
    assert done.json["seconds"] >= limit
    name = done.json["name"]
    assert f"{limit}s" in ada("why", name).out
    refused = ada("resume", name)
    assert (refused.code, f"causeway rerun {name}" in refused.err) == (1, True)


def test_what_may_cost_money_is_not_submitted_where_nobody_can_be_asked(
    ada: Run, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, "print('ran')")
    careful = person(world, "ada", folder, {**environment}, command, CAUSEWAY_YES="")
    refused = careful("run", "--gpus", "1", "--name", "dear", "--", "python3", "train.py")
    assert (refused.code, "--yes" in refused.err) == (2, True), refused.err
    assert not any(each["name"].startswith("dear") for each in yaml.safe_load(ada("ps", "--json").out))
    cheap = careful(
        "run", "-d", "--name", "cheap", "--set", "where.sites=[rack-a]", "--", "python3", "train.py"
    )
    assert cheap.code == 0, cheap.err
    ada("stop", "cheap-1")


def test_the_doctor_finds_the_way_open_and_what_is_missing(
    ada: Run, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    found = yaml.safe_load(ada("doctor", "--json").out)
    assert {each["step"]: each["state"] for each in found} == dict.fromkeys(
        ("kubeconfig", "network", "api", "clock", "cluster", "rights", "queue", "store"), "ok"
    )
    alan = person(world, "alan", folder, environment, command)
    refused = alan("doctor", "--group", "engineers", "--json")
    states = {each["step"]: each["state"] for each in yaml.safe_load(refused.out)}
    assert (refused.code, states["rights"], states["store"]) == (1, "failed", "failed")
    config = yaml.safe_load(world.kubeconfigs["ada"].read_text())
    config["clusters"][0]["cluster"]["server"] = "https://nowhere.invalid:6443"
    (folder.parent / "away.yaml").write_text(yaml.safe_dump(config))
    away = person(world, "ada", folder, environment, command, KUBECONFIG=str(folder.parent / "away.yaml"))
    lost = away("doctor")
    assert lost.code == 3
    assert "VPN" in lost.out
    nobody = person(world, "ada", folder, environment, command, KUBECONFIG=str(folder / "none"))
    assert nobody("doctor").code == 3


def test_ssh_nodes_are_known_by_name(ada: Run, world: World, tmp_path: Path) -> None:
    """ssh itself is the lab's matter: what is started here is another program of that name."""
    (name, hosts), *_ = [(each.name, each.nodes) for each in world.spec.access.ssh]
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    for node in (name, hosts[0].partition(".")[0]):
        assert ada("shell", "--node", node, "--", "uptime", **path).out.split() == [
            f"ada@{hosts[0]}",
            "uptime",
        ]
    unknown = ada("shell", "--node", "moon", **path)
    assert (unknown.code, name in unknown.err) == (2, True)


def test_nobody_stops_anothers_run(
    ada: Run, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, "import time; time.sleep(3600)")
    name = ada("run", "-d", "--json", "--gpus", "0", "--name", "mine", "--", "python3", "train.py").json[
        "run"
    ]
    alan = person(world, "alan", folder, environment, command)
    refused = alan("stop", name)
    assert refused.code == 1
    assert "no run" in refused.err
    ada("stop", name)
