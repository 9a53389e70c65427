"""Checkpoints of ``causeway run --local``, with real torch: what goes on is as if never stopped."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from client.process import SYSTEM_PYTHON, Causeway, need_torch, program

from causeway.checkpoints import File, Part, Policy
from causeway.kept import rows


@pytest.fixture(scope="module")
def torch() -> None:
    need_torch()


_TRAIN = """
import os, random, sys, time
import causeway, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
begin = 0
if resume := os.environ.get("CAUSEWAY_RESUME"):
    saved = torch.load(resume + "/state.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])
    begin = saved["step"]
    print("resumed at", begin, flush=True)
for step in range(begin + 1, 31):
    rows = torch.randn(16, 4)
    loss = ((model(rows) - rows.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    causeway.report(step, loss=loss)
    print(f"step {step} {loss.item().hex()}", flush=True)
    stop = causeway.should_stop()
    if step % 10 == 0 or stop:
        with causeway.checkpoint(step) as folder:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                     "random": torch.get_rng_state()}
            torch.save(state, folder / "state.pt")
    if stop:
        break
    if step == int(os.environ.get("HANGS_AT", 0)) and not resume:
        print("hangs", flush=True)
        time.sleep(600)
    if step == int(os.environ.get("CRASHES_AT", 0)) and not resume:
        os._exit(9)
"""


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("step ")]


@pytest.mark.usefixtures("torch")
def test_what_crashed_goes_on_bit_for_bit(causeway: Causeway, folder: Path) -> None:
    program(folder, _TRAIN)
    run = ("run", "--local", "--json", "--gpus", "0")
    whole = causeway(*run, "--name", "whole", "--", SYSTEM_PYTHON, "train.py")
    assert whole.code == 0, whole.err
    first = causeway(*run, "--name", "parts", "--env", "CRASHES_AT=25", "--", SYSTEM_PYTHON, "train.py")
    assert first.code == 1
    assert "resume --local parts-1" in first.err
    program(folder, "raise SystemExit('edited')")
    code = Path(first.json["folder"], "code/train.py")
    code.write_text("raise SystemExit('written over by the program')")
    second = causeway("resume", "--local", "--json", "parts-1")
    assert second.code == 0, second.err
    assert "resumed at 20" in second.err
    assert losses(first.err)[:20] + losses(second.err) == losses(whole.err)
    assert causeway("resume", "--local", "never-1").code == 1


@pytest.mark.usefixtures("torch")
def test_what_was_stopped_or_killed_with_all_its_processes_goes_on(
    causeway: Causeway, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, _TRAIN)
    begin = [*command, "run", "--local", "--gpus", "0", "--name", "job", "--env", "HANGS_AT=13"]
    process = subprocess.Popen(
        [*begin, "--", SYSTEM_PYTHON, "train.py"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line == "hangs\n":
            break
    assert causeway("resume", "--local", "job-1").code == 1
    process.kill()
    process.communicate(timeout=60)
    # Its workers are left behind, and are a run that goes on.
    assert causeway("resume", "--local", "job-1").code == 1
    (run,) = Path(environment["HOME"], ".local/share/causeway/runs").iterdir()
    runtime = str(run / "runtime.py")
    left = [each for each in psutil.process_iter(["cmdline"]) if runtime in (each.info["cmdline"] or ())]
    for each in left:
        for inner in [*each.children(recursive=True), each]:
            inner.kill()
    psutil.wait_procs(left, timeout=60)
    done = causeway("resume", "--local", "job-1")
    assert done.code == 0, done.err
    assert "resumed at 10" in done.out


def test_a_run_whose_time_is_up_goes_on_with_more(causeway: Causeway, folder: Path) -> None:
    program(
        folder,
        """
        import causeway, os, time
        while not os.environ.get("CAUSEWAY_RESUME"):
            if causeway.should_stop():
                with causeway.checkpoint(3) as folder:
                    (folder / "model").write_text("x")
                break
            time.sleep(0.05)
        """,
    )
    arguments = ("--local", "--gpus", "0", "--name", "short", "--time", "1s")
    done = causeway("run", *arguments, "--json", "--", "python3", "train.py")
    assert (done.code, done.json["state"]) == (1, "timed-out"), done.err
    assert causeway("resume", "--local", "short-1", "--time", "8").code == 2
    done = causeway("resume", "--local", "short-1", "--time", "1h", "--json")
    assert (done.code, done.json["state"]) == (0, "done"), done.err
    assert causeway("show", "--local", "short-1", "--json").json["job"]["time"] == "1h"


def test_what_was_written_in_place_counts_once_it_has_rested_and_its_metric_keeps_it(
    causeway: Causeway, folder: Path
) -> None:
    """A program that ends by itself has written all that it wanted to."""
    program(
        folder,
        """
        import causeway, os, pathlib
        folder = pathlib.Path(os.environ["CAUSEWAY_CHECKPOINTS"])
        print("resumes", os.environ.get("CAUSEWAY_RESUME", "nothing"))
        (folder / "model-1").mkdir(exist_ok=True)
        (folder / "model-1/weights").write_text("one")
        (folder / "half-2.tmp").write_text("half")
        (folder / "notes.txt").write_text("no checkpoint")
        """,
    )
    done = causeway("run", "--local", "--json", "--", "python3", "train.py")
    assert done.code == 0, done.err
    again = causeway("resume", "--local", "--json", done.json["run"])
    assert f"resumes {done.json['folder']}/checkpoints/worker-0/model-1" in again.err.splitlines()


_KNOWS_A_FOLDER = """
    import os, pathlib, sys, time
    folder = pathlib.Path("out/ckpt")
    folder.mkdir(parents=True, exist_ok=True)
    print("finds", *sorted(path.name for path in folder.iterdir() if path.name[0] != "."))
    for step in range(1, 4):
        (folder / f"step-{step}.tmp").write_text(str(step))
        time.sleep(0.02)
        os.replace(folder / f"step-{step}.tmp", folder / f"step-{step}")
    sys.exit(3)
"""


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ("path: out/ckpt", "step-3"),
        ("path: ./out/ckpt/, sync: 1h", "step-3"),
        ("path: out/ckpt, sync: false", ""),
    ],
)
def test_a_program_that_knows_a_folder_alone_finds_its_checkpoints_there(
    causeway: Causeway, folder: Path, fields: str, kept: str
) -> None:
    program(folder, _KNOWS_A_FOLDER)
    (folder / "out/ckpt").mkdir(parents=True)
    (folder / "out/ckpt/pretrained").write_text("shipped")
    (folder / "job.yaml").write_text(f"run: python3 train.py\ngpus: 0\ncheckpoints: {{{fields}, keep: 1}}\n")
    first = causeway("run", "--local", "--json", "job.yaml")
    assert first.json["state"] == "failed", first.err
    again = causeway("resume", "--local", "--json", first.json["run"])
    assert " ".join(filter(None, ["finds pretrained", kept])) in again.err.splitlines()
    listed = json.loads(causeway("checkpoints", "--local", "--json", first.json["run"]).out)
    assert {each["name"] for each in listed} == ({kept} if kept else set())


@pytest.mark.parametrize("fields", ["path: /ckpt", "path: out, sharded: true"])
def test_a_folder_that_workers_of_one_machine_can_not_have_is_refused_with_its_line(
    causeway: Causeway, folder: Path, fields: str
) -> None:
    (folder / "job.yaml").write_text(f"run: 'true'\ngpus: 0\nnodes: 2\ncheckpoints:\n  {{{fields}}}\n")
    refused = causeway("run", "--local", "job.yaml")
    assert (refused.code, "job.yaml:5: checkpoints.path: " in refused.err) == (2, True), refused.err


_SHARDED = """
    import os, pathlib, sys, time
    mine = pathlib.Path(os.environ["CAUSEWAY_CHECKPOINTS"])
    rank = os.environ["CAUSEWAY_RANK"]
    resume = os.environ.get("CAUSEWAY_RESUME")
    print("finds", *sorted(path.name for path in pathlib.Path(resume).iterdir()) if resume else ["nothing"])
    if resume:
        sys.exit(0)
    for step in ("step-1", "step-2"):
        if step == "step-2" and rank == "1":
            while not (mine.parent / "worker-0/step-1").exists():
                time.sleep(0.02)
            sys.exit(3)
        (mine / (step + ".tmp")).mkdir()
        (mine / (step + ".tmp") / ("part-" + rank)).write_text(step)
        time.sleep(0.02)  # or kernels give the rename the time of the write
        os.replace(mine / (step + ".tmp"), mine / step)
"""


def test_of_a_sharded_checkpoint_all_parts_are_taken_or_none(causeway: Causeway, folder: Path) -> None:
    program(folder, _SHARDED)
    (folder / "job.yaml").write_text(
        "run: python3 train.py\nnodes: 2\ngpus: 0\nlauncher: none\ncheckpoints: {sharded: true}\n"
    )
    first = causeway("run", "--local", "--json", "job.yaml")
    assert first.json["state"] == "failed"
    kept = Path(first.json["folder"], "kept/manifests")
    again = causeway("resume", "--local", "--json", first.json["run"])
    assert again.err.count("finds part-0 part-1") == 2, (again.err, [*kept.rglob("*")])
    assert again.err.count("resumes from step-1") == 2


def test_checkpoints_are_listed_and_one_is_brought(causeway: Causeway, folder: Path) -> None:
    program(
        folder,
        """
        import causeway, pathlib
        for step in (10, 20, 30, 40):
            causeway.report(step, loss=1.0 if step != 10 else 0.1)
            with causeway.checkpoint(step) as where:
                (where / "state").write_text(f"weights of {step}")
            import time; time.sleep(2.5)
        """,
    )
    (folder / "job.yaml").write_text(
        "name: saves\nrun: python3 train.py\ngpus: 0\ncheckpoints: {keep: 2, metric: loss}\n"
    )
    name = causeway("run", "--local", "--json", "job.yaml").json["run"]
    listed: list[dict[str, Any]] = json.loads(causeway("checkpoints", "--local", "--json", name).out)
    assert [(each["name"], each["step"], each["state"]) for each in listed] == [
        ("step-40", 40, "newest"), ("step-30", 30, "kept"), ("step-10", 10, "best"),
    ]  # fmt: skip
    assert {each["bytes"] for each in listed} == {len("weights of 10")}
    assert all(each["site"] for each in listed)
    assert "step-40" in causeway("checkpoints", "--local", name).out
    brought = causeway("get", "--local", name, "--checkpoint", "step-10", "--to", "here")
    assert brought.code == 0, brought.err
    assert (folder / "here/step-10/state").read_text() == "weights of 10"
    refused = causeway("get", "--local", name, "--checkpoint", "step-20")
    assert (refused.code, "step-40, step-30, step-10" in refused.err) == (2, True)


def test_a_checkpoint_of_which_a_part_is_missing_is_not_whole() -> None:
    def part(worker: str, step: int) -> Part:
        return Part(worker, f"step-{step}", 1, (File(f"step-{step}/{worker}", 3, "x", step),), sequence=step)

    policy = Policy(("worker-0", "worker-1"))
    found = rows([part("worker-0", 1), part("worker-1", 1), part("worker-1", 2)], policy)
    assert [(each.name, each.state, each.size) for each in found] == [
        ("step-2", "1 of 2 parts", 3), ("step-1", "newest", 6),
    ]  # fmt: skip
