"""The runtime as a process: environment, signals, and what is written down of an end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from causeway import runtime


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    status: Mapping[str, Any]


def start(tmp_path: Path, script: str, **env: str) -> subprocess.Popen[str]:
    own = {"PATH": os.environ["PATH"], "CAUSEWAY_STATUS": str(tmp_path / "status"), **env}
    command = [sys.executable, runtime.__file__, script]
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True, start_new_session=True)


def end(tmp_path: Path, process: subprocess.Popen[str]) -> Ended:
    out, _ = process.communicate(timeout=60)
    return Ended(process.returncode, out, json.loads((tmp_path / "status").read_text(encoding="utf-8")))


def run(tmp_path: Path, script: str, **env: str) -> Ended:
    return end(tmp_path, start(tmp_path, script, **env))


HOSTS = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}


def test_done(tmp_path: Path) -> None:
    ended = run(tmp_path, "echo one; echo two >&2")
    assert (ended.code, ended.out.splitlines()) == (0, ["one", "two"])
    assert (ended.status["exit"], ended.status["lines"], ended.status["role"]) == (0, [], "worker")


READY = "echo ready; while :; do sleep 0.05; done"
"""The end of a script that is asked to stop."""


def ready(process: subprocess.Popen[str], line: str = "ready") -> None:
    """Waits for a line of its output."""
    assert process.stdout is not None
    while process.stdout.readline() != f"{line}\n":
        assert process.poll() is None


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_script_ends_at_its_first_failure_and_may_read_what_is_not_set(tmp_path: Path, shell: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / shell).symlink_to(str(shutil.which(shell)))
    ended = run(tmp_path, 'echo "a$LD_LIBRARY_PATH"; (exit 3); echo b', PATH=str(programs))
    assert (ended.code, ended.out.splitlines()) == (3, ["a"])


def test_a_failure_keeps_its_code_and_last_lines(tmp_path: Path) -> None:
    ended = run(tmp_path, "seq 1 30; echo; exit 3", JOB_COMPLETION_INDEX="2")
    assert ended.code == 3
    assert ended.status["rank"] == 2
    assert ended.status["lines"] == [str(n) for n in range(11, 31)]
    assert abs(ended.status["at"] - time.time()) < 60


def test_a_pipe_that_fails_fails_the_command(tmp_path: Path) -> None:
    assert run(tmp_path, "false | true").code == 1


def test_a_signal_that_ended_it_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, "kill -SEGV $$")
    assert (ended.code, ended.status["signal"]) == (128 + signal.SIGSEGV, "SIGSEGV")


def test_only_what_the_kernel_says_is_out_of_memory_and_another_sigkill_is_a_failure(tmp_path: Path) -> None:
    """Of a pod, of a systemd service, and of a terminal's session, whose other programs are not the run's."""
    own = tmp_path / "own"
    for path, counts in (
        ("/", True),
        ("/user.slice/run.service", True),
        ("/user.slice/session-3.scope", False),
    ):
        own.write_text(f"4:memory:/old\n0::{path}\n")
        place = tmp_path / "cgroup" / path[1:]
        place.mkdir(parents=True, exist_ok=True)
        assert runtime.oom_kills(str(tmp_path / "cgroup"), str(own)) == 0
        (place / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0\n")
        assert runtime.oom_kills(str(tmp_path / "cgroup"), str(own)) == (2 if counts else 0)
    assert runtime.oom_kills(str(tmp_path / "cgroup"), str(tmp_path / "none")) == 0
    for code, out_of_memory, wanted in (
        (-9, False, (137, "SIGKILL", None)),
        (-9, True, (78, "SIGKILL", runtime.OUT_OF_MEMORY)),
        # A launcher fails after the rank that it lost; a program that does without its process is done.
        (1, True, (78, None, runtime.OUT_OF_MEMORY)),
        (0, True, (0, None, None)),
    ):
        exits, status = runtime.summary(code, None, [], None, out_of_memory)
        assert (exits, status.get("signal"), status.get("reason")) == wanted
    assert runtime.summary(-9, time.time(), [], None, True)[0] == 75, "it was asked to stop"


def test_a_process_that_was_killed_long_ago_is_not_why_a_program_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, kills = 1000.0, 3
    monkeypatch.setattr(runtime, "oom_kills", lambda: kills)
    monkeypatch.setattr(runtime, "time", SimpleNamespace(monotonic=lambda: now))
    memory = runtime.OutOfMemory()
    assert not memory.ended_it()
    kills, now = 4, 1010.0
    assert memory.ended_it()
    now = 1080.0
    assert not memory.ended_it()


@pytest.mark.parametrize("how", ["-c 'import {}'", "-m {}", "-m {}.part"])
def test_a_module_that_is_not_there_will_be_missing_again(tmp_path: Path, how: str) -> None:
    """Of a program that it lacks itself Python says so without an exception."""
    ended = run(tmp_path, f"{sys.executable} {how.format('nothing_there')}")
    assert ended.code == runtime.NEVER_WORKS
    assert "nothing_there" in ended.status["reason"]


@pytest.mark.parametrize("code", [0, 1])
def test_a_program_that_is_asked_to_stop_may_save_and_is_neither_done_nor_failed(
    tmp_path: Path, code: int
) -> None:
    script = f"trap 'test -e $CAUSEWAY_STOP && echo saved; exit {code}' TERM; {READY}"
    process = start(tmp_path, script, CAUSEWAY_STOP=str(tmp_path / "stop"))
    ready(process)
    process.terminate()
    ended = end(tmp_path, process)
    # The shell may say of its child that it was terminated.
    assert (ended.code, ended.out.splitlines()[-1]) == (runtime.STOPPED, "saved")
    assert ended.status["exit"] == runtime.STOPPED


def test_what_failed_before_it_was_asked_to_stop_failed_by_itself(tmp_path: Path) -> None:
    """A launcher ends some time after the rank that failed; until then another worker's end may stop it."""
    process = start(tmp_path, f"trap 'exit 1' TERM; {sys.executable} -c 'raise ValueError(1)' || {READY}")
    ready(process)
    process.terminate()
    ended = end(tmp_path, process)
    assert (ended.code, ended.status["lines"][-1]) == (1, "ValueError: 1")


