"""``causeway sweep --on`` on two machines (``ssh_hosts``): real sshd, ``systemd --user`` and Optuna."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from client.process import Laptop, program
from client.searched import SEARCH, TRAINS
from client.ssh_hosts import Lab, labs
from waiting import until

_SEARCH = (
    SEARCH.replace("gpus: 0", "gpus: 1")
    .replace("parallel: 3", "parallel: 5")
    .replace("trials: 6", "trials: 5")
)
"""Both machines have four GPUs."""
_HELD = _SEARCH.replace("max: 9", "min: 3, max: 9").replace("trials: 5", "trials: 4")
"""No trial is paused before its third step."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with labs(tmp_path_factory.mktemp("lab"), "titan-01", "titan-02") as lab:
        yield lab


@pytest.fixture(autouse=True)
def nothing_left(lab: Lab) -> Iterator[None]:
    """What a test leaves running would be in the way of the next one."""
    yield
    for host in lab.hosts.values():
        host.run("pkill -KILL -u ada,bob -f runtime.py; pkill -KILL -u ada,bob -f 'kit worker'")
        shutil.rmtree(host.home("ada") / ".local/share/causeway/machines/runs", ignore_errors=True)


@contextmanager
def held(lab: Lab) -> Iterator[None]:
    """Trials stay at their second step."""
    paths = [host.home("ada") / "held" for host in lab.hosts.values()]
    for path in paths:
        path.touch()
    try:
        yield
    finally:
        for path in paths:
            path.unlink()


@pytest.fixture
def ada(lab: Lab, folder: Path, environment: Mapping[str, str], tmp_path: Path) -> Laptop:
    program(folder, TRAINS.replace("time.sleep(0.4)", "time.sleep(0.1)"))
    (folder / "job.yaml").write_text(_SEARCH)
    # Each test has a laptop of its own, and searches of other names.
    often = {**environment, "CAUSEWAY_SWEEP_EVERY": "2"}
    return lab.laptop("ada", folder, often, name=tmp_path.name[-12:])


def shown(laptop: Laptop, name: str) -> Any:
    done = laptop("sweep", "show", name, "--json")
    assert done.code == 0, done.err
    return done.json


def trials(laptop: Laptop, name: str) -> list[Any]:
    done = laptop("sweep", "show", name, "--json")
    found: list[Any] = done.json["trials"] if done.code == 0 else []
    return found


