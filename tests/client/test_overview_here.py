"""``show``, ``compare`` and ``rerun --exact`` of runs of this machine, as a person runs them."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from client.process import Causeway, program
from rich.console import Console

from causeway.commands.compare import rows, show_table_of
from causeway.commands.show import lines
from causeway.job import Job
from causeway.overview import Known, Saved

_TRAIN = """
    import os, pathlib, random, sys, time
    import causeway
    random.seed(int(os.environ["CAUSEWAY_SEED"]))
    for step in range(3):
        causeway.report(step, loss=random.random())
    with causeway.checkpoint(2) as folder:
        (folder / "state").write_text("x" * 100)
    usage = pathlib.Path(os.environ["CAUSEWAY_USAGE"])
    while sys.argv[1] == "1e-3" and not (usage.exists() and usage.read_text().count("\\n") > 1):
        time.sleep(0.1)
"""
"""A run of this rate lasts until it is noted what it uses."""

_GPU = "NVIDIA TITAN X (Pascal)"
_NVIDIA_SMI = f"""#!/bin/sh
case $1 in
  *driver*) echo '{_GPU}, 550.54.14' ;;
  *) echo '93, 4096, 12288' ;;
esac
"""
"""In place of NVIDIA's, which needs a GPU: its output in the form of ``--format=csv,noheader,nounits``."""


