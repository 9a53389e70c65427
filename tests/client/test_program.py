"""``import causeway`` in a program, beside the runtime as in a pod, and how such a program is stopped."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from client.process import SYSTEM_PYTHON, need_torch

import causeway
from causeway import program, runtime, sshd
from causeway.shipped import ship

_HOSTS = json.dumps({"worker": ["127.0.0.1:1"]})
_TORCH = {"OMP_NUM_THREADS": "1", "PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}


@pytest.fixture(scope="module")
def torch() -> None:
    need_torch()


@dataclass
class Worker:
    """A worker in a folder, as a pod has it."""

    folder: Path

    def start(self, script: str, text: str = "", **env: str) -> subprocess.Popen[str]:
        ship(self.folder)
        for name in ("code", "checkpoints"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "code/train.py").write_text(textwrap.dedent(text))
        own = {
            "PATH": "/usr/bin:/bin",
            "CAUSEWAY_STATUS": str(self.folder / "status"),
            "CAUSEWAY_CODE": str(self.folder / "code"),
            "CAUSEWAY_CHECKPOINTS": str(self.folder / "checkpoints"),
            "CAUSEWAY_METRICS": str(self.folder / "metrics.jsonl"),
            "CAUSEWAY_HOSTS": _HOSTS,
            **_TORCH,
            **env,
        }
        command = [sys.executable, str(self.folder / "runtime.py"), script]
        return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def stopped_at(self, line: str, process: subprocess.Popen[str]) -> tuple[str, Mapping[str, Any]]:
        """Asks it to stop when it has written the line; what else it wrote, and its end."""
        assert process.stdout is not None
        for each in process.stdout:
            if each == line + "\n":
                break
        process.send_signal(signal.SIGTERM)
        return self.end(process)

    def end(self, process: subprocess.Popen[str]) -> tuple[str, Mapping[str, Any]]:
        out, _ = process.communicate(timeout=120)
        return out, json.loads((self.folder / "status").read_text())

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


@pytest.mark.parametrize("module", [causeway, program, runtime, sshd])
def test_what_runs_in_images_needs_an_old_python_and_nothing_else(module: ModuleType) -> None:
    """Images have Pythons of their own."""
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported <= {*sys.stdlib_module_names, "causeway"}


def test_a_program_imports_it_in_any_python_and_the_client_is_still_there(worker: Worker) -> None:
    lines = f"{SYSTEM_PYTHON} -c 'import causeway; print(causeway.should_stop())'\n"
    client = Path(causeway.__file__ or "").parents[1]
    lines += f"PYTHONPATH=$PYTHONPATH:{client} {sys.executable} -m causeway --version"
    out, status = worker.end(worker.start(lines))
    assert status["exit"] == 0, out
    assert out.splitlines()[0] == "False"
    assert "version" in out


def test_a_checkpoint_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_CHECKPOINTS", str(tmp_path))
    monkeypatch.setenv("CAUSEWAY_KEEP", "2")

    def names() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("."))

    with program.checkpoint(9) as folder:
        (folder / "model.pt").write_text("9")
        assert names() == ["step-9.tmp"]
    with pytest.raises(FileNotFoundError), program.checkpoint(10) as folder:
        (folder / "missing/model.pt").write_text("10")
    assert names() == ["step-9"]
    (tmp_path / "mine-1").mkdir()
    (tmp_path / ".sending").write_text("step-9")
    for step in (10, 11, 100):
        with program.checkpoint(step):
            pass
    assert names() == ["mine-1", "step-100", "step-11", "step-9"], "it is being copied"
    monkeypatch.setenv("CAUSEWAY_SHARDED", "1")
    (tmp_path / ".sending").unlink()
    for sent, left in (("step-11", ["step-100", "step-101"]), ("step-101", ["step-101", "step-102"])):
        (tmp_path / ".sent").write_text(sent)
        step = int(left[-1].partition("-")[2])
        with program.checkpoint(step):
            pass
        assert names() == ["mine-1", *left], "parts that were not copied stay"
    with program.checkpoint(103), program.checkpoint(104):
        pass
    assert "step-102" in names()
    monkeypatch.delenv("CAUSEWAY_SHARDED")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(RuntimeError, match="rank 0"), program.checkpoint(12):
        pass


def test_only_the_first_rank_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.report(1, loss=0.5)  # of no run
    monkeypatch.setenv("CAUSEWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    program.report(1, loss=0.5, accuracy=1)
    monkeypatch.setenv("RANK", "1")
    program.report(2, loss=0.25)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["metrics"] == {"loss": 0.5, "accuracy": 1.0}


def test_what_is_resumed_from_is_in_the_environment_and_said(worker: Worker) -> None:
    (worker.folder / "checkpoints").mkdir()
    said = {"name": "step-7", "said": ["step-7"]}
    (worker.folder / "checkpoints/.resumed.json").write_text(json.dumps(said))
    out, _ = worker.end(worker.start("echo $CAUSEWAY_RESUME"))
    assert out.splitlines() == ["causeway: step-7", f"{worker.folder}/checkpoints/step-7"]


_LOADER = """
    import causeway, os, time, torch
    import torch.distributed as dist

    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 10**9
        def __getitem__(self, index):
            time.sleep(0.02)
            return torch.tensor([float(index)])

    dist.init_process_group("gloo")
    left = 20
    for step, rows in enumerate(torch.utils.data.DataLoader(Rows(), num_workers=1)):
        if step == 1 and dist.get_rank() == 0:
            print("training", flush=True)
        # All ranks get one answer, or the last all-reduce would wait for ever.
        if left < 20 or causeway.should_stop():
            left -= 1
        if not left:
            break
    with causeway.checkpoint(step) as folder:
        torch.save(step, folder / f"rank-{dist.get_rank()}.pt")
    print("saved", flush=True)
