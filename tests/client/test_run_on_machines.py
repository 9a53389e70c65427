"""``causeway run --on`` on two machines (``ssh_hosts``): real sshd, ``systemd --user`` and torchrun.

What a run does anywhere is in ``test_run_local.py``, what is decided from the machines' answers in
``test_machines_rules.py`` and ``test_machines_queue.py``."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from client.jupyter import asked, notebook, python_with_jupyter
from client.process import SYSTEM_PYTHON, Finished, Laptop, need_torch, program
from client.ssh_hosts import ADDRESSES, GPU, RUNS, USERS, Lab, Researcher, labs
from client.terminals import Terminal
from client.wheels import wheel
from waiting import until

_HOLDS = "import os, time; print('has', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)"
_TRAIN = ("--", "python3", "train.py")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with labs(tmp_path_factory.mktemp("lab"), "titan-01", "titan-02") as lab:
        yield lab


@pytest.fixture(autouse=True)
def nothing_left(lab: Lab) -> Iterator[None]:
    """What a test leaves running would be in the way of the next one."""
    yield
    for host in lab.hosts.values():
        host.gpus(2)
        host.run("pkill -KILL -u ada,bob -f 'runtime.py|kit worker|kits/.* reserve'")


@pytest.fixture
def ada(lab: Lab, folder: Path, environment: Mapping[str, str]) -> Researcher:
    return lab.laptop("ada", folder, environment)


@pytest.fixture
def bob(lab: Lab, folder: Path, environment: Mapping[str, str]) -> Researcher:
    return lab.laptop("bob", folder, environment)


@pytest.fixture(scope="module")
def torch() -> None:
    need_torch()


def status(laptop: Laptop, run: str) -> dict[str, Any]:
    return laptop("why", run, "--json").json


def started(done: Finished) -> str:
    assert done.code == 0, done.err
    run: str = done.json["run"]
    return run


def said(laptop: Researcher, run: str, word: str, count: int = 1) -> str:
    """The output of a run, once it has the word so often."""
    output: str = until(lambda: laptop.output(run), lambda text: text.count(word) >= count)
    return output


def reached(laptop: Laptop, run: str, state: str) -> dict[str, Any]:
    """The status of a run, once it is in a state."""
    found: dict[str, Any] = until(lambda: status(laptop, run), lambda now: now["state"] == state)
    return found


def ended(laptop: Laptop, run: str) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: status(laptop, run), lambda now: now["state"] != "running")
    return found


def waits(laptop: Laptop, run: str, place: int, word: str = "") -> dict[str, Any]:
    """The status of a run, once it waits at a place of the queue, for a reason with the word."""
    return dict(until(
        lambda: status(laptop, run),
        lambda now: now["state"] == "waiting" and word in now["reason"]
        and place in {worker["status"].get("place") for worker in now["workers"]},
    ))  # fmt: skip


def refused(done: Finished, *words: str, code: int = 1) -> None:
    """An error of this exit code, with these facts."""
    assert (done.code, [word for word in words if word not in done.err]) == (code, []), done.err


def kill_worker(lab: Lab, user: str) -> None:
    """The process of the client beside a program on ``titan-01``."""
    assert lab["titan-01"].run(f"pkill -KILL -u {user} -f 'kit worker'").returncode == 0


def gpus(laptop: Laptop, host: str) -> list[tuple[str, str | None]]:
    """The state of each GPU of a machine, and whose run has it."""
    return [(gpu["state"], gpu["run"]) for gpu in laptop("gpus", "--on", host, "--json").json["gpus"]]


def test_one_machine_from_start_to_results(lab: Lab, ada: Researcher, folder: Path) -> None:
    program(
        folder,
        """
        import os, pathlib, sys
        pathlib.Path(os.environ["CAUSEWAY_RESULTS"], "plots").mkdir()
        pathlib.Path(os.environ["CAUSEWAY_RESULTS"], "plots/loss").write_text("0.5")
        print("on", os.uname().nodename, "gpus", os.environ["CUDA_VISIBLE_DEVICES"], sys.argv[1:])
        print("no end", end="")
        """,
    )
    (folder / "job.yaml").write_text(
        "name: mnist\nrun: python3 train.py {lr}\ngpus: 2\nmemory: 1 GiB\nlauncher: none\non: titan-01\n"
    )
    # What a login shell says is not an answer.
    (lab["titan-01"].home("ada") / ".bashrc").write_text("echo hello; printf welcome")
    done = ada("run", "job.yaml", "--set", "lr=1e-3")
    assert done.code == 0, done.out + done.err
    assert {"on titan-01 gpus 0,1 ['1e-3']", "no end"} <= {*done.out.splitlines()}
    (listed,) = json.loads(ada("ps", "--on", "titan-01", "--json").out)
    assert listed["state"] == "done"
    lines = [json.loads(line) for line in ada("logs", "mnist-on-1", "--json").out.splitlines()]
    assert lines[1]["line"] == "no end"
    assert ada("logs", "-f", "mnist-on-1", "--worker", "worker-9").code == 2
    assert "no end" in ada("logs", "-f", "mnist-on-1", "--worker", "worker-0").out.splitlines()
    assert ada("get", "mnist-on-1").code == 0
    assert (folder / "mnist-on-1/plots/loss").read_text() == "0.5"
    home = lab["titan-01"].home("ada")
    assert not (home / RUNS / "mnist-on-1").stat().st_mode & 0o077
    # Code that is there is not sent again.
    for _ in range(2):
        assert ada("run", "job.yaml", "--set", "lr=1e-3", "--on", "titan-01").code == 0
    archives = [(home / RUNS / f"mnist-on-{number}/code.tar.gz").stat() for number in (2, 3)]
    assert archives[0].st_ino == archives[1].st_ino
    # Another laptop of hers knows it by its machine.
    other = lab.laptop("ada", folder, ada.environment, name="other")
    assert "mnist-on-1" not in other("ps").out
    assert "mnist-on-1" in other("ps", "--on", "titan-01").out
    assert "gpus 0,1" in other("logs", "mnist-on-1", "--on", "titan-01").out


_SLOW = """
    import os, sys, time
    import causeway
    begin = int(os.environ.get("CAUSEWAY_RESUME", "-0").rpartition("-")[2])
    print("begins at", begin, "as", os.environ["CAUSEWAY_RANK"], flush=True)
    for step in range(begin + 1, int(sys.argv[1]) + 1):
        stop = causeway.should_stop()
        if os.environ["CAUSEWAY_RANK"] == "0":
            with causeway.checkpoint(step) as folder:
                (folder / "state").write_text(str(step))
        print("step", step, flush=True)
        if stop:
            sys.exit()
        time.sleep(0.2)
    """


def test_it_outlives_the_laptop_is_stopped_and_goes_on(ada: Researcher, folder: Path) -> None:
    program(folder, _SLOW)
    laptop = ada.begin(
        "run", "--on", "titan-01", "--name", "slow", *_TRAIN, "100000",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    for line in laptop.stdout or ():
        if line == "step 3\n":
            break
    os.killpg(laptop.pid, signal.SIGINT)
    rest, _ = laptop.communicate(timeout=60)
    assert (laptop.returncode, "causeway logs -f slow-on-1" in rest) == (130, True), rest
    assert status(ada, "slow-on-1")["state"] == "running"
    refused(ada("resume", "slow-on-1"))
    assert ada("stop", "slow-on-1").code == 0
    stopped = ended(ada, "slow-on-1")
    assert (stopped["state"], stopped["stopped_by"], stopped["kept"]) == (
        "stopped", stopped["started_by"], True,
    )  # fmt: skip
    last = int(re.findall(r"step (\d+)", ada("logs", "slow-on-1").out)[-1])
    # The code is what was submitted.
    program(folder, "raise SystemExit('edited')")
    assert ada("resume", "slow-on-1", "--time", "2h").code == 0
    assert ada("show", "slow-on-1", "--json").json["job"]["time"] == "2h"
    said(ada, "slow-on-1", f"begins at {last}")
    assert f"begins at {last}" not in ada("logs", "slow-on-1", "--attempt", "0").out
    ada("stop", "slow-on-1")


_DDP = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    where = f"on {os.uname().nodename}: {total.item()} at {os.environ['MASTER_ADDR']}"
    print(f"rank {rank} of {world} {where}", flush=True)
    dist.barrier()
    if rank == 3:
        raise ValueError("diverged")
    dist.barrier()  # fails for the others: torchrun ends at once
    """