@pytest.fixture
def environment(environment: Mapping[str, str], tmp_path: Path) -> Mapping[str, str]:
    """With a GPU."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(_NVIDIA_SMI)
    (programs / "nvidia-smi").chmod(0o755)
    return {**environment, "PATH": f"{programs}{os.pathsep}{environment['PATH']}"}


@pytest.mark.parametrize(("part", "said"), [(11_000_000_000, False), (13_000_000_000, True)])
def test_checkpoints_that_take_longer_to_copy_than_grace_lasts_are_said(part: int, said: bool) -> None:
    job = Job.model_validate({"name": "large", "run": "true", "grace": "2m"})
    saved = [Saved("step-2", 2 * part, part, 0.0, {}), Saved("step-1", 9 * part, 9 * part, 0.0, {})]
    known = Known("large-1", "user-ada", "running", 0.0, 60.0, job, "", {}, saved=saved)
    assert any("`grace`" in line.plain for line in lines(known, now=60.0)) is said


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_differs_at_its_end_is_shown_to_its_end(width: int) -> None:
    commands = [
        f"python train.py --data /shared/images --lr {lr}\necho {lr} is over" for lr in ("1e-3", "1e-4")
    ]
    images = [f"registry.lab.example/vision/resnet-training:2026.{month}" for month in (10, 11)]
    runs = []
    for at, command in enumerate(commands, 1):
        job = Job.model_validate({"name": "resnet", "run": command})
        runs.append(Known(f"resnet-{at}", "user-ada", "done", 0.0, 60.0, job, "", {}, image=images[at - 1]))
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, soft_wrap=True)
    show_table_of(out, runs, dict(rows(runs)))
    assert isinstance(out.file, io.StringIO)
    shown = out.file.getvalue()
    assert all(
        words in shown for words in [*images, *(line for each in commands for line in each.splitlines())]
    )
    assert max(map(len, shown.splitlines())) <= width + 10


def test_runs_are_shown_compared_and_repeated(causeway: Causeway, folder: Path) -> None:
    program(folder, _TRAIN)
    (folder / "job.yaml").write_text("name: toy\nrun: python3 train.py {lr}\n")
    for lr in ("1e-3", "1e-4"):
        done = causeway("run", "--local", "job.yaml", "--set", f"lr={lr}")
        assert done.code == 0, done.err
        (folder / "train.py").write_text((folder / "train.py").read_text() + "print('more')\n")

    shown = causeway("show", "--local", "toy-1", "--json").json
    assert (shown["state"], shown["parameters"]) == ("done", {"lr": "1e-3"})
    assert [step for step, _ in shown["metrics"]["loss"]["points"]] == [0, 1, 2]
    (saved,) = shown["checkpoints"]
    assert (saved["name"], saved["bytes"], [*saved["metrics"]]) == ("step-2", 100, ["loss"])
    usage = shown["usage"]["worker-0"]
    assert (usage["models"], usage["driver"]) == ([_GPU], "550.54.14")
    assert (usage["gpu"], usage["gpu_memory"]) == ([93.0], [2**32])
    screen = causeway("show", "--local", "toy-1").out
    assert [fact for fact in ("toy-1", "lr=1e-3", "step-2", "93 %", "12.0 GiB") if fact not in screen] == []

    found = causeway("compare", "--local", "toy-1", "toy-2", "--json").json
    assert found["differences"]["--set lr"] == {"toy-1": "1e-3", "toy-2": "1e-4"}
    assert {"seed", "command"} <= found["differences"].keys()
    assert found["code"][0]["files"] == [{"path": "train.py", "change": "changed"}]
    assert "+print('more')" in causeway("compare", "--local", "toy-1", "toy-2", "--diff").out

    again = causeway("rerun", "--local", "--exact", "toy-1", "--json")
    assert (again.code, again.json["run"]) == (0, "toy-3"), again.err
    same = causeway("compare", "--local", "toy-1", "toy-3", "--json").json
    assert same["differences"] == {}
    assert same["code"][0]["files"] == []
    assert same["metrics"]["toy-1"] == same["metrics"]["toy-3"], "the seed is the same"
    assert causeway("show", "--local", "toy-9").code == 1
    assert causeway("compare", "--local", "toy-1").code == 2

    run = Path(again.json["folder"])
    record = json.loads((run / "run.json").read_text())
    assert record.pop("ended")["state"] == "done"
    (run / "run.json").write_text(json.dumps(record))
    assert causeway("show", "--local", "toy-3", "--json").json["state"] == "stopped", "it was killed"
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert causeway("show", "--local", "toy-3", "--json").json["state"] == "running"


def test_runs_are_a_table(causeway: Causeway, folder: Path) -> None:
    program(folder, f"{_TRAIN}\n    sys.exit(int(sys.argv[1]) - 1)")
    (folder / "job.yaml").write_text(
        "name: toy\nrun: python3 train.py {code}\nrestarts: 0\ntracking: {experiment: ablations}\n"
    )
    for code in ("1", "3"):
        causeway("run", "--local", "job.yaml", "--set", f"code={code}")
    causeway("run", "--local", "--name", "other", "--", "true")
    table = causeway("export", "--local")
    assert table.code == 0, table.err
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(table.out))}
    assert [*rows] == ["other-1", "toy-2", "toy-1"]
    assert (rows["toy-1"]["state"], rows["toy-2"]["state"]) == ("done", "failed")
    assert (rows["toy-1"]["params.code"], rows["other-1"]["params.code"]) == ("1", "")
    assert rows["toy-1"]["experiment"] == "ablations"
    assert rows["other-1"]["metrics.loss"] == ""

    assert causeway("export", "--local", "--json", "-o", "runs.json", "toy-*").out == ""
    found = {each["name"]: each for each in json.loads((folder / "runs.json").read_text())}
    assert [*found] == ["toy-2", "toy-1"]
    assert found["toy-1"]["parameters"] == {"code": "1"}
    assert found["toy-1"]["metrics"]["loss"] == float(rows["toy-1"]["metrics.loss"])
    assert found["toy-1"]["code"] == rows["toy-1"]["code"] != ""
    chosen = causeway("export", "--local", "--experiment", "ablations", "--csv").out
    assert [row["name"] for row in csv.DictReader(io.StringIO(chosen))] == ["toy-2", "toy-1"]
    assert causeway("export").out == table.out, "without a kubeconfig it is this machine"
    assert causeway("export", "--local", "--group", "vision").code == 2
    assert causeway("export", "--local", "toy-9").code == 1
    assert causeway("export", "--local", "--csv", "--json").code == 2
    assert causeway("export", "--local", "-o", "none/runs.csv").code == 1
