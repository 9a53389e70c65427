"""``causeway run --local`` as a person runs it, with real torchrun where the machine has torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from client.process import SYSTEM_PYTHON, Causeway, need_torch, program
from client.wheels import wheel


@pytest.fixture(scope="module")
def torch() -> None:
    """Looked for by the one worker that runs these tests, and not by each that collects them."""
    need_torch()


def test_a_command_runs_in_a_copy_of_the_code(causeway: Causeway, folder: Path) -> None:
    program(
        folder,
        "import os, pathlib; pathlib.Path(os.environ['CAUSEWAY_RESULTS'], 'x').write_text(os.getcwd())",
    )
    done = causeway("run", "--local", "--json", "--", "python3", "train.py")
    assert done.code == 0, done.err
    run = Path(done.json["folder"])
    assert (done.json["state"], done.json["run"]) == ("done", "project-1")
    assert (run / "results/x").read_text() == str(run / "code")
    assert not (folder / "__pycache__").exists()
    assert causeway("run", "--local", "--json", "--", "true").json["run"] == "project-2"


def test_a_file_options_and_parameters(causeway: Causeway, folder: Path) -> None:
    (folder / "job.yaml").write_text("name: mnist\nrun: echo lr={lr} $SEED\nenv: {SEED: 1}\n")
    done = causeway("run", "--local", "job.yaml", "--set", "lr=1e-3", "--env", "SEED=2")
    assert done.code == 0, done.err
    assert "lr=1e-3 2" in done.out.splitlines()
    (run,) = Path(folder.parent, "home/.local/share/causeway/runs").iterdir()
    record = json.loads((run / "run.json").read_text())
    assert (record["run"], record["job"]["env"]) == ("mnist-1", {"SEED": "2"})
    assert (run / "workers/worker-0.log").read_text() == "lr=1e-3 2\n"


def test_wrong_input_is_exit_code_2_and_starts_nothing(causeway: Causeway, folder: Path, home: Path) -> None:
    (folder / "job.yaml").write_text("run: x\nnode: 2\ngpus: many\n")
    (folder / ".env").write_text("x")
    done = causeway("run", "--local", "job.yaml")
    assert done.code == 2
    assert "job.yaml:2: node:" in done.err
    assert "job.yaml:3: gpus:" in done.err
    assert "Traceback" not in done.err
    assert causeway("run", "--local", "--", "true").code == 2  # .env
    assert causeway("run", "--local", "--allow-secrets", "--", "true").code == 0
    assert causeway("run", "--local", "missing.yaml").code == 2
    assert causeway("run", "--local").code == 2
    assert causeway("run", "--set", "x", "--local", "--", "true").code == 2


def test_the_first_worker_that_failed_is_named_and_the_others_stop(causeway: Causeway, folder: Path) -> None:
    program(
        folder,
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            print("about to fail")
            raise ValueError("diverged")
        time.sleep(600)
        """,
    )
    words = ("--nodes", "3", "--launcher", "none", "--", "python3", "train.py")
    done = causeway("run", "--local", "--json", *words)
    assert done.code == 1
    first = done.json["first_failure"]
    assert (done.json["state"], first["role"], first["rank"], first["exit"]) == ("failed", "worker", 1, 1)
    assert first["lines"][-1] == "ValueError: diverged"
    assert "worker-1" in done.err


