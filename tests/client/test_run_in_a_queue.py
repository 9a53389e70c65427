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


def test_a_run_whose_time_is_up_is_stopped_and_may_go_on(ada: Run, folder: Path) -> None:
    program(
        folder,
        """
        import os, pathlib, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
        print("begun", flush=True)
        time.sleep(3600)
        """,
    )
    done = ada(
        "run", "--json", "--gpus", "0", "--name", "short", "--set", "time=5s", "--", "python3", "train.py"
    )
    assert (done.code, done.json["state"]) == (1, "timed-out"), done.err
    assert 5 <= done.json["seconds"] < 60
    assert "5s" in ada("why", "short-1").out
    assert "queued again" in ada("resume", "short-1").out
    wait(lambda: state(ada, "short-1") == "running")
    wait(lambda: state(ada, "short-1") == "timed-out")


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
