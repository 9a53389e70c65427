"""``causeway run --on`` on two machines (``ssh_hosts``): real sshd, ``systemd --user`` and torchrun."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from client.jupyter import asked, notebook, python_with_jupyter
from client.process import SYSTEM_PYTHON, Causeway, Finished, need_torch, program
from client.ssh_hosts import ADDRESSES, USERS, Lab, labs
from client.terminals import Terminal
from ports import reserved
from waiting import until

RUNS = ".local/share/causeway/machines/runs"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with labs(tmp_path_factory.mktemp("lab"), "titan-01", "titan-02") as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_left(lab: Lab) -> Iterator[None]:
    """What a test leaves running would be in the way of the next one."""
    yield
    for host in lab.hosts.values():
        host.gpus(2)
        host.run("pkill -KILL -u ada,bob -f runtime.py; pkill -KILL -u ada,bob -f 'kit worker'")
        host.run("pkill -KILL -u ada,bob -f 'kits/.* reserve'")


@pytest.fixture
def ada(lab: Lab, folder: Path, environment: Mapping[str, str]) -> Causeway:
    return lab.laptop("ada", folder, environment)


@pytest.fixture
def bob(lab: Lab, folder: Path, environment: Mapping[str, str]) -> Causeway:
    return lab.laptop("bob", folder, environment)


@pytest.fixture(scope="module")
def torch() -> None:
    need_torch()


def state(causeway: Causeway, run: str) -> dict[str, Any]:
    return causeway("why", run, "--json").json


def started(done: Finished) -> str:
    assert done.code == 0, done.err
    run: str = done.json["run"]
    return run


def said(causeway: Causeway, run: str, word: str) -> Any:
    return until(lambda: causeway("logs", run).out, lambda text: word in text)


def test_one_machine_from_start_to_results(lab: Lab, ada: Causeway, folder: Path) -> None:
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
    assert "on titan-01 gpus 0,1 ['1e-3']" in done.out.splitlines()
    assert "no end" in done.out.splitlines()
    assert "not used without a cluster: memory" in done.out
    listed: Any = ada("ps", "--on", "titan-01", "--json").json
    assert [each["state"] for each in listed] == ["done"]
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
    other = lab.laptop("ada", folder, ada.environment, name="other")  # type: ignore[attr-defined]
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


def test_it_outlives_the_laptop_is_stopped_and_goes_on(lab: Lab, ada: Causeway, folder: Path) -> None:
    program(folder, _SLOW)
    words = [sys.executable, "-m", "causeway", "run", "--on", "titan-01", "--name", "slow", "--", "python3"]
    laptop = subprocess.Popen(
        [*words, "train.py", "100000"], cwd=folder, env=ada.environment, text=True,  # type: ignore[attr-defined]
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert laptop.stdout is not None
    for line in laptop.stdout:
        if line == "step 3\n":
            break
    os.killpg(laptop.pid, signal.SIGINT)
    rest, _ = laptop.communicate(timeout=60)
    assert laptop.returncode == 130
    assert "slow-on-1 goes on on its machines" in rest
    assert state(ada, "slow-on-1")["state"] == "running"
    again = ada("resume", "slow-on-1")
    assert (again.code, "slow-on-1 is running" in again.err) == (1, True)
    assert ada("stop", "slow-on-1").code == 0
    stopped = until(lambda: state(ada, "slow-on-1"), lambda each: each["state"] != "running")
    assert (stopped["state"], stopped["stopped_by"]) == ("stopped", stopped["started_by"])
    last = int(re.findall(r"step (\d+)", ada("logs", "slow-on-1").out)[-1])
    # The code is what was submitted.
    program(folder, "raise SystemExit('edited')")
    assert "from its last checkpoint" in ada("resume", "slow-on-1", "--time", "2h").out
    assert ada("show", "slow-on-1", "--json").json["job"]["time"] == "2h"
    said(ada, "slow-on-1", f"begins at {last}")
    assert f"begins at {last}" not in ada("logs", "slow-on-1", "--attempt", "0").out
    ada("stop", "slow-on-1")


_DDP = """
    import os, sys, time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if "fail" in sys.argv and rank == 3:
        raise ValueError("loss is nan")
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    print(f"rank {rank} of {world} on {os.uname().nodename}: {total.item()} at {os.environ['MASTER_ADDR']}")
    if "fail" in sys.argv:
        time.sleep(600)
    """
# Why: tests/client/conftest.py. One thread: the processors are few.
_TORCH = ("--env", "PET_REDIRECTS=9:1", "--env", "PET_TEE=9:1", "--env", "OMP_NUM_THREADS=1")


@pytest.mark.usefixtures("torch")
def test_two_machines_meet_on_the_first_one(ada: Causeway, folder: Path) -> None:
    program(folder, _DDP)
    done = ada(
        "run",
        "--on",
        "titan-01,titan-02",
        "--gpus",
        "2",
        "--nodes",
        "2",
        *_TORCH,
        "--",
        SYSTEM_PYTHON,
        "train.py",
    )
    assert done.code == 0, done.out + done.err
    found = sorted(re.findall(r"rank \d of 4 on \S+ \S+ at [\d.]+", done.out))
    hosts = ["titan-01", "titan-01", "titan-02", "titan-02"]
    assert found == [f"rank {rank} of 4 on {host}: 6.0 at {ADDRESSES[0]}" for rank, host in enumerate(hosts)]


@pytest.mark.usefixtures("torch")
def test_a_worker_that_fails_ends_the_others_and_is_named_first(ada: Causeway, folder: Path) -> None:
    program(folder, _DDP)
    arguments = ("--gpus", "2", "--nodes", "2", *_TORCH, "--", SYSTEM_PYTHON, "train.py", "fail")
    done = ada("run", "--on", "titan-01,titan-02", "--json", *arguments)
    assert done.code == 1, done.err
    first = done.json["first_failure"]
    assert (done.json["state"], first["host"], first["rank"], first["process"]) == (
        "failed",
        "titan-02",
        1,
        3,
    )
    assert first["lines"][-1] == "ValueError: loss is nan"
    assert [each["state"] for each in done.json["workers"]] != ["running"] * 2
    why = ada("why", done.json["name"]).out
    assert "first to fail: worker-1, rank 3" in why
    assert "ValueError: loss is nan" in why


def test_leases_keep_people_apart(lab: Lab, ada: Causeway, bob: Causeway, folder: Path) -> None:
    program(
        folder,
        "import os, time; print('has', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)",
    )
    train = ("--", "python3", "train.py")
    run = started(ada("run", "--on", "titan-01", "--name", "hers", "--json", "-d", *train))
    said(ada, run, "has 0")
    two = bob("run", "--on", "titan-01", "--no-wait", "--gpus", "2", *train)
    assert two.code == 1
    assert f"1 of 2 GPUs are free; GPU 0 is leased by ada ({run}, since " in two.err
    # The other one is free, until somebody uses it without asking.
    lab["titan-01"].gpus(2, apps=[(1, lab["titan-01"].process.pid)])  # type: ignore[union-attr]
    used = bob("run", "--on", "titan-01", "--no-wait", *train)
    assert "GPU 1 is used by" in used.err
    assert "without a lease" in used.err
    lab["titan-01"].gpus(2)
    other = started(bob("run", "--on", "titan-01", "--json", "-d", *train))
    said(bob, other, "has 1")
    # It ends with its process, however that does.
    assert lab["titan-01"].run("pkill -KILL -u ada -f 'kit worker'").returncode == 0
    lost = until(lambda: state(ada, run), lambda each: each["state"] != "running")
    assert (lost["state"], "its process was killed on titan-01" in lost["reason"]) == ("failed", True)
    third = started(bob("run", "--on", "titan-01", "--json", "-d", *train))
    said(bob, third, "has 0")
    assert bob("why", run, "--on", "titan-01").code == 1  # hers is not his
    bob("stop", other, third)
    until(
        lambda: [state(bob, each)["state"] for each in (other, third)], lambda each: each == ["stopped"] * 2
    )


def test_who_waits_has_a_place_in_the_queue_and_goes_on_by_itself(
    lab: Lab, ada: Causeway, bob: Causeway, folder: Path
) -> None:
    program(
        folder,
        "import os, time; print('has', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)",
    )
    words = ("--on", "titan-01", "--gpus", "2", "--launcher", "none", "--json", "-d")
    train = ("--", "python3", "train.py")
    run = started(ada("run", "--name", "hers", *words, *train))
    said(ada, run, "has 0,1")
    first = started(bob("run", "--name", "his", *words, *train))
    second = started(ada("run", "--name", "more", *words, *train))
    waits = until(lambda: state(ada, second), lambda each: "behind" in each["reason"])
    assert (waits["state"], f"2nd in its queue behind bob ({first}, since " in waits["reason"]) == (
        "waiting",
        True,
    )
    assert f"GPU 0 is leased by ada ({run}, since " in state(bob, first)["reason"]
    assert [each["state"] for each in ada("ps", "--json").json if each["name"] == second] == ["waiting"]  # type: ignore[index]
    # One of a higher priority goes before both, and one that does not wait is told who does.
    (folder / "job.yaml").write_text("run: python3 train.py\npriority: high\n")
    urgent = started(ada("run", "job.yaml", "--name", "urgent", *words))
    until(lambda: state(ada, second)["reason"], lambda reason: "3rd in its queue" in reason)
    refused = ada("run", "--on", "titan-01", "--no-wait", *train)
    assert (refused.code, f"is leased by ada ({run}, since " in refused.err) == (1, True), refused.err
    listed = bob("gpus", "--on", "titan-01", "--json").json
    assert [(each["user"], each["run"]) for each in listed["gpus"]] == [("ada", run)] * 2
    assert all(each["until"] > time.time() + 3600 for each in listed["gpus"])
    assert [each["run"] for each in listed["queue"]] == [urgent, first, second]
    # One leaves the queue, and the process of another one dies.
    assert ada("stop", urgent).code == 0
    until(lambda: state(ada, urgent)["state"], lambda found: found == "stopped")
    assert lab["titan-01"].run("pkill -KILL -u bob -f 'kit worker'").returncode == 0
    until(lambda: state(ada, second)["reason"], lambda reason: "1st in its queue" in reason)
    assert state(bob, first)["state"] == "failed"
    ada("stop", run)
    said(ada, second, "has 0,1")
    assert state(ada, second)["state"] == "running"
    ada("stop", second)
    until(lambda: state(ada, second)["state"], lambda found: found == "stopped")
    # A run that was stopped goes on when it has its GPUs.
    third = started(bob("run", "--name", "third", *words, *train))
    said(bob, third, "has 0,1")
    assert ada("resume", second).code == 0
    assert state(ada, second)["state"] == "waiting"
    bob("stop", third)
    said(ada, second, "has 0,1")
    ada("stop", second)
    until(lambda: state(ada, second)["state"], lambda found: found == "stopped")


def test_a_run_of_two_machines_waits_for_both_and_keeps_none(
    ada: Causeway, bob: Causeway, folder: Path
) -> None:
    program(folder, "import os, time; print('on', os.uname().nodename, flush=True); time.sleep(600)")
    train = ("--gpus", "2", "--launcher", "none", "--json", "-d", "--", "python3", "train.py")
    one = started(ada("run", "--on", "titan-02", "--name", "one", *train))
    said(ada, one, "on titan-02")
    pair = started(bob("run", "--on", "titan-01,titan-02", "--nodes", "2", "--name", "pair", *train))
    waits = until(lambda: state(bob, pair), lambda each: "leased by" in each["reason"])
    assert (waits["state"], {each["state"] for each in waits["workers"]}) == ("waiting", {"waiting"})
    free = ada("gpus", "--on", "titan-01", "--json").json
    assert {each["state"] for each in free["gpus"]} == {"free"}
    # The other machine is next for it all the same.
    late = started(ada("run", "--on", "titan-01", "--name", "late", *train))
    until(lambda: state(ada, late)["reason"], lambda reason: f"behind bob ({pair}, since " in reason)
    ada("stop", one)
    text = until(lambda: bob("logs", pair).out, lambda text: text.count("on titan-0") == 2)
    assert "on titan-01" in text
    assert state(ada, late)["state"] == "waiting"
    # A laptop that knows nothing of it stops it while it waits.
    assert ada("stop", late).code == 0
    until(lambda: state(ada, late)["state"], lambda found: found == "stopped")
    bob("stop", pair)
    until(lambda: state(bob, pair)["state"], lambda found: found == "stopped")


def test_a_reservation_is_its_persons_until_its_end(ada: Causeway, bob: Causeway, folder: Path) -> None:
    program(
        folder,
        "import os, time; print('has', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)",
    )
    train = ("--on", "titan-01", "--launcher", "none", "--json", "-d", "--", "python3", "train.py")
    assert ada("reserve", "titan-01").code == 2
    reserved = ada("reserve", "titan-01", "--for", "8h", "--json")
    assert (reserved.code, reserved.json[0]["gpus"]) == (0, [0, 1]), reserved.err  # type: ignore[index]
    refused = bob("reserve", "titan-01,titan-02", "--for", "1h", "--gpus", "2")
    assert (refused.code, "reserved by ada (until " in refused.err) == (1, True), refused.err
    there = bob("gpus", "--on", "titan-01,titan-02", "--json").json["gpus"]
    assert [each["state"] for each in there] == ["reserved"] * 2 + ["free"] * 2, "none is kept of what failed"
    waits = started(bob("run", "--name", "his", *train))
    assert "reserved by ada" in until(lambda: state(bob, waits)["reason"], lambda reason: "by ada" in reason)
    mine = started(ada("run", "--name", "hers", *train))
    said(ada, mine, "has 0")
    rows = ada("gpus", "--on", "titan-01", "--json").json["gpus"]
    assert [(each["state"], each["run"]) for each in rows] == [("leased", mine), ("reserved", None)]
    # Its end frees what no run is on.
    assert ada("reserve", "titan-01", "--end", "--json").json[0]["gpus"] == [0, 1]  # type: ignore[index]
    said(bob, waits, "has 1")
    assert state(ada, mine)["state"] == "running"
    for causeway, run in ((ada, mine), (bob, waits)):
        causeway("stop", run)
    until(lambda: [each["state"] for each in bob("gpus", "--on", "titan-01", "--json").json["gpus"]],
          lambda found: found == ["free"] * 2)  # fmt: skip
    # It ends by itself, too.
    assert ada("reserve", "titan-01", "--for", "2s").code == 0
    until(lambda: [each["state"] for each in bob("gpus", "--on", "titan-01", "--json").json["gpus"]],
          lambda found: found == ["free"] * 2)  # fmt: skip


@contextmanager
def shell(folder: Path, ada: Causeway, *words: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """``causeway shell`` at a terminal, until its prompt."""
    with closing(Terminal()) as terminal, ExitStack() as stack:
        process = subprocess.Popen(
            [sys.executable, "-m", "causeway", "shell", *words], cwd=folder, env=ada.environment,  # type: ignore[attr-defined]
            stdin=terminal.side, stdout=terminal.side, stderr=terminal.side,
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.kill)
        terminal.shows("exit or Ctrl-D leaves")
        yield terminal, process


def test_a_shell_has_leased_gpus_and_the_code_and_ends_with_its_person(
    lab: Lab, ada: Causeway, bob: Causeway, folder: Path
) -> None:
    """What is typed has no quotes where it is looked for, as the terminal also shows what is typed."""
    program(folder, "print('code is', 'here')")
    assert ada("shell", "--on", "titan-01").code == 2, "there is no terminal"
    assert "shell-on" not in ada("ps", "--on", "titan-01", "--json").out
    with shell(folder, ada, "--on", "titan-01", "--gpus", "2") as (terminal, process):
        terminal.enter("python3 train.py; echo gpus-$CUDA_VISIBLE_DEVICES of $CAUSEWAY_RUN")
        terminal.shows("code is here")
        terminal.shows("gpus-0,1 of shell-on-1")
        assert (
            "is leased by ada (shell-on-1, since "
            in bob("run", "--on", "titan-01", "--no-wait", "--", "true").err
        )
        # One command beside it, with its own exit code; and a terminal from elsewhere.
        beside = ada("shell", "shell-on-1", "--", "sh", "-c", "echo beside $CUDA_VISIBLE_DEVICES; exit 7")
        assert (beside.code, beside.out) == (7, "beside 0,1\n"), beside.err
        terminal.enter("sh -c 'echo slee\"\"ping; exec sleep 36000'")  # one process: see test_kubelets.py
        terminal.shows("sleeping")
        terminal.type("\x03")
        time.sleep(3)  # bash, which was woken by the same signal, may not read yet
        terminal.enter("exit 3")
        assert process.wait(180) == 0
    until(lambda: state(ada, "shell-on-1")["state"], lambda found: found == "done")
    late = ada("shell", "shell-on-1", "--", "true")
    assert (late.code, "shell-on-1 done" in late.err) == (1, True)


def test_a_command_has_its_own_output_and_nothing_of_the_login_shell(
    lab: Lab, ada: Causeway, folder: Path
) -> None:
    (lab["titan-01"].home("ada") / ".bashrc").write_text("echo hello; printf welcome")
    program(folder, "import time; print('trains', flush=True); time.sleep(600)")
    run = started(ada("run", "--on", "titan-01", "--json", "-d", "--", "python3", "train.py"))
    said(ada, run, "trains")
    # Each line comes back before the next is sent; what follows is no text.
    there = (
        "read -r x; echo $x; read -r x; echo $x $CAUSEWAY_RUN; echo hm >&2; printf '\\0\\377\\n\\0'; exit 9"
    )
    words = [sys.executable, "-m", "causeway", "shell", run, "--", "sh", "-c", there]
    with subprocess.Popen(
        words, cwd=folder, env=ada.environment, bufsize=0,  # type: ignore[attr-defined]
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as beside:  # fmt: skip
        assert beside.stdin is not None
        assert beside.stdout is not None
        assert beside.stderr is not None
        beside.stdin.write(b"one\n")
        assert beside.stdout.readline() == b"one\n"
        beside.stdin.write(b"two\n")
        assert beside.stdout.readline() == f"two {run}\n".encode()
        assert beside.stdout.read() == b"\0\xff\n\0"
        assert beside.stderr.readline() == b"hm\n"
    assert beside.returncode == 9
    # Its output may have no reader.
    quoted = " ".join(words[:6])
    piped = subprocess.run(
        ["bash", "-c", f"{quoted} yes | head -1"], cwd=folder, env=ada.environment,  # type: ignore[attr-defined]
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (piped.stdout, "Traceback" in piped.stderr) == ("y\n", False), piped.stderr
    ada("stop", run)


def test_ssh_reaches_a_run_with_its_gpus_files_and_ports(lab: Lab, ada: Causeway, folder: Path) -> None:
    """What VS Code needs: commands, files, and a port over there, by an entry of a configuration."""
    # It is ssh: what a ~/.bashrc prints comes before a command's output, and scp does not work then.
    (lab["titan-01"].home("ada") / ".bashrc").unlink(missing_ok=True)
    program(
        folder,
        """
        from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
        server = ThreadingHTTPServer(("127.0.0.1", 8765), SimpleHTTPRequestHandler)
        print("serves", flush=True)
        server.serve_forever()
        """,
    )
    words = ("--gpus", "2", "--launcher", "none", "--", "python3", "train.py")
    run = started(ada("run", "--on", "titan-01", "--json", "-d", *words))
    said(ada, run, "serves")
    entry = ada("ssh-config", run)
    assert (entry.code, entry.out.splitlines()[:2]) == (0, [f"Host {run}", "  User ada"]), entry.err
    config = folder / "config"
    config.write_text(entry.out)

    def ssh(*words: str, program: str = "/usr/bin/ssh") -> subprocess.CompletedProcess[str]:
        command = [program, "-F", str(config), "-o", "BatchMode=yes", *words]
        return subprocess.run(command, env=ada.environment, capture_output=True, text=True, timeout=120)  # type: ignore[attr-defined]

    beside = ssh(run, "echo $CUDA_VISIBLE_DEVICES of $CAUSEWAY_RUN; exit 5")
    assert (beside.stdout, beside.returncode) == (f"0,1 of {run}\n", 5), beside.stderr
    (folder / "blob").write_bytes(os.urandom(300_000))
    for source, target in ((str(folder / "blob"), f"{run}:blob"), (f"{run}:blob", str(folder / "back"))):
        copied = ssh(source, target, program="/usr/bin/scp")
        assert copied.returncode == 0, copied.stderr
    assert (folder / "back").read_bytes() == (folder / "blob").read_bytes()
    with (
        reserved(1) as (port,),
        subprocess.Popen(
            ["/usr/bin/ssh", "-F", str(config), "-o", "BatchMode=yes", "-N", "-D", str(port), run],
            env=ada.environment,  # type: ignore[attr-defined]
        ) as forwarding,
    ):
        socks = ["curl", "-sS", "--retry", "60", "--retry-all-errors", "--retry-delay", "1"]
        socks += ["--socks5-hostname", f"127.0.0.1:{port}", "http://127.0.0.1:8765/"]
        fetched = subprocess.run(socks, capture_output=True, text=True, timeout=180)
        forwarding.terminate()
    assert "train.py" in fetched.stdout, fetched.stderr
    assert ada("ssh-config", run, "--worker", "worker-7").code == 1
    ada("stop", run)


def test_a_shell_ends_with_its_run(ada: Causeway, folder: Path) -> None:
    program(folder, "import time; print('trains', flush=True); time.sleep(600)")
    run = started(ada("run", "--on", "titan-01", "--json", "-d", "--", "python3", "train.py"))
    said(ada, run, "trains")
    with shell(folder, ada, run, "--worker", "worker-0") as (terminal, process):
        terminal.enter("echo in-$CAUSEWAY_RUN")
        terminal.shows(f"in-{run}")
        assert ada("stop", run).code == 0
        terminal.shows("has ended")
        assert process.wait(180) == 75
    assert ada("shell", run, "--worker", "worker-7", "--", "true").code == 1


def test_a_notebook_on_leased_gpus_wants_its_token_goes_on_and_ends_when_idle(
    lab: Lab, ada: Causeway, bob: Causeway, folder: Path
) -> None:
    home = lab["titan-01"].home("ada")
    own, laptop = python_with_jupyter(home / ".local/bin"), ada.environment  # type: ignore[attr-defined]
    (home / "mine.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    assert lab["titan-01"].run("chown -R ada: /home/ada/.local /home/ada/mine.ipynb").returncode == 0
    try:
        with notebook(folder, laptop, "--on", "titan-01", "--idle", "20s") as (url, process):
            token = urlsplit(url).query.partition("token=")[2]
            assert "mine.ipynb" in [each["name"] for each in asked(url, "contents", token)[1]["content"]]
            assert asked(url, "contents", "another")[0] == 403
            assert asked(url, "kernels", token, b"{}")[0] == 201
            assert (
                "leased by ada (notebook-on-1"
                in bob("run", "--gpus", "2", "--on", "titan-01", "--no-wait", "--", "true").err
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        assert state(ada, "notebook-on-1")["state"] == "running"
        with notebook(folder, laptop, "notebook-on-1") as (again, process):
            assert urlsplit(again).query == urlsplit(url).query
            # Its kernel does nothing, and then nobody has one.
            assert process.wait(240) == 0
        assert state(ada, "notebook-on-1")["state"] == "done"
    finally:
        own.unlink()
    bare = ada("notebook", "--on", "titan-01", "--no-browser")
    assert (bare.code, "notebook-on-2 failed" in bare.err) == (1, True), bare.err
    assert "jupyterlab is not installed here" in ada("why", "notebook-on-2").out
    assert ada("notebook", "--on", "titan-01", "--idle", "soon").code == 2


_MEASURED = """
    import os, random, time
    import causeway
    random.seed(int(os.environ["CAUSEWAY_SEED"]))
    for step in range(3):
        causeway.report(step, loss=random.random())
    if os.environ["CAUSEWAY_RANK"] == "0":
        with causeway.checkpoint(2) as folder:
            (folder / "state").write_text("x" * 100)
    time.sleep(3)
    """


def test_runs_are_shown_compared_repeated_and_their_checkpoints_listed(
    lab: Lab, ada: Causeway, folder: Path
) -> None:
    """As those of this machine: ``test_overview_here``."""
    program(folder, _MEASURED)
    (folder / "job.yaml").write_text(
        "name: toy\nrun: python3 train.py {lr}\nlauncher: none\nnodes: 2\non: titan-01,titan-02\n"
    )
    for lr in ("1e-3", "1e-4"):
        done = ada("run", "job.yaml", "--set", f"lr={lr}")
        assert done.code == 0, done.err
        (folder / "train.py").write_text((folder / "train.py").read_text() + "print('more')\n")

    shown = ada("show", "toy-on-1", "--json").json
    assert (shown["state"], shown["parameters"], shown["restarts"]) == ("done", {"lr": "1e-3"}, 0)
    assert shown["nodes"] == "worker-0 on titan-01, worker-1 on titan-02"
    assert shown["seconds"] > 2
    assert [step for step, _ in shown["metrics"]["loss"]["points"]] == [0, 1, 2]
    assert [(each["name"], each["bytes"]) for each in shown["checkpoints"]] == [("step-2", 100)]
    # Of both machines, each of its own GPU, which works.
    assert [each["models"] for each in shown["usage"].values()] == [["NVIDIA TITAN X (Pascal)"]] * 2
    assert "toy-on-1 done" in ada("show", "toy-on-1").out

    found = ada("compare", "toy-on-1", "toy-on-2", "--json").json
    assert found["differences"]["--set lr"] == {"toy-on-1": "1e-3", "toy-on-2": "1e-4"}
    assert found["code"][0]["files"] == [{"path": "train.py", "change": "changed"}]
    assert ada("code", "toy-on-1", "theirs").code == 0
    assert "more" not in (folder / "theirs/train.py").read_text()

    (row,) = json.loads(ada("checkpoints", "toy-on-1", "--json").out)
    assert (row["name"], row["step"], row["bytes"], row["state"]) == ("step-2", 2, 100, "newest")
    got = ada("get", "toy-on-1", "--checkpoint", "step-2", "--to", "got", "--json")
    assert got.code == 0, got.err
    assert (folder / "got/step-2/state").read_text() == "x" * 100
    assert [each.name for each in (folder / "got").iterdir()] == ["step-2"]
    assert ada("get", "toy-on-1", "--checkpoint", "step-9").code == 2

    # By another laptop, and where one of the machines has lost the code.
    other = lab.laptop("ada", folder, ada.environment, name="another")  # type: ignore[attr-defined]
    assert other("show", "toy-on-1", "--on", "titan-02", "--json").json["state"] == "done"
    for path in lab["titan-02"].home("ada").glob(".local/share/causeway/machines/code/*"):
        path.unlink()
    again = other("rerun", "toy-on-1", "--on", "titan-01", "--exact", "--json")
    assert (again.code, again.json["name"]) == (0, "toy-on-3"), again.err
    assert "what may not be the same" in again.err
    same = ada("compare", "toy-on-1", "toy-on-3", "--on", "titan-01", "--json").json
    assert same["differences"] == {}
    assert same["code"][0]["files"] == []
    assert same["metrics"]["toy-on-1"] == same["metrics"]["toy-on-3"], "the seed is the same"
    assert ada("rerun", "toy-on-1", "-d", "--json").json["run"] == "toy-on-4"
    until(lambda: state(ada, "toy-on-4")["state"], lambda found: found == "done")
    for words in (("show", "toy-on-9"), ("checkpoints", "toy-on-9"), ("rerun", "toy-on-9")):
        assert ada(*words, "--on", "titan-01").code == 1
        assert ada(*words, "--on", "titan-01", "--local").code == 2


def test_idle_looks_at_its_own_gpus(ada: Causeway, folder: Path) -> None:
    (folder / "job.yaml").write_text("run: sleep 600\nidle: 2s\n")
    done = ada("run", "job.yaml", "--on", "titan-01", "--json")
    assert done.json["first_failure"]["reason"] == "idle for 2 s: its GPUs were below 5 %", done.err


def test_packages_are_installed_by_the_machines_uv(lab: Lab, ada: Causeway, folder: Path) -> None:
    """A package of this folder, so that nothing is downloaded. Real uv, of this machine."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("no uv")
    wheel = "hello-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / wheel, "w") as file:
        file.writestr("hello.py", "word = 'hello'\n")
        file.writestr("hello-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr("hello-1.0.dist-info/WHEEL", tags)
        file.writestr("hello-1.0.dist-info/RECORD", "")
    (folder / "requirements.txt").write_text(f"./{wheel}\n")
    lab["titan-01"].run(f"cp {uv} /run/programs/uv; chmod 755 /run/programs/uv")
    words = ("--python", "requirements.txt", "--", "python3", "-c", "import hello; print(hello.word)")
    done = ada("run", "--on", "titan-01", *words)
    assert done.code == 0, done.out + done.err
    assert "hello" in done.out.splitlines()
    run = ada("ps", "--on", "titan-01", "--json").json[0]["name"]  # type: ignore[index]
    assert ada("show", run, "--json").json["packages"] == ["hello==1.0"]
    # A repeated run has its versions, whatever the list allows now.
    again = started(ada("rerun", run, "--exact", "-d", "--json"))
    record = json.loads((lab["titan-01"].home("ada") / RUNS / again / "run.json").read_text())
    assert record["exactly"] == ["hello==1.0"]
    said(ada, again, "hello")
    (folder / "requirements.txt").write_text("./none-1.0-py3-none-any.whl\n")
    done = ada("run", "--on", "titan-01", *words)
    assert (done.code, "the packages of requirements.txt can't be installed" in done.out) == (1, True)
    lab["titan-01"].run("rm /run/programs/uv")


def test_models_and_machines_without_gpus(lab: Lab, ada: Causeway, folder: Path) -> None:
    lab["titan-02"].gpus(0)
    (folder / "job.yaml").write_text("run: echo $CUDA_VISIBLE_DEVICES\ngpus: {count: 1, model: v100}\n")
    done = ada("run", "job.yaml", "--on", "titan-01,titan-02")
    assert done.code == 1
    assert "titan-01: has none of these, but NVIDIA TITAN X (Pascal)" in done.err
    assert "titan-02: has no GPUs" in done.err
    (folder / "job.yaml").write_text(
        "run: hostname\ngpus: {count: 1, model: titan-x-pascal, memory: 12 GiB}\n"
    )
    # One worker goes where there is room.
    assert "titan-01" in ada("run", "job.yaml", "--on", "titan-02,titan-01").out.splitlines()


@pytest.mark.parametrize("lost", ["titan-02", "titan-01"])
def test_a_reboot_is_explained_and_resume_goes_on(lab: Lab, ada: Causeway, folder: Path, lost: str) -> None:
    """Homes are apart here, so what the first worker saved has to be brought to the other."""
    program(folder, _SLOW)
    arguments = ("--nodes", "2", "--launcher", "none", "--name", "gang", "--", "python3", "train.py")
    run = started(ada("run", "--on", "titan-01,titan-02", "--json", "-d", *arguments, "100000"))
    said(ada, run, "step 3")
    lab[lost].kill()
    gone = until(lambda: state(ada, run), lambda each: each["state"] != "running")
    if lost == "titan-02":
        assert gone["state"] == "failed"
        assert "titan-02 no longer answers" in gone["reason"]
    else:
        assert gone["state"] == "unknown"
    lab[lost].boot()
    lab.connect()
    failed = until(lambda: state(ada, run), lambda each: each["state"] == "failed")
    worker = "worker-0" if lost == "titan-01" else "worker-1"
    assert f"{worker}: {lost} was rebooted" in failed["reason"]
    assert f"causeway resume {run} goes on from its last checkpoint" in ada("why", run).out
    # The other one has ended by itself.
    until(lambda: state(ada, run), lambda each: not {"running"} & {one["state"] for one in each["workers"]})
    assert ada("resume", run).code == 0
    text = until(lambda: ada("logs", run).out, lambda text: text.count("begins at") == 2)
    begins = {*re.findall(r"begins at (\d+)", text)}
    assert len(begins) == 1, text
    assert int(begins.pop()) >= 3
    ada("stop", run)
    until(lambda: state(ada, run)["state"], lambda each: each == "stopped")


def test_a_full_disk_is_said_and_resume_goes_on_once_there_is_room(
    lab: Lab, ada: Causeway, folder: Path
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
        run = started(ada("run", "--on", "titan-01", "--json", "-d", "--", "python3", "train.py"))
        full = until(lambda: state(ada, run), lambda each: each["state"] == "failed")
        assert "the disk of titan-01 is full" in full["reason"]
        assert f"causeway resume {run}" in ada("why", run).out
        host.run(f"rm {runs}/{run}/results/big")
        assert ada("resume", run).code == 0
        until(lambda: state(ada, run)["state"], lambda found: found == "done")
        assert "has room" in ada("logs", run).out
    finally:
        host.run(f"umount -l {runs}")


def _image(folder: Path) -> Path:
    """A root folder as a tar file: this machine's Python and shell, and what they are linked with."""
    script = """
    set -e
    copy() { for each in "$@"; do mkdir -p "$root/$(dirname "$each")"; cp -L "$each" "$root$each"; done; }
    python=$(readlink -f /usr/bin/python3) version=$(basename "$(readlink -f /usr/bin/python3)")
    mkdir -p "$root/usr/lib/$version" "$root/tmp" "$root/etc" "$root/proc" "$root/sys" "$root/dev" "$root/run"
    tar -C "/usr/lib/$version" --exclude=__pycache__ --exclude=test --exclude='config-*' -c . |
      tar -x -C "$root/usr/lib/$version"
    chmod 1777 "$root/tmp"
    copy "$python" /bin/bash /bin/sh
    for each in "$python" /bin/bash "/usr/lib/$version"/lib-dynload/*.so; do
      ldd "$each" | grep -o '/[^ ]*' || true
    done | sort -u | while read -r each; do copy "$each"; done
    ln -s "$version" "$root/usr/bin/python3"
    tar -C "$root" -cf "$root.tar" .
    """
    root = folder / "root"
    subprocess.run(["bash", "-c", script], env={"root": str(root), "PATH": os.environ["PATH"]}, check=True)
    return root.with_suffix(".tar")


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman not found (package podman)")
def test_a_container_by_podman_ends_with_its_unit(
    lab: Lab, ada: Causeway, folder: Path, tmp_path: Path
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
        run = started(
            ada("run", "--on", "titan-01", "--json", "-d", *words, "--", "python3", "train.py", "10000")
        )
        said(ada, run, "step 3")
        ada("stop", run)
        until(lambda: state(ada, run)["state"], lambda each: each == "stopped")
        last = re.findall(r"step (\d+)", ada("logs", run).out)[-1]
        assert ada("resume", run).code == 0
        said(ada, run, f"begins at {last}")
        # Killed, it takes the container along.
        host.run("pkill -KILL -u ada -f 'kit worker'")
        until(lambda: host.run("pgrep -u ada -f train.py").stdout, lambda pids: not pids)
        assert state(ada, run)["state"] == "failed"
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
        until(lambda: ada("logs", run).out, lambda text: text.count("saved") == 2)
        kept = lab["one"].home("ada") / RUNS / run / "kept/manifests"
        until(lambda: len([*kept.glob("*/*.json")]), lambda count: count == 2)
        ada("stop", run)
        until(lambda: state(ada, run)["state"], lambda each: each == "stopped")
        assert "from its last checkpoint" in ada("resume", run).out
        text = until(lambda: ada("logs", run).out, lambda text: text.count("has") == 2)
        assert text.count("has ['part-0', 'part-1']") == 2
        until(lambda: state(ada, run)["state"], lambda each: each == "done")


def test_parts_of_checkpoints_need_one_home(ada: Causeway, folder: Path) -> None:
    (folder / "job.yaml").write_text("run: 'true'\nnodes: 2\ncheckpoints: {sharded: true}\nlauncher: none\n")
    done = ada("run", "job.yaml", "--on", "titan-01,titan-02")
    assert (done.code, "titan-01, titan-02 do not share a home" in done.err) == (1, True)


def test_nothing_is_left_where_one_machine_fails(lab: Lab, ada: Causeway, folder: Path) -> None:
    results = "open(os.path.join(os.environ['CAUSEWAY_RESULTS'], 'out'), 'w').write(os.uname().nodename)"
    program(folder, f"import os; print('never'); {results}")
    both = ("--on", "titan-01,titan-02", "--nodes", "2", "--launcher", "none", "--name", "half")
    run = ("run", *both, "--", "python3", "train.py")
    one, other = lab["titan-01"], lab["titan-02"]

    def left() -> list[str]:
        paths = [path for host in (one, other) for path in (host.home("ada") / RUNS).glob("half*")]
        listed = one.systemctl("ada", "list-units --no-legend --state=active 'causeway-half*'")
        return [*map(str, paths), *listed.stdout.splitlines()]

    # The second one's systemd starts nothing, when the first one's has.
    broken = "#!/bin/sh\\necho no more >&2; exit 1\\n"
    other.run(f"printf '{broken}' > /run/programs/systemd-run; chmod 755 /run/programs/*")
    done = ada(*run)
    assert (done.code, "titan-02: systemd-run: no more" in done.err) == (1, True), done.err
    assert left() == []
    other.run("rm /run/programs/systemd-run")
    # They do not reach one another.
    one.run("ip link set rack down")
    done = ada(*run)
    assert "titan-02 can't reach titan-01, at " in done.err
    assert "a firewall between them?" in done.err
    assert left() == []
    one.run("ip link set rack up")
    done = ada(*run)
    assert done.code == 0, done.err
    assert done.out.count("never") == 2
    # What several machines left is apart.
    assert ada("get", "half-on-1", "--to", "all").code == 0
    assert (folder / "all/out").read_text() == "titan-01"
    assert (folder / "all/titan-02/out").read_text() == "titan-02"
    assert "has no plots in its results" in ada("get", "half-on-1", "plots").err


def test_errors_name_the_machine_and_the_fix(lab: Lab, ada: Causeway, folder: Path, tmp_path: Path) -> None:
    other = lab["titan-02"]
    run = ("run", "--on", "titan-01,titan-02", "--", "true")
    other.linger("ada", on=False)
    done = ada(*run)
    assert "titan-02: lingering is off" in done.err
    assert "sudo loginctl enable-linger ada" in done.err
    other.linger("ada", on=True)
    small = "mkdir -p {0} && mount -t tmpfs -o size=1m none {0} && chown ada {0}"
    other.run(small.format("/home/ada/.local"))
    done = ada(*run)
    assert "titan-02: the disk is full" in done.err
    other.run("umount /home/ada/.local")
    other.run("""echo '{"fault": "NVIDIA-SMI has failed: no driver"}' > /run/gpus.json""")
    assert "titan-02: nvidia-smi: NVIDIA-SMI has failed: no driver" in ada(*run).err
    other.gpus(2)
    other.run("ln -s /bin/false /run/programs/systemctl")
    assert "titan-02: systemctl --user: " in ada(*run).err
    other.run("rm /run/programs/systemctl")
    keys = other.home("ada") / ".ssh/authorized_keys"
    # A connection that is open would be used again.
    lab_ada = lab.laptop("ada", folder, ada.environment, name="fresh")  # type: ignore[attr-defined]
    keys.rename(keys.with_name("away"))
    done = lab_ada(*run)
    assert done.code == 3
    assert "titan-02: " in done.err
    assert "ssh-copy-id titan-02" in done.err
    keys.with_name("away").rename(keys)
    done = ada("run", "--on", "no-such-machine", "--", "true")
    assert done.code == 3
    assert "no-such-machine: " in done.err
    (folder / "requirements.txt").write_text("x\n")
    assert "titan-01: uv not found" in ada("run", "--python", "requirements.txt", *run[1:]).err
    (folder / "job.yaml").write_text("run: x\nsecrets: {wandb: WANDB_API_KEY}\n")
    done = ada("run", "job.yaml", "--on", "titan-01")
    assert (done.code, "job.yaml:2: secrets: WANDB_API_KEY is not set" in done.err) == (2, True)
    assert ada("run", "--on", "-oProxyCommand=x", "--", "true").code == 2
    assert ada("run", "--local", "--on", "titan-01", "--", "true").code == 2
    assert ada("run", "--each", "seed=1,2", "--on", "titan-01", "--", "echo", "{seed}").code == 2