# Why: tests/client/conftest.py. One thread: the processors are few.
_TORCH = ("--env", "PET_REDIRECTS=9:1", "--env", "PET_TEE=9:1", "--env", "OMP_NUM_THREADS=1")
_BOTH = ("run", "--on", "titan-01,titan-02", "--gpus", "2", "--nodes", "2", "--json", *_TORCH, "--")


@pytest.mark.usefixtures("torch")
def test_two_machines_meet_on_the_first_one_and_a_worker_that_fails_ends_the_others(
    ada: Researcher, folder: Path
) -> None:
    program(folder, _DDP)
    done = ada(*_BOTH, SYSTEM_PYTHON, "train.py")
    assert done.code == 1, done.err
    ranks = sorted(re.findall(r"rank \d of 4 on \S+ \S+ at [\d.]+", done.err))
    hosts = ["titan-01", "titan-01", "titan-02", "titan-02"]
    assert ranks == [f"rank {rank} of 4 on {host}: 6.0 at {ADDRESSES[0]}" for rank, host in enumerate(hosts)]
    first = done.json["first_failure"]
    assert (done.json["state"], first["host"], first["rank"], first["process"]) == (
        "failed", "titan-02", 1, 3,
    )  # fmt: skip
    assert first["lines"][-1] == "ValueError: diverged"
    assert "running" not in {worker["state"] for worker in done.json["workers"]}
    assert "worker-1" in ada("why", done.json["name"]).out


