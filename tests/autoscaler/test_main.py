"""The program: `run` as a process that is stopped and killed, and `explain`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from autoscaler import make
from autoscaler.controller_stage import Stage, staged
from autoscaler.embedded import EmbeddedAws
from waiting import until

from infra.autoscaler.__main__ import main

WEST, EAST = make.group(max=2), make.group("us-east-1")


@pytest.fixture
def stage(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Stage]:
    with staged(aws, tmp_path, WEST, EAST, interval=1) as found:
        yield found


@pytest.fixture
def options(stage: Stage, tmp_path: Path) -> list[str]:
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(stage.config))
    return ["--config", str(path), "--kubeconfig", str(stage.kubeconfig)]


def test_explain_tells_what_waits_and_writes_nothing(
    stage: Stage, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stage.pods(3)
    assert main(["explain", *options]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["PODS", "OUTCOME", "WHERE", "WHAT"]
    assert any("starting" in row and WEST.name in row for row in rows)
    assert any(row.startswith("SetDesired") and f"group {WEST.name}, was 0, desired 2" in row for row in rows)
    assert main(["explain", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(each["count"] for each in found["verdicts"]) == 3
    assert {each["type"] for each in found["actions"]} == {"SetDesired"}
    assert main(["explain", "--pod", "user-ada/work-0", *options]) == 0
    assert capsys.readouterr().out.startswith("user-ada/work-0: starting: ")
    assert main(["explain", "--pod", "user-ada/work-0", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "starting"
    assert main(["explain", "--pod", "user-ada/work", *options]) == 1
    assert "user-ada/work-" in capsys.readouterr().err
    assert stage.aws.writes() == []
    assert stage.written() == []
    assert stage.api.count("POST", "/leases") == 0


def test_explain_says_what_it_could_not_read(
    stage: Stage, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stage.aws.group(WEST).tags.clear()
    assert main(["explain", *options]) == 0
    out, err = capsys.readouterr()
    assert out == "nothing waits\n"
    assert f"aws/us-west-2/{WEST.name}: " in err


@pytest.mark.parametrize(
    ("text", "words"), [("{", "the autoscaler's configuration"), (None, "No such file or directory")]
)
def test_a_bad_configuration_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, words: str
) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    assert main(["run", "--config", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


class Process:
    """`run` in a process of its own."""

    def __init__(self, options: list[str], log: Path, *more: str) -> None:
        self.log = log
        with log.open("ab") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infra.autoscaler", "run", "--port", "0", *options, *more],
                stderr=lines,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def test_a_process_that_is_killed_at_any_moment_and_its_successors(
    stage: Stage, options: list[str], tmp_path: Path
) -> None:
    """Each is killed right when it has begun to write; what the last one leaves is right, and complete."""
    log = tmp_path / "log"
    stage.pods(3)
    for action in ("PATCH autoscaler-memory", "SetDesiredCapacity"):
        # The lease of who was killed stands: it is taken away, as waiting for its end takes half a minute.
        for key in [key for key in stage.api.objects if key[0].endswith("/leases")]:
            del stage.api.objects[key]
        process = Process(options, log)

        def written(action: str = action) -> bool:
            if action == "SetDesiredCapacity":
                return action in stage.aws.writes()
            return bool(
                stage.api.count("POST", "/configmaps") or stage.api.count("PATCH", "autoscaler-memory")
            )

        until(written, seconds=60)
        assert process.end(signal.SIGKILL) == -signal.SIGKILL
    for key in [key for key in stage.api.objects if key[0].endswith("/leases")]:
        del stage.api.objects[key]
    last = Process(options, log)
    until(lambda: stage.sizes() == {WEST.name: 2, EAST.name: 1}, seconds=60)
    turns = len([line for line in last.lines() if line["message"] == "loop"])
    until(lambda: len([line for line in last.lines() if line["message"] == "loop"]) > turns + 1, seconds=60)
    assert last.end(signal.SIGTERM) == 0
    assert stage.sizes() == {WEST.name: 2, EAST.name: 1}
    assert stage.aws.writes().count("SetDesiredCapacity") == 2, "none was written twice"
    (lease,) = [each for key, each in stage.api.objects.items() if key[0].endswith("/leases")]
    assert not lease["spec"].get("holderIdentity"), "who ends in order gives the lease back"
    assert not [line for line in last.lines() if line["level"] == "error"]


def test_34_once_and_as_a_dry_run(stage: Stage, options: list[str], tmp_path: Path) -> None:
    stage.pods(1)
    dry = Process(options, tmp_path / "dry", "--once", "--dry-run")
    assert dry.process.wait(60) == 0
    assert "SetDesired: planned" in [line["message"] for line in dry.lines()]
    assert stage.aws.writes() == []
    assert stage.written() == []
    assert (stage.api.count("POST", "/leases"), stage.api.count("POST", "/events")) == (0, 0)
    assert Process(options, tmp_path / "log", "--once").process.wait(60) == 0
    assert stage.sizes() == {WEST.name: 1}