"""


@pytest.mark.usefixtures("torch")
def test_ranks_agree_to_stop_and_save_while_their_data_loaders_live(worker: Worker) -> None:
    """DataLoaders fail when their workers get a signal; torchrun leaves its ranks 30 s when it gets one."""
    script = f"{SYSTEM_PYTHON} -m torch.distributed.run --standalone --nproc_per_node=2 train.py; echo more"
    process = worker.start(script, _LOADER, CAUSEWAY_SHARDED="1", CAUSEWAY_LAUNCHER="torchrun")
    out, status = worker.stopped_at("[rank0]: training", process)
    assert sorted(line for line in out.splitlines() if "saved" in line) == [
        "[rank0]: saved",
        "[rank1]: saved",
    ]
    assert "more" not in out, "the script does not go on"
    assert status["exit"] == runtime.STOPPED
    (name,) = worker.checkpoints
    files = sorted(path.name for path in (worker.folder / "checkpoints" / name).iterdir())
    assert files == ["rank-0.pt", "rank-1.pt"]


_SAVES = """
    import signal, sys, time
    def save(*_):
        time.sleep(1)
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("training", flush=True)
    time.sleep(600)
"""


def test_a_shell_waits_for_what_it_runs_and_what_saved_and_left_is_not_done(worker: Worker) -> None:
    """A shell dies of SIGTERM at once, and what it ran was killed with what was left of the worker."""
    out, status = worker.stopped_at("training", worker.start(f"{SYSTEM_PYTHON} train.py\necho more", _SAVES))
    assert (out, status["exit"]) == ("saved\n", runtime.STOPPED)


_RANKS = """
    import os, subprocess, sys
    for number in range(2000):
        # As print does where output is not buffered: a write for the text and one for the end of the line.
        for text in (f"line {number} ", "is whole", "\\n"):
            os.write(1, text.encode())
    subprocess.run(["/bin/sh", "-c", "echo from a child >/dev/stderr"], check=True)
    print("no end of line", end="")
"""


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("target", ["", " > log.txt"])
def test_ranks_do_not_write_into_each_others_lines(worker: Worker, target: str) -> None:
    script = f"{SYSTEM_PYTHON} -m torch.distributed.run --standalone --nproc_per_node=3 train.py{target}"
    out, status = worker.end(worker.start(script, _RANKS, CAUSEWAY_LAUNCHER="torchrun"))
    assert status["exit"] == 0, out
    lines = [*(f"line {number} is whole" for number in range(2000)), "from a child", "no end of line"]
    if target:
        # What the command sends elsewhere goes there.
        assert sorted(line for line in out.splitlines() if "child" in line) == [
            f"[rank{rank}]: from a child" for rank in range(3)
        ]
        assert "whole" not in out
        assert (worker.folder / "code/log.txt").read_text().count("is whole") == 6000
        return
    for rank in range(3):
        begin = f"[rank{rank}]: "
        assert [line.removeprefix(begin) for line in out.splitlines() if line.startswith(begin)] == lines


def test_what_stalls_shows_its_stacks_and_counts_as_a_failure(worker: Worker) -> None:
    text = """
        import causeway, signal, time
        causeway.report(1, loss=0.5)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def waits_for_nobody():
            while True:
                print("still here", flush=True)
                time.sleep(0.5)
        waits_for_nobody()
    """
    out, status = worker.end(worker.start(f"{SYSTEM_PYTHON} train.py\n", text, CAUSEWAY_STALL="2"))
    assert "in waits_for_nobody" in out
    assert status["exit"] == runtime.STALLED
    assert status["reason"].startswith("stalled: ")


@pytest.mark.parametrize(("text", "code"), [("echo x; sleep 0.1", 0), ("sleep 2", runtime.STALLED)])
def test_output_counts_for_a_program_that_does_not_report(worker: Worker, text: str, code: int) -> None:
    script = f"for each in $(seq 50); do {text}; done"
    assert worker.end(worker.start(script, CAUSEWAY_STALL="4"))[1]["exit"] == code