def test_leases_keep_people_apart(lab: Lab, ada: Researcher, bob: Researcher, folder: Path) -> None:
    program(folder, _HOLDS)
    run = started(ada("run", "--on", "titan-01", "--name", "hers", "--json", "-d", *_TRAIN))
    said(ada, run, "has 0")
    refused(bob("run", "--on", "titan-01", "--no-wait", "--gpus", "2", *_TRAIN), f"by ada ({run}, ")
    # The other one is free, until somebody uses it without asking.
    lab["titan-01"].gpus(2, apps=[(1, lab["titan-01"].process.pid)])  # type: ignore[union-attr]
    refused(bob("run", "--on", "titan-01", "--no-wait", *_TRAIN), "GPU 1 ")
    lab["titan-01"].gpus(2)
    other = started(bob("run", "--on", "titan-01", "--json", "-d", *_TRAIN))
    said(bob, other, "has 1")
    # It ends with its process, however that does.
    kill_worker(lab, "ada")
    lost = ended(ada, run)
    assert (lost["state"], "killed" in lost["reason"]) == ("failed", True)
    third = started(bob("run", "--on", "titan-01", "--json", "-d", *_TRAIN))
    said(bob, third, "has 0")
    assert bob("why", run, "--on", "titan-01").code == 1  # hers is not his
    bob("stop", other, third)
    for name in (other, third):
        reached(bob, name, "stopped")


def test_who_waits_has_a_place_in_the_queue_and_goes_on_by_itself(
    lab: Lab, ada: Researcher, bob: Researcher, folder: Path
) -> None:
    program(folder, _HOLDS)
    words = ("--on", "titan-01", "--gpus", "2", "--launcher", "none", "--json", "-d")
    run = started(ada("run", "--name", "hers", *words, *_TRAIN))
    said(ada, run, "has 0,1")
    first = started(bob("run", "--name", "his", *words, *_TRAIN))
    second = started(ada("run", "--name", "more", *words, *_TRAIN))
    waits(ada, second, 2, f"bob ({first}, ")
    waits(bob, first, 1, f"ada ({run}, ")
    # One of a higher priority goes before both, and one that does not wait is told who does.
    (folder / "job.yaml").write_text("run: python3 train.py\npriority: high\n")
    urgent = started(ada("run", "job.yaml", "--name", "urgent", *words))
    waits(ada, second, 3)
    refused(ada("run", "--on", "titan-01", "--no-wait", *_TRAIN), f"ada ({run}, ")
    listed = bob("gpus", "--on", "titan-01", "--json").json
    assert [(gpu["user"], gpu["run"]) for gpu in listed["gpus"]] == [("ada", run)] * 2
    assert all(gpu["until"] > time.time() + 3600 for gpu in listed["gpus"])
    assert [ticket["run"] for ticket in listed["queue"]] == [urgent, first, second]
    # One leaves the queue, and the process of another one dies.
    assert ada("stop", urgent).code == 0
    reached(ada, urgent, "stopped")
    kill_worker(lab, "bob")
    waits(ada, second, 1)
    assert status(bob, first)["state"] == "failed"
    ada("stop", run)
    said(ada, second, "has 0,1")
    ada("stop", second)
    reached(ada, second, "stopped")
    # A run that was stopped goes on when it has its GPUs.
    third = started(bob("run", "--name", "third", *words, *_TRAIN))
    said(bob, third, "has 0,1")
    assert ada("resume", second).code == 0
    assert status(ada, second)["state"] == "waiting"
    bob("stop", third)
    said(ada, second, "has 0,1")
    ada("stop", second)
    reached(ada, second, "stopped")


def test_a_run_of_two_machines_waits_for_both_and_keeps_none(
    ada: Researcher, bob: Researcher, folder: Path
) -> None:
    program(folder, "import os, time; print('on', os.uname().nodename, flush=True); time.sleep(600)")
    train = ("--gpus", "2", "--launcher", "none", "--json", "-d", *_TRAIN)
    holder = started(ada("run", "--on", "titan-02", "--name", "one", *train))
    said(ada, holder, "on titan-02")
    pair = started(bob("run", "--on", "titan-01,titan-02", "--nodes", "2", "--name", "pair", *train))
    waiting = waits(bob, pair, 1, f"ada ({holder}, ")
    assert {worker["state"] for worker in waiting["workers"]} == {"waiting"}
    assert {state for state, _ in gpus(ada, "titan-01")} == {"free"}
    # The other machine is next for it all the same.
    late = started(ada("run", "--on", "titan-01", "--name", "late", *train))
    waits(ada, late, 2, f"bob ({pair}, ")
    ada("stop", holder)
    assert "on titan-01" in said(bob, pair, "on titan-0", 2)
    assert status(ada, late)["state"] == "waiting"
    # A laptop that knows nothing of it stops it while it waits.
    assert ada("stop", late).code == 0
    reached(ada, late, "stopped")
    bob("stop", pair)
    reached(bob, pair, "stopped")


