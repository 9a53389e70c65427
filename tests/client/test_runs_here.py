"""Runs of this machine are runs: listed, explained, followed, stopped; and their old code goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from client.process import Causeway, program
from waiting import until

from causeway.holding import ask_to_end, begun_of
from causeway.local import new_folder, remove_old_code

_WAITS = """
    import os, pathlib, signal, sys, time
    def end(*_):
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("begun", flush=True)
    print("unended", end="", flush=True)
    while True:
        time.sleep(0.05)
"""


def begin(
    folder: Path, environment: Mapping[str, str], command: list[str], *arguments: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "run", "--local", "--name", "long", *arguments, "--", "python3", "train.py"],
        cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def state(causeway: Causeway, name: str) -> str:
    return str(causeway("why", name, "--json").json["state"])


def test_without_a_kubeconfig_runs_are_those_of_this_machine(
    causeway: Causeway, folder: Path, tmp_path: Path
) -> None:
    assert (causeway("ps").code, causeway("ps", "--json").out) == (0, "[]\n")
    program(
        folder,
        """
        import os, pathlib
        results = pathlib.Path(os.environ["CAUSEWAY_RESULTS"], "plots")
        results.mkdir()
        (results / "loss.txt").write_text("loss")
        print("said")
        raise ValueError("diverged")
        """,
    )
    assert causeway("run", "--local", "--", "python3", "train.py").code == 1
    (row,) = json.loads(causeway("ps", "--json").out)
    assert (row["name"], row["state"]) == ("project-1", "failed")
    assert "project-1" in causeway("ps").out
    why = causeway("why", "project-1", "--json").json
    assert why["first_failure"]["lines"][-1] == "ValueError: diverged"
    assert "diverged" in causeway("why", "project-1").out
    assert "said" in causeway("logs", "project-1").out.splitlines()
    followed = causeway("logs", "-f", "project-1", "--json")
    assert (followed.code, json.loads(followed.out.splitlines()[0])["line"]) == (1, "said")
    assert causeway("logs", "project-1", "--worker", "worker-9").code == 2
    got = causeway("get", "project-1", "plots", "--to", str(tmp_path / "there"), "--json")
    assert (got.json["files"], got.json["fetched"]) == (1, 1)
    assert (tmp_path / "there/plots/loss.txt").read_text() == "loss"
    assert causeway("get", "project-1", "--to", str(tmp_path / "there"), "--json").json["fetched"] == 0
    assert causeway("get", "project-1", "../../..").code == 2
    assert causeway("code", "project-1", str(tmp_path / "back")).code == 0
    assert (tmp_path / "back/train.py").read_text() == (folder / "train.py").read_text()
    program(folder, "print('edited')")
    (difference,) = json.loads(causeway("code", "project-1", "--diff", "--json").out)
    assert difference["change"] == "changed"
    for verb in ("show", "why", "logs", "stop", "get", "code", "resume", "rerun"):
        assert causeway(verb, "never-1").code == 1, verb


def test_where_a_kubeconfig_is_named_runs_are_the_clusters_and_local_is_this_machine(
    causeway: Causeway, environment: Mapping[str, str], folder: Path, command: list[str]
) -> None:
    assert causeway("run", "--local", "--", "true").code == 0
    env = {**environment, "KUBECONFIG": str(folder / "none")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], cwd=folder, env=env, capture_output=True, text=True)

    for verb in (["ps"], ["why", "project-1"], ["logs", "project-1"], ["stop", "project-1"]):
        assert run(*verb).returncode == 3, verb
        assert run(*verb, "--local").returncode == 0, verb
    assert run("ps", "--local", "--group", "vision").returncode == 2
    lost = run("run", "--", "true")
    assert (lost.returncode, "--local" in lost.stderr) == (3, True)


def test_a_run_is_followed_and_stopped_by_its_name(
    causeway: Causeway, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, _WAITS)
    with begin(folder, environment, command) as process:
        until(lambda: "begun" in causeway("logs", "long-1").out)
        assert state(causeway, "long-1") == "running"
        with subprocess.Popen(
            [*command, "logs", "-f", "long-1"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as follows:
            assert follows.stdout is not None
            assert follows.stdout.readline() == "begun\n"
            stopped = causeway("stop", "long-1", "--json")
            assert (stopped.code, json.loads(stopped.out)) == (0, [{"run": "long-1", "changed": True}])
            rest = follows.stdout.read().splitlines()
            assert (rest[0], follows.wait(60)) == ("unendedsaved", 1)
        assert process.wait(60) == 130
    assert state(causeway, "long-1") == "stopped"
    assert "causeway resume --local long-1" in causeway("why", "long-1").out
    assert json.loads(causeway("stop", "long-1", "--json").out) == [{"run": "long-1", "changed": False}]


def test_workers_whose_run_was_killed_are_stopped(
    causeway: Causeway, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, _WAITS)
    with begin(folder, environment, command) as process:
        until(lambda: "begun" in causeway("logs", "long-1").out)
        process.kill()
    assert state(causeway, "long-1") == "running"
    assert causeway("stop", "long-1").code == 0
    assert state(causeway, "long-1") == "stopped"


def test_a_process_that_only_has_the_number_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        begun = begun_of(other.pid)
        (tmp_path / "process.json").write_text(json.dumps([{"pid": other.pid, "begun": f"{begun}0"}]))
        assert not ask_to_end(tmp_path)
        (tmp_path / "process.json").write_text(json.dumps([{"pid": other.pid, "begun": begun}]))
        assert ask_to_end(tmp_path)
        assert other.wait(60) == -signal.SIGTERM
    assert begun_of(other.pid) == ""


def test_code_of_old_runs_is_removed_and_what_may_be_needed_stays(tmp_path: Path) -> None:
    now = time.time()
    for number in range(60):
        run = tmp_path / f"r-{number}"
        (run / "code").mkdir(parents=True)
        for name in ("code.tar.gz", "code/train.py", "results", "lock"):
            (run / name).write_text("")
        # The higher its number, the older it is.
        record = {"started": now - (number + 1) * 86400, "ended": {"state": "done", "at": 0}}
        if number == 51:
            record["ended"] = {"state": "failed", "at": 0}
        elif number == 52:
            record["ended"] = {"state": "done", "at": now - 13 * 86400}
        (run / "run.json").write_text(json.dumps(record))
    with subprocess.Popen(
        ["flock", str(tmp_path / "r-53/lock"), "sh", "-c", "echo held; exec sleep 600"],
        stdout=subprocess.PIPE, process_group=0,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            remove_old_code(tmp_path)
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
    kept = {
        name: {int(path.parent.name.removeprefix("r-")) for path in tmp_path.glob(f"*/{name}")}
        for name in ("code", "code.tar.gz", "results")
    }
    assert kept["results"] == {*range(60)}
    assert kept["code"] == {*range(50), 52, 53}
    assert kept["code.tar.gz"] == {*range(50), 51, 52, 53}


def test_a_run_whose_code_is_gone_is_not_repeated(causeway: Causeway, folder: Path) -> None:
    program(folder, "print('ran')")
    done = causeway("run", "--local", "--json", "--", "python3", "train.py")
    Path(done.json["folder"], "code.tar.gz").unlink()
    for exact in ((), ("--exact",)):
        assert causeway("rerun", "--local", "project-1", *exact).code == 1
    assert [run["name"] for run in json.loads(causeway("ps", "--json").out)] == ["project-1"]


def test_a_run_is_nobody_elses_to_read(tmp_path: Path) -> None:
    """Its record has the job's variables: a notebook's token is one of them."""
    before = os.umask(0o022)
    try:
        folder = new_folder("notebook", tmp_path / "runs")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_run_has_the_seconds_of_all_its_starts(causeway: Causeway, folder: Path) -> None:
    program(folder, "import time; time.sleep(0.5)")
    first = causeway("run", "--local", "--json", "--", "python3", "train.py").json
    again = causeway("resume", "project-1", "--json").json
    total = causeway("show", "project-1", "--json").json["seconds"]
    assert total == pytest.approx(first["seconds"] + again["seconds"], abs=0.01)


def test_a_run_whose_packages_can_not_be_installed_has_failed_and_says_why(
    causeway: Causeway, folder: Path
) -> None:
    program(folder, "print('never')")
    (folder / "requirements.txt").write_text("./no-such-folder\n")
    done = causeway("run", "--local", "--python", "requirements.txt", "--", "python3", "train.py")
    assert done.code == 1
    assert state(causeway, "project-1") == "failed"
    assert causeway("why", "project-1").out.splitlines()[1].strip() in done.err