def test_what_failed_as_it_was_asked_to_stop_was_stopped(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: 1 / 0);"
        " print('ready'); time.sleep(60)"
    )
    process = start(tmp_path, f'exec {sys.executable} -uc "{script}"')
    ready(process)
    process.terminate()
    assert end(tmp_path, process).code == runtime.STOPPED


def test_who_asks_twice_kills(tmp_path: Path) -> None:
    process = start(tmp_path, f"trap '' TERM; {READY}")
    ready(process)
    process.terminate()
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    assert end(tmp_path, process).code == runtime.STOPPED


def test_what_a_command_left_behind_ends_with_it(tmp_path: Path) -> None:
    ended = run(tmp_path, "sleep 300 & echo $!")
    assert ended.code == 0
    left = int(ended.out)
    # Whether process 1 of this machine reaps it is not ours to say.
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_a_status_fits_a_termination_message(tmp_path: Path) -> None:
    ended = run(tmp_path, f"{sys.executable} -c 'for n in range(20): print(chr(0x1f600) * 400)'; exit 1")
    assert (tmp_path / "status").stat().st_size <= 4096
    assert ended.status["lines"]


_ALONE: dict[str, str | None] = dict.fromkeys(("RANK", "WORLD_SIZE", "MASTER_ADDR", "TF_CONFIG"))
_OF_TWO = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
_TORCHRUN = {"CAUSEWAY_LAUNCHER": "torchrun", "JOB_COMPLETION_INDEX": "1"}
_INSTALLED = {"CAUSEWAY_CODE": "/code", "PYTHONPATH": "/x", "CAUSEWAY_PYTHON": "/env", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("hosts", "given", "wanted"),
    [
        ({"worker": ["a:1"]}, {}, _ALONE),
        (HOSTS, {"CAUSEWAY_RANK": "1"}, {"RANK": "1", **_OF_TWO}),
        # It makes the ranks itself.
        (HOSTS, _TORCHRUN, {"NODE_RANK": "1", "CAUSEWAY_RANK": "1", "RANK": None}),
        # Code and packages come first.
        ({}, _INSTALLED, {"PYTHONPATH": "/code:/x", "PATH": "/env/bin:/bin", "VIRTUAL_ENV": "/env"}),
    ],
)
def test_the_environment_of_a_program(
    hosts: dict[str, list[str]], given: dict[str, str], wanted: dict[str, str | None]
) -> None:
    env = runtime.environment({**given, **({"CAUSEWAY_HOSTS": json.dumps(hosts)} if hosts else {})})
    assert {name: env.get(name) for name in wanted} == wanted