def test_a_reservation_is_its_persons_until_its_end(ada: Researcher, bob: Researcher, folder: Path) -> None:
    program(folder, _HOLDS)
    train = ("--on", "titan-01", "--launcher", "none", "--json", "-d", *_TRAIN)
    reserved = ada("reserve", "titan-01", "--for", "8h", "--json")
    assert (reserved.code, reserved.json[0]["gpus"]) == (0, [0, 1]), reserved.err  # type: ignore[index]
    refused(bob("reserve", "titan-01,titan-02", "--for", "1h", "--gpus", "2"), "by ada (")
    states = [state for host in ("titan-01", "titan-02") for state, _ in gpus(bob, host)]
    assert states == ["reserved"] * 2 + ["free"] * 2, "none is kept of what failed"
    his = started(bob("run", "--name", "his", *train))
    waits(bob, his, 1, "by ada")
    hers = started(ada("run", "--name", "hers", *train))
    said(ada, hers, "has 0")
    assert gpus(ada, "titan-01") == [("leased", hers), ("reserved", None)]
    # Its end frees what no run is on.
    assert ada("reserve", "titan-01", "--end", "--json").json[0]["gpus"] == [0, 1]  # type: ignore[index]
    said(bob, his, "has 1")
    assert status(ada, hers)["state"] == "running"
    for laptop, run in ((ada, hers), (bob, his)):
        laptop("stop", run)
    until(lambda: {state for state, _ in gpus(bob, "titan-01")}, lambda states: states == {"free"})
    # It ends by itself, too.
    assert ada("reserve", "titan-01", "--for", "2s").code == 0
    until(lambda: {state for state, _ in gpus(bob, "titan-01")}, lambda states: states == {"free"})