@contextmanager
def conductor(ada: Laptop, *words: str) -> Iterator[subprocess.Popen[str]]:
    """``causeway sweep`` while it runs."""
    process = ada.begin("sweep", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def hosts_of_running(ada: Laptop) -> set[str]:
    listed: Any = ada("ps", "--json").json
    return {host for each in listed if each["state"] == "running" for host in each["hosts"]}


def starts(lab: Lab, run: str) -> list[int]:
    """From which step each start of a trial went on."""
    folder = f".local/share/causeway/machines/runs/{run}/starts"
    paths = [path for host in lab.hosts.values() for path in (host.home("ada") / folder).glob("*/*/*.log")]
    texts = [path.read_text() for path in sorted(paths, key=lambda path: int(path.parts[-3]))]
    return [int(step) for text in texts for step in re.findall(r"goes on from (\d+)", text)]


def test_a_search_has_as_many_trials_as_gpus_and_outlives_its_conductor(lab: Lab, ada: Laptop) -> None:
    # Throughout: a trial that finished between two conductors would start another one.
    with ExitStack() as hold:
        hold.enter_context(held(lab))
        with conductor(ada, "job.yaml", "--on", "titan-01,titan-02") as process:
            found = until(lambda: trials(ada, "toy-on-s1"), lambda each: len(each) >= 4)
            # Five may run at once.
            assert len([each for each in found if each["state"] == "running"]) <= 4
            until(lambda: [each for each in trials(ada, "toy-on-s1") if each["step"] >= 1])
            process.kill()
        assert shown(ada, "toy-on-s1")["state"] == "stopped"
        assert "resume toy-on-s1" in ada("why", "toy-on-s1").out
        # A trial is a run like others, with a GPU of its own.
        command = ada("why", "toy-on-s1-1", "--json").json["job"]["run"]
        assert re.fullmatch(r"python3 train.py --lr 0\.\d+", command)
        with conductor(ada, "resume", "toy-on-s1") as process:
            lost = min(until(lambda: hosts_of_running(ada)))
            lab[lost].kill()
            assert process.stdout is not None
            assert any(line.startswith(f"{lost}: ") for line in process.stdout), "it is not missed"
            lab[lost].boot()
            lab.connect()
            hold.close()
            text, _ = process.communicate(timeout=240)
            assert process.returncode == 0, text
    found = shown(ada, "toy-on-s1")
    assert (found["state"], [each["number"] for each in found["trials"]]) == ("done", [1, 2, 3, 4, 5])
    assert {each["state"] for each in found["trials"]} <= {"done", "paused"}
    assert all(each["step"] == 9 for each in found["trials"] if each["state"] == "done")
    assert found["best"] in {each["number"] for each in found["trials"] if each["state"] == "done"}
    begun = {each["run"]: starts(lab, each["run"]) for each in found["trials"]}
    # No trial began twice.
    assert all(steps[0] == 0 and 0 not in steps[1:] for steps in begun.values()), begun
    listed: Any = ada("ps", "--json").json
    assert {each["name"] for each in listed} == {*begun}
    assert ada("ps").out.count("toy-on-s1") == 1
    assert ada("ps", "--sweep", "toy-on-s1").out.count("toy-on-s1-") == 5


def test_ctrl_c_lets_go_and_stop_stops(lab: Lab, ada: Laptop, folder: Path) -> None:
    (folder / "job.yaml").write_text(_HELD.replace("name: toy", "name: held"))
    with held(lab):
        with conductor(ada, "job.yaml", "--on", "titan-01") as process:
            until(lambda: [each for each in trials(ada, "held-on-s1") if each["step"] >= 1])
            # Impatience changes nothing.
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            text, _ = process.communicate(timeout=120)
            assert process.returncode == 130, text
        assert hosts_of_running(ada) == {"titan-01"}
        assert ada("sweep", "stop", "held-on-s1").code == 0
        assert shown(ada, "held-on-s1")["state"] == "stopped"
        until(lambda: hosts_of_running(ada), lambda found: not found)
    done = ada("sweep", "resume", "held-on-s1", "--json")
    assert (done.code, done.json["state"], len(done.json["trials"])) == (0, "done", 4), done.err
    # Another laptop does not know that search, and takes none of its trials for its own.
    other = lab.laptop("ada", folder, ada.environment, name="second")
    more = other("sweep", "job.yaml", "--on", "titan-01", "--trials", "1", "--json")
    assert more.code == 0, more.err
    assert [each["run"] for each in more.json["trials"]] == ["held-on-s2-1"]


def test_a_stop_names_trials_on_a_machine_that_is_away(lab: Lab, ada: Laptop, folder: Path) -> None:
    (folder / "job.yaml").write_text(_HELD.replace("name: toy", "name: away"))
    with held(lab):
        with conductor(ada, "job.yaml", "--on", "titan-01") as process:
            until(lambda: [each for each in trials(ada, "away-on-s1") if each["step"] >= 1])
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
        lab["titan-01"].kill()
        stopped = ada("sweep", "stop", "away-on-s1")
        assert stopped.code == 3, stopped.err
        assert "away-on-s1-1 away-on-s1-2" in stopped.err
        assert shown(ada, "away-on-s1")["state"] == "stopped"
        lab["titan-01"].boot()
        lab.connect()


def test_gpus_of_others_are_waited_for_and_a_cause_ends_it(lab: Lab, ada: Laptop, folder: Path) -> None:
    other = lab.laptop("bob", folder, ada.environment)
    run = other("run", "--on", "titan-01", "--gpus", "2", "--json", "-d", "--", "sleep", "600").json["run"]
    program(folder, "raise ValueError('diverged')")
    text = _SEARCH.replace("name: toy", "name: none").replace("trials: 5", "trials: 5\n  fail_limit: 2")
    (folder / "job.yaml").write_text(text)
    with conductor(ada, "job.yaml", "--on", "titan-01") as process:
        sweep = Path(ada.environment["HOME"], ".local/share/causeway/sweeps/none-on-s1/sweep.json")
        # What is shown of a search is written down at the end of a round.
        until(lambda: sweep.exists() and "summary" in json.loads(sweep.read_text()))
        assert trials(ada, "none-on-s1") == []
        assert other("stop", run).code == 0
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 1, said
    found = shown(ada, "none-on-s1")
    assert (found["state"], "ValueError: diverged" in found["reason"]) == ("failed", True)
    assert len(found["trials"]) < 5
    lab["titan-02"].gpus(0)
    try:
        refused = ada("sweep", "job.yaml", "--on", "titan-02")
        assert (refused.code, "titan-02: " in refused.err) == (1, True)
    finally:
        lab["titan-02"].gpus(2)
    assert ada("sweep", "job.yaml", "--on", "titan-01", "--local").code == 2
    sweeps = Path(ada.environment["HOME"], ".local/share/causeway/sweeps")
    assert [path.name for path in sweeps.iterdir()] == ["none-on-s1"]  # none of what was refused