def test_tensorflow_gets_its_cluster_without_the_evaluator() -> None:
    hosts = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"], "evaluator": ["e:1"]}
    given = {
        "CAUSEWAY_HOSTS": json.dumps(hosts),
        "CAUSEWAY_LAUNCHER": "tensorflow",
        "CAUSEWAY_ROLE": "worker",
    }
    config = json.loads(runtime.environment({**given, "CAUSEWAY_RANK": "1"})["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert [*config["cluster"]] == ["chief", "worker", "ps"]
    assert runtime.environment(given)["MASTER_ADDR"] == "c"


def test_a_first_worker_without_an_address_is_said() -> None:
    assert not runtime.wait_for_name("no-such-host.invalid", seconds=0)
    assert runtime.wait_for_name("127.0.0.1", seconds=0)


def test_of_several_processes_the_first_that_failed_counts(tmp_path: Path) -> None:
    script = f"""
        one() {{
            RANK=$1 {sys.executable} -c "import time; time.sleep($2); raise ValueError('rank $1')"
        }}
        one 0 1 & one 1 0 & wait -n || true
        wait
        echo noise
        exit 1
    """
    ended = run(tmp_path, script)
    assert (ended.status["process"], ended.status["lines"][-1]) == (1, "ValueError: rank 1")


_MLFLOW = "http://127.0.0.1:5757"


@pytest.mark.parametrize(
    ("more", "logged"),
    [
        ({}, [_MLFLOW, f"{_MLFLOW}/others"]),
        ({"CAUSEWAY_RANK": "1"}, [f"{_MLFLOW}/others"] * 2),
        ({"CAUSEWAY_ROLE": "ps"}, [f"{_MLFLOW}/others"] * 2),
        ({"MLFLOW_TRACKING_URI": "http://mine"}, ["http://mine"] * 2),
    ],
)
def test_of_all_ranks_the_first_of_the_first_worker_logs(
    tmp_path: Path, more: dict[str, str], logged: list[str]
) -> None:
    """``RANK`` as a launcher sets it for each of its processes."""
    said = f"{sys.executable} -c \"import os; print(os.environ['MLFLOW_TRACKING_URI'])\""
    given = {
        "CAUSEWAY_TRACKING_URI": _MLFLOW, "CAUSEWAY_TRACKED_WORKER": "worker-0", "CAUSEWAY_MLFLOW": "{}",
        "CAUSEWAY_MLFLOW_RUN_ID": "uid",
    }  # fmt: skip
    ended = run(tmp_path, f"RANK=0 {said}; RANK=1 {said}", **{**given, **more})
    assert ended.out.split() == logged


def test_mlflow_is_set_up_by_the_runtime_and_a_jobs_own_variables_win(tmp_path: Path) -> None:
    names = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_DISABLE_TELEMETRY")
    given = {
        "CAUSEWAY_TRACKING_URI": _MLFLOW, "CAUSEWAY_MLFLOW_RUN_ID": "uid",
        "CAUSEWAY_MLFLOW": '{"MLFLOW_EXPERIMENT_NAME": "vision", "MLFLOW_DISABLE_TELEMETRY": "true"}',
        "MLFLOW_DISABLE_TELEMETRY": "false",
    }  # fmt: skip
    ended = run(tmp_path, f"for name in {' '.join(names)}; do printenv $name; done", **given)
    assert ended.out.split() == ["uid", "vision", "false"]


def test_the_images_own_sitecustomize_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.word = 'own'")
    script = f"{sys.executable} -c 'print(word); raise SystemExit(3)'"
    ended = run(tmp_path, script, PYTHONPATH=str(tmp_path))
    assert (ended.code, ended.out, ended.status["lines"]) == (3, "own\n", ["own"])


def test_output_is_kept_in_parts_with_times_and_the_end_beside_it(tmp_path: Path) -> None:
    kept = tmp_path / "output"
    kept.mkdir()
    big = "print('x' * 5_000_000, flush=True)"
    ended = run(
        tmp_path, f"{sys.executable} -c \"{big};{big};print('last')\"; printf end", CAUSEWAY_OUTPUT=str(kept)
    )
    assert ended.code == 0
    first, second = sorted(kept.glob("*.log"))
    assert first.name == "000001.log"
    assert first.stat().st_size > runtime.PART
    lines = second.read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["last", "end"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.split(" ")[0]) for line in lines)
    assert json.loads((kept / "ended.json").read_text())["exit"] == 0


def test_a_folder_that_takes_nothing_stops_nobody(tmp_path: Path) -> None:
    ended = run(tmp_path, "echo on", CAUSEWAY_OUTPUT=str(tmp_path / "missing"))
    assert (ended.code, ended.out) == (0, "on\n")


def test_a_worker_that_does_nothing_is_ended_and_one_that_works_is_not(tmp_path: Path) -> None:
    idle = run(tmp_path, "sleep 600", CAUSEWAY_IDLE="2", CAUSEWAY_GPUS="0")
    assert (idle.code, "idle" in idle.status["reason"]) == (runtime.NEVER_WORKS, True)
    busy = "import time\nuntil = time.time() + 6\nwhile time.time() < until: pass"
    assert run(tmp_path, f"{sys.executable} -c '{busy}'", CAUSEWAY_IDLE="2", CAUSEWAY_GPUS="0").code == 0


@pytest.mark.parametrize(("percent", "code"), [("1", runtime.NEVER_WORKS), ("1\n97", 0), ("[N/A]", 0)])
def test_gpus_are_asked_what_they_do(tmp_path: Path, percent: str, code: int) -> None:
    """By a stand-in for nvidia-smi: there is no GPU here."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '{percent}\\n'\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    assert run(tmp_path, "sleep 4", CAUSEWAY_IDLE="1", CAUSEWAY_GPUS="2", PATH=path).code == code


def test_a_command_beside_it_has_its_environment_and_folder(tmp_path: Path) -> None:
    own = {"PATH": os.environ["PATH"], "CAUSEWAY_CODE": str(tmp_path), "CAUSEWAY_HOSTS": json.dumps(HOSTS)}
    own["JOB_COMPLETION_INDEX"] = "1"
    command = [sys.executable, runtime.__file__, "--exec", "sh", "-c", "echo $MASTER_ADDR $RANK; pwd; exit 4"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.split()) == (4, ["127.0.0.1", "1", str(tmp_path)])


def test_who_leaves_a_shell_has_done_with_it_and_who_is_cut_off_has_not(tmp_path: Path) -> None:
    mine = tmp_path / "runtime.py"
    shutil.copy(runtime.__file__, mine)
    for last, left in (("kill -KILL $$", False), ("exit 3", True)):
        subprocess.run(
            [sys.executable, str(mine), "--shell"],
            input=last, text=True, env={"PATH": os.environ["PATH"]}, check=False, timeout=60,
        )  # fmt: skip
        assert (tmp_path / "left").exists() == left


def test_what_is_used_is_noted_and_a_gpu_that_does_not_answer_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cgroup v2 in a folder: a test is in no container. ``nvidia-smi`` fails, as without a driver."""
    programs, cgroup, notes = tmp_path / "bin", tmp_path / "cgroup", tmp_path / "usage.jsonl"
    for folder in (programs, cgroup):
        folder.mkdir()
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nexit 9\n")
    (programs / "nvidia-smi").chmod(0o755)
    (cgroup / "memory.current").write_text("5000000\n")
    (cgroup / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    (cgroup / "cpu.stat").write_text("usage_usec 1000000\nuser_usec 1\n")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(runtime.Usage, "EVERY", 0.1)
    # Its output ends once three samples are there, and the thread with it.
    script = f'until [ "$(grep -c cpus {notes})" -ge 3 ]; do sleep 0.1; done'
    process = subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL)
    watch = threading.Thread(target=runtime.Usage(str(notes), 1, str(cgroup)).watch, args=(process,))
    watch.start()
    assert process.wait(60) == 0
    watch.join(60)
    samples = [json.loads(line) for line in notes.read_text().splitlines()][1:]
    assert {each["memory"] for each in samples} == {4000000}
    assert {each["cpus"] for each in samples} == {0.0}
    assert not any("gpus" in each for each in samples)
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_disk_that_is_full_keeps_no_program_from_running(tmp_path: Path) -> None:
    ended = run(tmp_path, "sleep 3; echo done", CAUSEWAY_USAGE="/dev/full")
    assert (ended.code, ended.out) == (0, "done\n")


def _library(folder: Path, name: str) -> dict[str, str]:
    """An environment in which the loader finds a library of that name: any that is one."""
    folder.mkdir(exist_ok=True)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    libc = next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-" in line)
    shutil.copy(libc, folder / name)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize(
    ("name", "more", "chosen"),
    [
        ("libnccl-net.so", {}, ""),
        ("libnccl-net-ofi.so", {}, "ofi"),
        ("libnccl-net-own.so", {"NCCL_NET_PLUGIN": "own"}, "own"),
        ("libelse.so", {"NCCL_NET_PLUGIN": "none"}, "none"),
    ],
)
def test_nccls_plugin_for_efa_is_found_as_nccl_finds_it(
    tmp_path: Path, name: str, more: dict[str, str], chosen: str
) -> None:
    env = {"CAUSEWAY_EFA": "4", "CAUSEWAY_HOSTS": json.dumps(HOSTS), "JOB_COMPLETION_INDEX": "0", **more}
    ended = run(tmp_path, "echo plugin=${NCCL_NET_PLUGIN:-}", **env, **_library(tmp_path / "lib", name))
    assert ended.out.splitlines() == [f"plugin={chosen}"]


def test_an_image_without_nccls_plugin_is_told_once_and_runs(tmp_path: Path) -> None:
    env = {"CAUSEWAY_EFA": "4", "CAUSEWAY_HOSTS": json.dumps(HOSTS)}
    first, second = (run(tmp_path, "echo ran", **env, JOB_COMPLETION_INDEX=rank) for rank in "01")
    assert (first.code, second.code) == (0, 0)
    assert "libnccl-net.so" in first.out
    assert first.out.splitlines()[-1] == "ran"
    assert second.out.splitlines() == ["ran"]
    # A broken plugin is none; a worker that is alone talks to nobody.
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnccl-net.so").write_text("no library")
    broken = run(tmp_path, "echo ran", **env, JOB_COMPLETION_INDEX="0", LD_LIBRARY_PATH=str(tmp_path / "lib"))
    assert len(broken.out.splitlines()) > 1
    assert run(tmp_path, "echo ran", CAUSEWAY_EFA="4").out.splitlines() == ["ran"]