@contextmanager
def shell(ada: Researcher, *words: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """``causeway shell`` at a terminal, until its prompt."""
    with closing(Terminal()) as terminal, ExitStack() as stack:
        process = ada.begin("shell", *words, stdin=terminal.side, stdout=terminal.side, stderr=terminal.side)
        stack.callback(process.wait)
        stack.callback(process.kill)
        terminal.shows("Ctrl-D")
        yield terminal, process


def test_a_shell_has_leased_gpus_and_the_code_and_ends_with_its_person(
    ada: Researcher, bob: Researcher, folder: Path
) -> None:
    """What is typed has no quotes where it is looked for, as the terminal also shows what is typed."""
    program(folder, "print('code is', 'here')")
    assert ada("shell", "--on", "titan-01").code == 2, "there is no terminal"
    assert "shell-on" not in ada("ps", "--on", "titan-01", "--json").out
    with shell(ada, "--on", "titan-01", "--gpus", "2") as (terminal, process):
        terminal.enter("python3 train.py; echo gpus-$CUDA_VISIBLE_DEVICES of $CAUSEWAY_RUN")
        terminal.shows("code is here")
        terminal.shows("gpus-0,1 of shell-on-1")
        assert gpus(bob, "titan-01") == [("leased", "shell-on-1")] * 2
        # One command beside it, with its own exit code; and a terminal from elsewhere.
        beside = ada("shell", "shell-on-1", "--", "sh", "-c", "echo beside $CUDA_VISIBLE_DEVICES; exit 7")
        assert (beside.code, beside.out) == (7, "beside 0,1\n"), beside.err
        terminal.enter("sh -c 'echo slee\"\"ping; exec sleep 36000'")  # one process: see test_kubelets.py
        terminal.shows("sleeping")
        terminal.type("\x03")
        time.sleep(3)  # bash, which was woken by the same signal, may not read yet
        terminal.enter("exit 3")
        assert process.wait(180) == 0
    reached(ada, "shell-on-1", "done")
    refused(ada("shell", "shell-on-1", "--", "true"), "shell-on-1 done")


def test_a_command_has_its_own_output_and_nothing_of_the_login_shell(
    lab: Lab, ada: Researcher, folder: Path
) -> None:
    (lab["titan-01"].home("ada") / ".bashrc").write_text("echo hello; printf welcome")
    program(folder, _HOLDS)
    run = started(ada("run", "--on", "titan-01", "--json", "-d", *_TRAIN))
    said(ada, run, "has")
    # Each line comes back before the next is sent; what follows is no text.
    there = (
        "read -r x; echo $x; read -r x; echo $x $CAUSEWAY_RUN; echo hm >&2; printf '\\0\\377\\n\\0'; exit 9"
    )
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with ada.begin("shell", run, "--", "sh", "-c", there, bufsize=0, **pipes) as beside:
        assert beside.stdin
        assert beside.stdout
        assert beside.stderr
        beside.stdin.write(b"one\n")
        assert beside.stdout.readline() == b"one\n"
        beside.stdin.write(b"two\n")
        assert beside.stdout.readline() == f"two {run}\n".encode()
        assert beside.stdout.read() == b"\0\xff\n\0"
        assert beside.stderr.readline() == b"hm\n"
    assert beside.returncode == 9
    # Its output may have no reader.
    piped = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m causeway shell {run} -- yes | head -1"],
        cwd=folder, env=ada.environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (piped.stdout, "Traceback" in piped.stderr) == ("y\n", False), piped.stderr
    ada("stop", run)


def test_ssh_reaches_a_run_with_its_gpus(lab: Lab, ada: Researcher, folder: Path) -> None:
    """By an entry of a configuration; files and ports over it are in ``test_sshd.py``."""
    # It is ssh: what a ~/.bashrc prints comes before a command's output.
    (lab["titan-01"].home("ada") / ".bashrc").unlink(missing_ok=True)
    program(folder, _HOLDS)
    run = started(
        ada("run", "--on", "titan-01", "--json", "-d", "--gpus", "2", "--launcher", "none", *_TRAIN)
    )
    said(ada, run, "has")
    entry = ada("ssh-config", run)
    assert (entry.code, entry.out.splitlines()[:2]) == (0, [f"Host {run}", "  User ada"]), entry.err
    (folder / "config").write_text(entry.out)
    beside = subprocess.run(
        ["/usr/bin/ssh", "-F", str(folder / "config"), "-o", "BatchMode=yes", run,
         "echo $CUDA_VISIBLE_DEVICES of $CAUSEWAY_RUN; exit 5"],
        env=ada.environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (beside.stdout, beside.returncode) == (f"0,1 of {run}\n", 5), beside.stderr
    assert ada("ssh-config", run, "--worker", "worker-7").code == 1
    ada("stop", run)


def test_a_shell_ends_with_its_run(ada: Researcher, folder: Path) -> None:
    program(folder, _HOLDS)
    run = started(ada("run", "--on", "titan-01", "--json", "-d", *_TRAIN))
    said(ada, run, "has")
    with shell(ada, run, "--worker", "worker-0") as (terminal, process):
        terminal.enter("echo in-$CAUSEWAY_RUN")
        terminal.shows(f"in-{run}")
        assert ada("stop", run).code == 0
        assert process.wait(180) == 75
    assert ada("shell", run, "--worker", "worker-7", "--", "true").code == 1


def test_a_notebook_has_leased_gpus_is_opened_again_and_ends_with_its_run(
    lab: Lab, ada: Researcher, bob: Researcher, folder: Path
) -> None:
    """What Jupyter itself does, as to end when it is idle: ``test_notebook_here.py``."""
    home = lab["titan-01"].home("ada")
    own = python_with_jupyter(home / ".local/bin")
    assert lab["titan-01"].run("chown -R ada: /home/ada/.local").returncode == 0
    try:
        with notebook(folder, ada.environment, "--on", "titan-01", "--idle", "3m") as (url, process):
            assert asked(url, "kernels", urlsplit(url).query.partition("token=")[2], b"{}")[0] == 201
            assert gpus(bob, "titan-01")[0] == ("leased", "notebook-on-1")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        now = status(ada, "notebook-on-1")
        assert (now["state"], "cull_idle_timeout=180 " in now["job"]["run"]) == ("running", True)
        with notebook(folder, ada.environment, "notebook-on-1") as (again, process):
            assert urlsplit(again).query == urlsplit(url).query
            assert ada("stop", "notebook-on-1").code == 0
            assert process.wait(240) == 0
        assert status(ada, "notebook-on-1")["state"] == "stopped"
    finally:
        own.unlink()
    refused(ada("notebook", "--on", "titan-01", "--no-browser"), "notebook-on-2 failed")
    assert status(ada, "notebook-on-2")["first_failure"]["exit"] == 78


_MEASURED = """
    import os, pathlib, random, time
    import causeway
    random.seed(int(os.environ["CAUSEWAY_SEED"]))
    for step in range(3):
        causeway.report(step, loss=random.random())
    if os.environ["CAUSEWAY_RANK"] == "0":
        with causeway.checkpoint(2) as folder:
            (folder / "state").write_text("x" * 100)
    usage = pathlib.Path(os.environ["CAUSEWAY_USAGE"])
    while not (usage.exists() and usage.read_text().count("\\n") > 1):
        time.sleep(0.1)
    """
"""It lasts until it is noted what it uses."""


def test_what_machines_know_of_a_run_is_shown_compared_and_repeated(
    lab: Lab, ada: Researcher, folder: Path
) -> None:
    """What is made of it: ``test_overview_here.py``."""
    program(folder, _MEASURED)
    (folder / "job.yaml").write_text(
        "name: toy\nrun: python3 train.py {lr}\nlauncher: none\nnodes: 2\non: titan-01,titan-02\n"
    )
    done = ada("run", "job.yaml", "--set", "lr=1e-3")
    assert done.code == 0, done.err
    shown = ada("show", "toy-on-1", "--json").json
    assert (shown["state"], shown["parameters"], shown["restarts"]) == ("done", {"lr": "1e-3"}, 0)
    assert {"titan-01", "titan-02"} <= {word.strip(",") for word in shown["nodes"].split()}
    assert shown["seconds"] > 2
    assert [step for step, _ in shown["metrics"]["loss"]["points"]] == [0, 1, 2]
    # Of both machines, each of its own GPU, which works.
    assert [usage["models"] for usage in shown["usage"].values()] == [[GPU]] * 2

    (row,) = json.loads(ada("checkpoints", "toy-on-1", "--json").out)
    assert (row["name"], row["step"], row["bytes"], row["state"]) == ("step-2", 2, 100, "newest")
    got = ada("get", "toy-on-1", "--checkpoint", "step-2", "--to", "got", "--json")
    assert got.code == 0, got.err
    assert [path.name for path in (folder / "got").iterdir()] == ["step-2"]
    assert (folder / "got/step-2/state").read_text() == "x" * 100
    assert ada("get", "toy-on-1", "--checkpoint", "step-9").code == 2

    # By another laptop, and where one of the machines has lost the code.
    other = lab.laptop("ada", folder, ada.environment, name="another")
    for path in lab["titan-02"].home("ada").glob(".local/share/causeway/machines/code/*"):
        path.unlink()
    program(folder, "print('edited')")
    again = other("rerun", "toy-on-1", "--on", "titan-02", "--exact", "--json")
    assert (again.code, again.json["name"]) == (0, "toy-on-2"), again.err
    same = ada("compare", "toy-on-1", "toy-on-2", "--on", "titan-01", "--json").json
    assert (same["differences"], same["code"][0]["files"]) == ({}, [])
    assert same["metrics"]["toy-on-1"] == same["metrics"]["toy-on-2"], "the seed is the same"
    assert ada("code", "toy-on-2", "theirs", "--on", "titan-01").code == 0
    assert "edited" not in (folder / "theirs/train.py").read_text()
    for words in (("show", "toy-on-9"), ("checkpoints", "toy-on-9"), ("rerun", "toy-on-9")):
        assert ada(*words, "--on", "titan-01").code == 1
        assert ada(*words, "--on", "titan-01", "--local").code == 2


def test_idle_looks_at_its_own_gpus(ada: Researcher, folder: Path) -> None:
    (folder / "job.yaml").write_text("run: sleep 600\nidle: 2s\n")
    done = ada("run", "job.yaml", "--on", "titan-01", "--json")
    first = done.json["first_failure"]
    assert (first["exit"], first["reason"].startswith("idle ")) == (78, True), done.err


def test_packages_are_installed_by_the_machines_uv(lab: Lab, ada: Researcher, folder: Path) -> None:
    """A package of this folder, so that nothing is downloaded. Real uv, of this machine."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("no uv")
    package = wheel(folder, "hello", "1.0")
    (folder / "requirements.txt").write_text(f"./{package.name}\n")
    lab["titan-01"].run(f"cp {uv} /run/programs/uv; chmod 755 /run/programs/uv")
    words = ("--python", "requirements.txt", "--", "python3", "-c", "import hello; print(hello.version)")
    done = ada("run", "--on", "titan-01", "--json", *words)
    assert done.code == 0, done.out + done.err
    run = done.json["name"]
    assert "1.0" in ada("logs", run).out.splitlines()
    assert ada("show", run, "--json").json["packages"] == ["hello==1.0"]
    # A repeated run has its versions, whatever the list allows now.
    again = started(ada("rerun", run, "--exact", "-d", "--json"))
    record = json.loads((lab["titan-01"].home("ada") / RUNS / again / "run.json").read_text())
    assert record["exactly"] == ["hello==1.0"]
    said(ada, again, "1.0")
    (folder / "requirements.txt").write_text("./none-1.0-py3-none-any.whl\n")
    done = ada("run", "--on", "titan-01", *words)
    assert (done.code, "requirements.txt" in done.out) == (1, True)
    lab["titan-01"].run("rm /run/programs/uv")


def test_models_and_machines_without_gpus(lab: Lab, ada: Researcher, folder: Path) -> None:
    lab["titan-02"].gpus(0)
    (folder / "job.yaml").write_text("run: echo $CUDA_VISIBLE_DEVICES\ngpus: {count: 1, model: v100}\n")
    refused(ada("run", "job.yaml", "--on", "titan-01,titan-02"), "TITAN X (Pascal)", "titan-02: ")
    (folder / "job.yaml").write_text(
        "run: hostname\ngpus: {count: 1, model: titan-x-pascal, memory: 12 GiB}\n"
    )
    # One worker goes where there is room.
    assert "titan-01" in ada("run", "job.yaml", "--on", "titan-02,titan-01").out.splitlines()


@pytest.mark.parametrize("lost", ["titan-02", "titan-01"])
def test_a_reboot_is_explained_and_resume_goes_on(lab: Lab, ada: Researcher, folder: Path, lost: str) -> None:
    """Homes are apart here, so what the first worker saved has to be brought to the other."""
    program(folder, _SLOW)
    arguments = ("--nodes", "2", "--launcher", "none", "--name", "gang", *_TRAIN)
    run = started(ada("run", "--on", "titan-01,titan-02", "--json", "-d", *arguments, "100000"))
    said(ada, run, "step 3")
    lab[lost].kill()
    # The first worker's machine knows how a run ended.
    assert ended(ada, run)["state"] == ("failed" if lost == "titan-02" else "unknown")
    lab[lost].boot()
    lab.connect()
    failed = reached(ada, run, "failed")
    worker = "worker-0" if lost == "titan-01" else "worker-1"
    assert failed["reason"].startswith(f"{worker}: {lost} ")
    assert failed["kept"]
    # The other one has ended by itself.
    until(lambda: "running" not in {worker["state"] for worker in status(ada, run)["workers"]})
    assert ada("resume", run).code == 0
    begins = {*re.findall(r"begins at (\d+)", said(ada, run, "begins at", 2))}
    assert len(begins) == 1
    assert int(begins.pop()) >= 3
    ada("stop", run)
    reached(ada, run, "stopped")


def test_a_full_disk_is_said_and_resume_goes_on_once_there_is_room(
    lab: Lab, ada: Researcher, folder: Path
) -> None:
    program(
        folder,
        """
        import os, sys
        if os.environ["CAUSEWAY_ATTEMPT"] == "1":
            with open(os.environ["CAUSEWAY_RESULTS"] + "/big", "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    sys.exit()
        print("has room")
        """,
    )
    host, runs = lab["titan-01"], f"/home/ada/{RUNS}"
    host.become("ada", f"mkdir -p {runs}")
    host.run(f"mount -t tmpfs -o size=90m,mode=700,uid={USERS['ada']} none {runs}")
    try:
        run = started(ada("run", "--on", "titan-01", "--json", "-d", *_TRAIN))
        assert "disk of titan-01" in reached(ada, run, "failed")["reason"]
        host.run(f"rm {runs}/{run}/results/big")
        assert ada("resume", run).code == 0
        reached(ada, run, "done")
        assert "has room" in ada("logs", run).out
    finally:
        host.run(f"umount -l {runs}")


def _image(folder: Path) -> Path:
    """A root folder as a tar file: this machine's Python and shell, and what they are linked with."""
    script = """
    set -e
    copy() { for path in "$@"; do mkdir -p "$root/$(dirname "$path")"; cp -L "$path" "$root$path"; done; }
    python=$(readlink -f /usr/bin/python3) version=$(basename "$(readlink -f /usr/bin/python3)")
    mkdir -p "$root/usr/lib/$version" "$root/tmp" "$root/etc" "$root/proc" "$root/sys" "$root/dev" "$root/run"
    tar -C "/usr/lib/$version" --exclude=__pycache__ --exclude=test --exclude='config-*' -c . |
      tar -x -C "$root/usr/lib/$version"
    chmod 1777 "$root/tmp"
    copy "$python" /bin/bash /bin/sh
    for path in "$python" /bin/bash "/usr/lib/$version"/lib-dynload/*.so; do
      ldd "$path" | grep -o '/[^ ]*' || true
    done | sort -u | while read -r path; do copy "$path"; done
    ln -s "$version" "$root/usr/bin/python3"
    tar -C "$root" -cf "$root.tar" .
    """
    root = folder / "root"
    subprocess.run(["bash", "-c", script], env={"root": str(root), "PATH": os.environ["PATH"]}, check=True)
    return root.with_suffix(".tar")


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman not found (package podman)")
def test_a_container_by_podman_ends_with_its_unit(
    lab: Lab, ada: Researcher, folder: Path, tmp_path: Path
) -> None:
    """Rootless, as she would run it. crun refuses this machine's control groups, so runc runs it. Without
    GPUs: there is no CDI here."""
    host = lab["titan-01"]
    # A /proc on which something is mounted can't be mounted once more in a user namespace.
    host.run("umount /proc/sys/kernel/random/boot_id")
    for name in ("subuid", "subgid"):
        host.run(f"echo ada:700000:65536 > /run/{name}; mount --bind /run/{name} /etc/{name}")
    settings = host.home("ada") / ".config/containers"
    settings.mkdir(parents=True)
    (settings / "containers.conf").write_text('[engine]\nruntime = "runc"\n')
    image = _image(tmp_path)
    host.run(f"cp {image} /run/image.tar; chmod 644 /run/image.tar; chown -R ada:ada /home/ada/.config")
    imported = host.become("ada", "podman import /run/image.tar localhost/py:1")
    assert imported.returncode == 0, imported.stderr
    program(folder, _SLOW + "print('after')")
    words = ("--image", "localhost/py:1", "--gpus", "0", "--env", "WORD=a word")
    try:
        where = ("--", "sh", "-c", "test -f /run/.containerenv && echo $WORD > $CAUSEWAY_RESULTS/here")
        done = ada("run", "--on", "titan-01", "--name", "inside", *words, *where)
        assert done.code == 0, done.out + done.err
        assert host.run(f"cat /home/ada/{RUNS}/inside-on-1/results/here").stdout == "a word\n"
        assert host.run(f"stat -c %U /home/ada/{RUNS}/inside-on-1/results/here").stdout == "ada\n"
        run = started(ada("run", "--on", "titan-01", "--json", "-d", *words, *_TRAIN, "10000"))
        said(ada, run, "step 3")
        ada("stop", run)
        reached(ada, run, "stopped")
        last = re.findall(r"step (\d+)", ada("logs", run).out)[-1]
        assert ada("resume", run).code == 0
        said(ada, run, f"begins at {last}")
        # Killed, it takes the container along.
        host.run("pkill -KILL -u ada -f 'kit worker'")
        until(lambda: host.run("pgrep -u ada -f train.py").stdout, lambda pids: not pids)
        assert status(ada, run)["state"] == "failed"
    finally:
        host.kill()
        host.boot()
        lab.connect()


_SHARDED = """
    import os, sys, time
    import causeway
    rank = os.environ["CAUSEWAY_RANK"]
    resume = os.environ.get("CAUSEWAY_RESUME")
    print("has", sorted(os.listdir(resume)) if resume else "nothing", "in", os.getcwd(), flush=True)
    if resume:
        sys.exit()
    with causeway.checkpoint(1) as folder:
        (folder / f"part-{rank}").write_text(rank)
    print("saved", flush=True)
    time.sleep(600)
    """


def test_machines_with_one_home_share_checkpoints(
    folder: Path, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    program(folder, _SHARDED)
    job = "name: parts\nrun: python3 train.py\nnodes: 2\nlauncher: none\ngrace: 1s\n"
    job += "checkpoints: {sharded: true}\n"
    (folder / "job.yaml").write_text(job)
    with labs(tmp_path_factory.mktemp("shared"), "one", "two", shared=True) as lab:
        ada = lab.laptop("ada", folder, environment)
        run = started(ada("run", "job.yaml", "--on", "one,two", "--json", "-d"))
        said(ada, run, "saved", 2)
        kept = lab["one"].home("ada") / RUNS / run / "kept/manifests"
        until(lambda: len([*kept.glob("*/*.json")]), lambda count: count == 2)
        ada("stop", run)
        assert reached(ada, run, "stopped")["kept"]
        assert ada("resume", run).code == 0
        assert said(ada, run, "has", 2).count("has ['part-0', 'part-1']") == 2
        reached(ada, run, "done")


def test_parts_of_checkpoints_need_one_home(ada: Researcher, folder: Path) -> None:
    (folder / "job.yaml").write_text("run: 'true'\nnodes: 2\ncheckpoints: {sharded: true}\nlauncher: none\n")
    refused(ada("run", "job.yaml", "--on", "titan-01,titan-02"), "checkpoints.sharded: titan-01, titan-02 ")


def test_nothing_is_left_where_one_machine_fails(lab: Lab, ada: Researcher, folder: Path) -> None:
    results = "open(os.path.join(os.environ['CAUSEWAY_RESULTS'], 'out'), 'w').write(os.uname().nodename)"
    program(folder, f"import os; print('never'); {results}")
    both = ("--on", "titan-01,titan-02", "--nodes", "2", "--launcher", "none", "--name", "half")
    run = ("run", *both, *_TRAIN)
    one, other = lab["titan-01"], lab["titan-02"]

    def left() -> list[str]:
        paths = [path for host in (one, other) for path in (host.home("ada") / RUNS).glob("half*")]
        listed = one.systemctl("ada", "list-units --no-legend --state=active 'causeway-half*'")
        return [*map(str, paths), *listed.stdout.splitlines()]

    # The second one's systemd starts nothing, when the first one's has.
    broken = "#!/bin/sh\\necho no more >&2; exit 1\\n"
    other.run(f"printf '{broken}' > /run/programs/systemd-run; chmod 755 /run/programs/*")
    refused(ada(*run), "titan-02: systemd-run: ")
    assert left() == []
    other.run("rm /run/programs/systemd-run")
    # They do not reach one another.
    one.run("ip link set rack down")
    refused(ada(*run), "titan-02 ", " titan-01, at ")
    assert left() == []
    one.run("ip link set rack up")
    done = ada(*run)
    assert done.code == 0, done.err
    assert done.out.count("never") == 2
    # What several machines left is apart.
    assert ada("get", "half-on-1", "--to", "all").code == 0
    assert (folder / "all/out").read_text() == "titan-01"
    assert (folder / "all/titan-02/out").read_text() == "titan-02"
    refused(ada("get", "half-on-1", "plots"), "plots")


def test_errors_name_the_machine_and_the_fix(lab: Lab, ada: Researcher, folder: Path) -> None:
    other = lab["titan-02"]
    run = ("run", "--on", "titan-01,titan-02", "--", "true")
    other.linger("ada", on=False)
    refused(ada(*run), "titan-02: ", "sudo loginctl enable-linger ada")
    other.linger("ada", on=True)
    small = "mkdir -p {0} && mount -t tmpfs -o size=1m none {0} && chown ada {0}"
    other.run(small.format("/home/ada/.local"))
    refused(ada(*run), "titan-02: the disk ")
    other.run("umount /home/ada/.local")
    other.run("""echo '{"fault": "no driver"}' > /run/gpus.json""")
    refused(ada(*run), "titan-02: nvidia-smi: no driver")
    other.gpus(2)
    other.run("ln -s /bin/false /run/programs/systemctl")
    refused(ada(*run), "titan-02: systemctl --user: ")
    other.run("rm /run/programs/systemctl")
    keys = other.home("ada") / ".ssh/authorized_keys"
    # A connection that is open would be used again.
    fresh = lab.laptop("ada", folder, ada.environment, name="fresh")
    keys.rename(keys.with_name("away"))
    refused(fresh(*run), "titan-02: ", "ssh-copy-id titan-02", code=3)
    keys.with_name("away").rename(keys)
    refused(ada("run", "--on", "no-such-machine", "--", "true"), "no-such-machine: ", code=3)
    (folder / "requirements.txt").write_text("x\n")
    refused(ada("run", "--python", "requirements.txt", *run[1:]), "titan-01: uv ")
    (folder / "job.yaml").write_text("run: x\nsecrets: {wandb: WANDB_API_KEY}\n")
    refused(ada("run", "job.yaml", "--on", "titan-01"), "job.yaml:2: secrets: WANDB_API_KEY ", code=2)
    assert ada("run", "--local", "--on", "titan-01", "--", "true").code == 2
    assert ada("run", "--each", "seed=1,2", "--on", "titan-01", "--", "echo", "{seed}").code == 2