def test_roles_get_their_cluster_and_end_with_the_chief(causeway: Causeway, folder: Path) -> None:
    program(
        folder,
        """
        import json, os, time
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        done = os.path.join(os.environ["CAUSEWAY_RESULTS"], task["type"] + str(task["index"]))
        open(done, "w").close()
        while task["type"] == "ps" or len(os.listdir(os.path.dirname(done))) < 4:
            time.sleep(0.05)
        """,
    )
    (folder / "job.yaml").write_text(
        "run: python3 train.py\nroles: {chief: 1, worker: 2, ps: {count: 1, gpus: {count: 0}}}\n"
    )
    done = causeway("run", "--local", "--json", "job.yaml")
    assert done.code == 0, done.err
    results = Path(done.json["folder"], "results")
    assert sorted(path.name for path in results.iterdir()) == ["chief0", "ps0", "worker0", "worker1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_may_save(
    folder: Path, environment: Mapping[str, str], command: list[str], number: signal.Signals
) -> None:
    program(
        folder,
        """
        import os, pathlib, signal, sys, time
        def save(*_):
            pathlib.Path(os.environ["CAUSEWAY_CHECKPOINTS"], "step-1").write_text("saved")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready")
        time.sleep(600)
        """,
    )
    process = subprocess.Popen(
        [*command, "run", "--local", "--", "python3", "train.py"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line == "ready\n":
            break
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (run,) = Path(environment["HOME"], ".local/share/causeway/runs").iterdir()
    assert (run / "checkpoints/worker-0/step-1").read_text() == "saved"


def test_a_program_that_will_not_stop_is_killed_after_its_grace(causeway: Causeway, folder: Path) -> None:
    program(folder, "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    (folder / "job.yaml").write_text("run: python3 train.py\ntime: 1s\ngrace: 1s\n")
    done = causeway("run", "--local", "--json", "job.yaml")
    assert (done.code, done.json["state"]) == (1, "timed-out")


def test_output_that_nobody_reads_and_lines_without_an_end(causeway: Causeway, folder: Path) -> None:
    program(folder, "import sys; sys.stdout.write('x' * 200_000 + '\\n' + 'last')")
    done = causeway("run", "--local", "--", "python3", "train.py")
    assert done.code == 0
    assert "x" * 200_000 in done.out
    assert "last" in done.out.splitlines()


_DDP = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
if "fail" in sys.argv and rank == 3:
    raise ValueError("diverged")
model(torch.full((1, 2), float(rank))).sum().backward()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
print(f"rank {rank} of {world}: {total.item()} {next(model.parameters()).grad.tolist()}")
"""


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("shape", [("--gpus", "4"), ("--gpus", "2", "--nodes", "2")])
def test_torchrun_starts_a_process_for_each_gpu_of_each_worker(
    causeway: Causeway, folder: Path, shape: tuple[str, ...]
) -> None:
    program(folder, _DDP)
    done = causeway("run", "--local", *shape, "--", SYSTEM_PYTHON, "train.py")
    assert done.code == 0, done.out + done.err
    output = sorted(re.findall(r"\[rank\d\]: rank .*", done.out))
    assert output == [f"[rank{rank}]: rank {rank} of 4: 6.0 [[1.5, 1.5]]" for rank in range(4)]


@pytest.mark.usefixtures("torch")
def test_of_a_failed_gang_the_first_rank_is_named_with_its_own_words(
    causeway: Causeway, folder: Path
) -> None:
    program(folder, _DDP)
    words = ("--gpus", "2", "--nodes", "2", "--", SYSTEM_PYTHON, "train.py", "fail")
    done = causeway("run", "--local", "--json", *words)
    assert done.code == 1
    first = done.json["first_failure"]
    assert (first["rank"], first["process"]) == (1, 3), done.json
    assert first["lines"][-1] == "ValueError: diverged"


@pytest.mark.skipif(
    shutil.which("uv") is None and not Path(sys.executable).with_name("uv").exists(), reason="no uv"
)
def test_packages_are_installed_once(causeway: Causeway, folder: Path, home: Path) -> None:
    """What is installed over what an image has: ``test_python_packages.py``."""
    (folder / "requirements.txt").write_text(f"hello @ {wheel(folder, 'hello', '1.0').as_uri()}\n")
    run = ("run", "--local", "--python", "requirements.txt", "--", "python3", "-c")
    for _ in range(2):
        done = causeway(*run, "import hello; print(hello.version)")
        assert done.code == 0, done.out + done.err
        assert "1.0" in done.out.splitlines()
    (folder / "requirements.txt").write_text("no-such-package-anywhere==0.0.1\n")
    done = causeway(*run, "pass")
    assert (done.code, "no-such-package-anywhere" in done.err) == (1, True)
    assert len([*(home / ".cache/causeway/python").glob("*/installed")]) == 1
