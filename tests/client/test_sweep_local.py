"""Searches of this machine: real processes, checkpoints and files; conductors killed; all trials failing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from client.pods import wait
from client.process import Causeway, program
from client.searched import SEARCH, TRAINS


@pytest.fixture
def search(folder: Path) -> Path:
    program(folder, TRAINS)
    (folder / "job.yaml").write_text(SEARCH)
    return folder


def shown(causeway: Causeway, name: str) -> Any:
    done = causeway("sweep", "show", "--local", name, "--json")
    assert done.code == 0, done.err
    return done.json


def runs(home: Path) -> dict[str, Any]:
    found = home.glob(".local/share/causeway/runs/*/run.json")
    return {path.parent.name: json.loads(path.read_text()) for path in found}


def test_bad_trials_are_stopped_early_and_the_best_is_found(
    causeway: Causeway, search: Path, home: Path
) -> None:
    done = causeway("sweep", "--local", "job.yaml", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["state"], [each["number"] for each in found["trials"]]) == ("done", [1, 2, 3, 4, 5, 6])
    ended = {each["number"]: each for each in found["trials"]}
    assert {each["state"] for each in found["trials"]} >= {"done", "paused"}
    assert all(each["step"] == 9 for each in found["trials"] if each["state"] == "done")
    assert ended[found["best"]]["state"] == "done"
    assert {*runs(home)} == {f"toy-s1-{number}" for number in ended}
    # A trial has its parameters in its command, and is a run like others.
    known = causeway("show", "--local", f"toy-s1-{found['best']}", "--json").json
    assert known["job"]["run"] == f"python3 train.py --lr {ended[found['best']]['parameters']['lr']}"
    assert known["parameters"] == {"lr": str(ended[found["best"]]["parameters"]["lr"])}
    again = causeway(*found["repeat"].split()[1:], "--json")
    assert (again.code, runs(home)[again.json["run"]]["job"]["run"]) == (0, known["job"]["run"])
    page = search / "toy.html"
    assert causeway("sweep", "show", "--local", "toy-s1", "--html", str(page)).code == 0
    assert page.read_text().count("<path") == 12
    assert causeway("sweep", "resume", "--local", "toy-s1").code == 1
    assert causeway("sweep", "extend", "--local", "toy-s1", "--trials", "6").code == 2
    more = causeway("sweep", "extend", "--local", "toy-s1", "--trials", "7", "--json")
    assert [each["number"] for each in more.json["trials"]] == [1, 2, 3, 4, 5, 6, 7]
    listed: Any = causeway("sweep", "show", "--local", "--json").json
    assert [each["sweep"] for each in listed] == ["toy-s1"]


def test_a_conductor_that_is_killed_again_and_again_loses_no_trial_and_repeats_none(
    causeway: Causeway, search: Path, home: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    words = [*command, "sweep", "--local", "job.yaml"]
    for pause in (0.5, 1.7, 2.9):
        process = subprocess.Popen(
            words, cwd=search, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        folder = home / ".local/share/causeway/sweeps/toy-s1"
        wait(lambda folder=folder: [*folder.glob("trials/*.json")])
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        words = [*command, "sweep", "resume", "--local", "toy-s1"]
        assert shown(causeway, "toy-s1")["state"] in ("stopped", "done")
    done = causeway("sweep", "resume", "--local", "toy-s1", "--json")
    found = done.json if done.code == 0 else shown(causeway, "toy-s1")
    assert (found["state"], [each["number"] for each in found["trials"]]) == ("done", [1, 2, 3, 4, 5, 6])
    # As without a kill: parameters are of the seed and the number, and none is in two states.
    program(search, TRAINS.replace("time.sleep(0.4)", ""))
    again = causeway("sweep", "--local", "job.yaml", "--json").json
    drawn = [[each["parameters"] for each in one["trials"]] for one in (found, again)]
    assert drawn[0] == drawn[1]
    for each in found["trials"]:
        output = (home / f".local/share/causeway/runs/{each['run']}/output.log").read_text()
        starts = [int(line.rpartition(" ")[2]) for line in output.splitlines() if "goes on" in line]
        assert starts[0] == 0
        # A start after the first comes from a checkpoint: no trial begins twice.
        assert all(start > 0 for start in starts[1:]), output


def test_stopped_by_a_person_it_goes_on_where_it_was(
    causeway: Causeway, search: Path, home: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    words = [*command, "sweep", "--local", "job.yaml"]
    with subprocess.Popen(words, cwd=search, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait(lambda: any(each["step"] > 1 for each in _trials(causeway)))
        assert causeway("sweep", "stop", "--local", "toy-s1").code == 0
        assert process.wait(60) == 130
    assert shown(causeway, "toy-s1")["state"] == "stopped"
    # One may have been asked before it began.
    ends = {each.get("ended", {}).get("state", "") for each in runs(home).values()}
    assert "stopped" in ends
    assert ends <= {"stopped", "done", ""}
    for name in runs(home):
        with (home / f".local/share/causeway/runs/{name}/lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nothing of it is left
    done = causeway("sweep", "resume", "--local", "toy-s1", "--json")
    assert (done.code, done.json["state"], len(done.json["trials"])) == (0, "done", 6)


def _trials(causeway: Causeway) -> list[Any]:
    done = causeway("sweep", "show", "--local", "toy-s1", "--json")
    return done.json["trials"] if done.code == 0 else []


def test_trials_that_all_fail_end_the_search_with_the_first_cause(
    causeway: Causeway, folder: Path, home: Path
) -> None:
    program(folder, "raise ValueError('diverged')")
    (folder / "job.yaml").write_text(SEARCH.replace("trials: 6", "trials: 6\n  fail_limit: 2"))
    done = causeway("sweep", "--local", "job.yaml", "--json")
    assert done.code == 1
    assert done.json["state"] == "failed"
    assert "ValueError: diverged" in done.json["reason"]
    assert len(done.json["trials"]) < 6
    # Records have the job's variables: nobody else reads them.
    places = [home / f".local/share/causeway/runs/{each['run']}" for each in done.json["trials"]]
    for place in [*places, *(home / ".local/share/causeway/sweeps").iterdir()]:
        assert place.stat().st_mode & 0o077 == 0, place
    # Once the cause is gone it may go on: failures before do not count again.
    again = causeway("sweep", "resume", "--local", "toy-s1", "--json")
    assert len(again.json["trials"]) > len(done.json["trials"])


def test_a_job_without_a_search_and_a_cluster_are_told_apart(causeway: Causeway, folder: Path) -> None:
    program(folder, "")
    (folder / "job.yaml").write_text("run: python3 train.py\n")
    plain = causeway("sweep", "--local", "job.yaml")
    assert (plain.code, "sweep: " in plain.err) == (2, True)
    (folder / "job.yaml").write_text("run: python3 train.py --lr {lr}\n")
    plain = causeway("sweep", "--local", "job.yaml")
    assert (plain.code, "sweep: " in plain.err) == (2, True), plain.err
    (folder / "job.yaml").write_text(SEARCH.replace("name: toy", f"name: {'a' * 40}"))
    long = causeway("sweep", "--local", "job.yaml")
    assert (long.code, "job.yaml:2: name" in long.err) == (2, True), long.err
    assert causeway("sweep", "show", "--local", "none-s1").code == 1


def test_without_a_kubeconfig_a_search_is_one_of_this_machine(causeway: Causeway, folder: Path) -> None:
    program(folder, "import causeway; causeway.report(1, other=1.0)")
    (folder / "job.yaml").write_text(SEARCH.replace("trials: 6", "trials: 2"))
    refused = causeway("sweep", "job.yaml")
    assert (refused.code, "causeway sweep --local" in refused.err) == (3, True), refused.err
    done = causeway("sweep", "--local", "job.yaml")
    assert (done.code, "causeway.report(step, loss=" in done.out) == (0, True), done.err
    for words in (("sweep", "show"), ("why",)):
        found = causeway(*words, "toy-s1", "--json")
        assert (found.code, found.json["sweep"], found.json["best"]) == (0, "toy-s1", None), found.err
    assert causeway("sweep", "extend", "toy-s1", "--trials", "3").code == 0
    assert causeway("sweep", "stop", "toy-s1").code == 0
    assert causeway("sweep", "resume", "toy-s1").code == 1
    exported = causeway("export", "--sweep", "toy-s1")
    assert (exported.code, "'toy-s1-*'" in exported.err) == (2, True)


def test_a_search_without_optuna_leaves_nothing(
    search: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from causeway.commands import sweep_local
    from causeway.commands.sweep import loaded_search
    from causeway.errors import CausewayError

    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    loaded = loaded_search(str(search / "job.yaml"), {}, {})
    with pytest.raises(CausewayError, match="optuna"):
        sweep_local.sweep_local(loaded, (), allow_secrets=False, as_json=False)
    assert not [*home.glob(".local/share/causeway/sweeps/*")]
