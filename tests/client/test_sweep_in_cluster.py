"""A search in the cluster, with real parts: API server, JobSet, Kueue, the embedded AWS, MLflow as it is
rendered (PostgreSQL, rights by the API server), and the account of the conductor with its rendered rights.

Pods run on the stand-in, the conductor's among them.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from client.jobset_world import World, person
from client.pods import can_run, wait
from client.process import Causeway, program
from client.test_run_in_a_queue import preempt, processors, state
from client.test_tracking_in_cluster import offered
from render.kubernetes.tracking_world import VENV, served
from strategies.outputs import outputs_for

from infra.render.kubernetes import objects

pytestmark = [
    pytest.mark.skipif(bool(can_run()), reason=can_run()),
    pytest.mark.skipif(
        not (VENV / "bin/mlflow").exists(), reason="no .venv-mlflow: 'make setup-client' makes it"
    ),
]

_TRAINS = """
    import causeway, json, os, pathlib, sys, time
    lr, step = sys.argv[2], 0
    if resume := os.environ.get("CAUSEWAY_RESUME"):
        step = json.loads(pathlib.Path(resume, "state.json").read_text())
    print(f"goes on from {step}", flush=True)
    while step < 9:
        time.sleep(6)
        step += 1
        causeway.report(step, loss=float(lr) + 1 / step)
        with causeway.checkpoint(step) as folder:
            (folder / "state.json").write_text(str(step))
        if causeway.should_stop():
            sys.exit()
"""
_SEARCH = """
name: toy
run: python3 train.py {--lr}
gpus: 0
restarts: 0
sweep:
  parameters: {lr: {float: [0, 1]}}
  metric: loss
  trials: 5
  parallel: 3
  sampler: random
  stop: {rule: asha, max: 9}
"""


@pytest.fixture(scope="module")
def world(queued: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """With MLflow, which the cluster offers while it runs."""
    with _mlflow(queued, tmp_path_factory.mktemp("sweeps")) as url:
        authority = queued.plane.keys.ca.certificate
        for namespace in ("user-ada", "user-alan"):
            about = {"name": "kube-root-ca.crt", "namespace": namespace}
            queued.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about,
                                 "data": {"ca.crt": authority}})  # fmt: skip
        with offered(queued, {"url": url, "namespace": "mlflow", "service": "mlflow", "port": 5000}):
            yield queued


@contextmanager
def _mlflow(found: World, folder: Path) -> Iterator[str]:
    """MLflow as it is rendered; its address."""
    for part in ("guards", "tracking", "sweeps"):
        found.admin.apply_all(objects(part, found.spec, outputs_for(found.spec)))
    secret = {"name": "database", "namespace": "mlflow"}
    found.admin.create({"apiVersion": "v1", "kind": "Secret", "metadata": secret,
                        "stringData": {"password": "of-a-test"}})  # fmt: skip
    # No pod of it is there: clients go straight to it.
    found.admin.call("DELETE", "/api/v1/namespaces/mlflow/services/mlflow")
    with served(found.spec, found.plane, found.aws, folder, "of-a-test") as here:
        yield here.address


@pytest.fixture
def alan(world: World, folder: Path, environment: dict[str, str], command: list[str]) -> Causeway:
    return person(world, "alan", folder, environment, command)


def search(who: Causeway, name: str) -> Any:
    done = who("sweep", "show", name, "--json")
    assert done.code == 0, done.err
    return done.json


def begun(who: Causeway) -> str:
    """Submits the search of ``job.yaml``; its name."""
    done = who("sweep", "job.yaml", "--json")
    assert done.code == 0, done.err
    return str(done.json["sweep"])


def ended(who: Causeway, name: str) -> Any:
    """A search, once it has ended."""
    return wait(
        lambda: (now := search(who, name))["state"] not in ("running", "resumed") and now, seconds=900
    )


def conductors() -> list[int]:
    """Processes that conduct: process 1 of their containers."""
    processes = psutil.process_iter(["cmdline"])
    return [each.pid for each in processes if (each.info["cmdline"] or [])[1:3] == ["-m", "causeway.conduct"]]


def test_a_search_survives_its_conductor_and_stops_bad_trials_early(
    ada: Causeway, alan: Causeway, world: World, folder: Path
) -> None:
    program(folder, _TRAINS)
    (folder / "job.yaml").write_text(_SEARCH)
    name = begun(ada)
    assert name == "toy-s1"
    killed = 0
    for most in (1, 3):
        # Between any two steps: as soon as there are so many trials.
        wait(lambda most=most: len(search(ada, name)["trials"]) >= most and conductors(), seconds=300)
        for process in conductors():
            os.kill(process, signal.SIGKILL)
            killed += 1
    assert killed >= 2
    found = ended(ada, name)
    assert (found["state"], len(found["trials"])) == ("done", 5), found
    assert [each["number"] for each in found["trials"]] == [1, 2, 3, 4, 5]
    states = {each["number"]: each["state"] for each in found["trials"]}
    assert "done" in states.values()
    assert {"paused", "stopped"} & {*states.values()}, states
    best = next(each for each in found["trials"] if each["number"] == found["best"])
    assert best["parameters"]["lr"] == min(
        each["parameters"]["lr"] for each in found["trials"] if each["state"] == "done"
    )
    # What was stopped early has not run to its end, and has its record and its checkpoint.
    early = next(each for each in found["trials"] if each["state"] in ("paused", "stopped"))
    assert early["step"] < 9
    assert f" {name}" in ada("why", early["run"]).out
    jobsets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/user-ada/jobsets"
    listed = [each["metadata"]["name"] for each in world.admin.call("GET", jobsets)["items"]]
    wanted = [f"toy-s1-{number}" for number in range(1, 6)]
    assert sorted(each for each in listed if each.startswith("toy")) == wanted
    # A list has one line of a search, and shows its trials when it is asked.
    rows = [line.split()[0] for line in ada("ps").out.splitlines()]
    assert [each for each in rows if each.startswith("toy")] == ["toy-s1"]
    (counted,) = (each for each in json.loads(ada("ps", "--json").out) if each.get("sweep") == name)
    assert (counted["sweep"], sum(counted["trials"].values())) == ("toy-s1", 5)
    trials = json.loads(ada("ps", "--sweep", "toy-s1", "--json").out)
    assert sorted(each["name"] for each in trials) == [f"toy-s1-{number}" for number in range(1, 6)]
    assert ada("why", "toy-s1", "--json").json["state"] == "done"
    page = folder / "page.html"
    assert ada("sweep", "show", name, "--html", str(page)).code == 0
    assert page.read_text().count("<path") >= 10
    # Nobody else sees it.
    refused = alan("sweep", "show", name, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, 1), refused


def test_what_a_search_may_cost_is_said_before_it_is_submitted(
    world: World, folder: Path, environment: dict[str, str], command: list[str]
) -> None:
    careful = person(world, "ada", folder, {**environment}, command, CAUSEWAY_YES="")
    program(folder, _TRAINS)
    (folder / "job.yaml").write_text(_SEARCH.replace("name: toy", "name: dear") + "time: 4h\n")
    refused = careful("sweep", "job.yaml")
    assert (refused.code, "--yes" in refused.err) == (2, True), refused.err
    # Three at once, five in all.
    hourly, most = (
        float(each.replace(",", "")) for each in re.findall(r"\$([\d,]+\.\d\d)", refused.err)[-2:]
    )
    assert most == pytest.approx(hourly / 3 * 4 * 5, abs=0.1)
    assert careful("sweep", "show", "dear-s1").code == 1


def begins(who: Causeway, run: str) -> list[int]:
    """The steps that the starts of a trial went on from: of the store, as pods have the last start alone."""
    output = who("logs", run, "--attempt", "0").out
    return [int(step) for step in re.findall(r"goes on from (\d+)", output)]


def test_a_trial_that_was_stopped_early_is_promoted_from_its_checkpoint(
    ada: Causeway, world: World, folder: Path
) -> None:
    # With this seed the first trial is the best of six, and the second the second. They are judged at step 3,
    # and wait for it: one of three goes on, and two of six. One at a time: a best that comes with
    # others passes at once.
    # What is judged before its first checkpoint is known passes, as it could not go on later: step 3 waits
    # until the store has one, and MLflow may have heard of it.
    waits = """
        sent = pathlib.Path(os.environ["CAUSEWAY_CHECKPOINTS"], ".sent")
        while step == 2 and not sent.exists() and not causeway.should_stop():
            time.sleep(0.5)
        if step == 2:
            time.sleep(20)
        held = time.monotonic() + 120
        while step == 3 and not (resume or causeway.should_stop()) and time.monotonic() < held:
            time.sleep(0.5)
    """
    quick = _TRAINS.replace("time.sleep(6)", "time.sleep(1)")
    program(folder, quick.replace("    while step < 9:\n", "    while step < 9:" + waits[:-4]))
    text = _SEARCH.replace("name: toy", "name: rise").replace("trials: 5", "trials: 6\n  seed: 1305")
    text = text.replace("parallel: 3", "parallel: 1").replace("max: 9", "min: 3, max: 9")
    (folder / "job.yaml").write_text(text)
    found = ended(ada, begun(ada))
    assert found["state"] == "done", found
    states = {each["number"]: each["state"] for each in found["trials"]}
    assert states == {1: "done", 2: "done", 3: "paused", 4: "paused", 5: "paused", 6: "paused"}, found
    assert found["best"] == 1
    for trial in found["trials"][:2]:
        first, *others = begins(ada, trial["run"])
        assert (first, trial["step"], trial["judged"]) == (0, 9, 3)
        assert others, "it was not stopped first"
        assert all(3 <= each < 9 for each in others), others


def test_a_trial_that_is_preempted_goes_on_where_it_was_and_is_judged_once(
    ada: Causeway, world: World, folder: Path
) -> None:
    # Its later steps take long, until it is started again.
    slow = "time.sleep(1 if resume or step < 3 else 20)"
    program(folder, _TRAINS.replace("time.sleep(6)", slow))
    text = _SEARCH.replace("name: toy", "name: taken").replace("trials: 5", "trials: 1")
    text = text.replace("parallel: 3", "parallel: 1").replace("max: 9", "min: 3, max: 9")
    (folder / "job.yaml").write_text(text.replace("gpus: 0", "gpus: 0\ncpus: 3\npriority: normal"))
    with processors(world, 4):
        name = begun(ada)
        wait(lambda: any(each["judged"] == 3 for each in search(ada, name)["trials"]), seconds=300)
        preempt(ada)
        found = ended(ada, name)
    (trial,) = found["trials"]
    assert (found["state"], trial["state"], trial["step"], trial["judged"]) == ("done", "done", 9, 3), found
    first, *others = begins(ada, trial["run"])
    assert first == 0
    assert others, "it was not preempted"
    assert all(3 <= each < 9 for each in others), others


def test_a_search_is_stopped_and_resumed_with_its_trials(ada: Causeway, world: World, folder: Path) -> None:
    program(folder, _TRAINS)
    text = _SEARCH.replace("name: toy", "name: long").replace("trials: 5", "trials: 2")
    (folder / "job.yaml").write_text(text.replace("stop: {rule: asha, max: 9}", "stop: none"))
    name = begun(ada)
    wait(lambda: any(each["step"] >= 2 for each in search(ada, name)["trials"]), seconds=300)
    stopped = ada("sweep", "stop", name, "--json")
    assert (stopped.code, stopped.json["changed"]) == (0, True), stopped.err
    jobs = "/apis/batch/v1/namespaces/user-ada/jobs"
    assert name not in [each["metadata"]["name"] for each in world.admin.call("GET", jobs)["items"]]
    assert search(ada, name)["state"] == "stopped"
    trials = json.loads(ada("ps", "--sweep", name, "--json").out)
    wait(lambda: all(state(ada, each["name"]) in ("stopped", "done") for each in trials))
    assert any(state(ada, each["name"]) == "stopped" for each in trials)
    again = ada("sweep", "resume", name, "--json")
    assert (again.code, again.json["changed"]) == (0, True), again.err
    wait(lambda: search(ada, name)["state"] == "done", seconds=300)
    assert [each["state"] for each in search(ada, name)["trials"]] == ["done", "done"]
    steps = [re.findall(r"goes on from (\d+)", ada("logs", each["name"]).out) for each in trials]
    assert any(starts and "0" not in starts for starts in steps), steps
    assert ada("sweep", "extend", name, "--trials", "2").code == 2


def test_trials_that_all_fail_end_the_search_with_the_first_cause(ada: Causeway, folder: Path) -> None:
    program(folder, "raise ValueError('diverged')")
    text = _SEARCH.replace("name: toy", "name: bad").replace("trials: 5", "trials: 5\n  fail_limit: 2")
    (folder / "job.yaml").write_text(text)
    name = begun(ada)
    found = ended(ada, name)
    assert found["state"] == "failed"
    assert "ValueError: diverged" in found["reason"]
    assert len(found["trials"]) < 5
    why = json.loads(ada("why", name, "--json").out)
    assert (why["state"], "ValueError" in why["first_failure"]["cause"]) == ("failed", True)


def test_the_conductors_account_may_nothing_else(world: World) -> None:
    def may(verb: str, group: str, resource: str, namespace: str = "user-ada") -> bool:
        wanted = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        spec = {
            "user": "system:serviceaccount:user-ada:sweep",
            "groups": ["system:authenticated", "system:serviceaccounts"],
            "resourceAttributes": wanted,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(world.admin.call("POST", path, review)["status"]["allowed"])

    assert may("create", "jobset.x-k8s.io", "jobsets")
    assert may("update", "mlflow.kubeflow.org", "experiments")
    for group, resource in (("", "pods"), ("", "secrets"), ("batch", "jobs"), ("", "serviceaccounts/token")):
        assert not any(may(verb, group, resource) for verb in ("get", "list", "create", "delete"))
    assert not may("delete", "jobset.x-k8s.io", "jobsets")
    assert not may("delete", "mlflow.kubeflow.org", "experiments")
    assert not may("create", "jobset.x-k8s.io", "jobsets", "user-alan")
    assert not may("get", "mlflow.kubeflow.org", "experiments", "user-alan")


def test_without_mlflow_a_search_says_what_is_missing(ada: Causeway, world: World, folder: Path) -> None:
    program(folder, _TRAINS)
    (folder / "job.yaml").write_text(_SEARCH)
    with offered(world, None):
        refused = ada("sweep", "job.yaml")
    assert (refused.code, "kubernetes.tracking" in refused.err) == (1, True), refused.err
    tried = ada("sweep", "job.yaml", "--dry-run")
    conductor, trial = yaml.safe_load_all(tried.out)
    assert (conductor["kind"], trial["kind"]) == ("Job", "JobSet")
    assert world.admin.create({**conductor, "metadata": {**conductor["metadata"], "name": "dry"}}, dry=True)
