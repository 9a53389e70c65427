"""Runs and Kueue itself: admitted, waiting, stopped and resumed, with the rights that people have."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from client.jobset_world import World, person
from client.pods import NODE, NOWHERE, can_run, wait
from client.process import Causeway, program
from kube.api import MERGE
from kube.plane import NAME

from causeway.cluster.connection import Cluster as Connection
from causeway.end_blocked import Watch
from infra.render.kubernetes import queues as queueing
from infra.render.kubernetes import research
from infra.render.kubernetes.manifests import SYSTEM

_TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run())


@pytest.fixture(scope="module")
def world(queued: World) -> World:
    return queued


def why(ada: Causeway, name: str) -> dict[str, Any]:
    return ada("why", name, "--json").json


def state(ada: Causeway, name: str) -> str:
    return str(why(ada, name)["state"])


def reached(ada: Causeway, name: str, *states: str, seconds: float = 120) -> None:
    wait(lambda: state(ada, name) in states, seconds)


def listed(ada: Causeway, name: str) -> Any:
    """A row of ``ps``."""
    return next(row for row in json.loads(ada("ps", "--json").out) if row.get("name") == name)


_TRAIN = ("--", "python3", "train.py")


def submitted(ada: Causeway, *arguments: str) -> str:
    done = ada("run", "-d", "--json", *arguments)
    assert done.code == 0, done.err
    return str(done.json["run"])


def preempt(ada: Causeway) -> None:
    """By a run of a higher priority that wants three processors, from its submission to its end."""
    urgent = ("--gpus", "0", "--priority", "high", "--name", "urgent", "--set", "cpus=3", "--", "true")
    done = ada("run", "--json", *urgent)
    assert done.code == 0, done.err


def test_what_has_quota_runs_and_what_has_no_machine_says_why_it_waits(
    ada: Causeway, world: World, folder: Path
) -> None:
    program(folder, "print('ran')")
    done = ada("run", "--gpus", "0", "--name", "small", "--", "python3", "train.py")
    assert done.code == 0, done.err
    # So does its board.
    assert ada("board", "small-1", "--detach").code == 0
    uid = world.admin.call("GET", "/apis/batch/v1/namespaces/user-ada/jobs/board")["metadata"]["uid"]
    of_board = f"/api/v1/namespaces/user-ada/pods?labelSelector=batch.kubernetes.io/controller-uid={uid}"
    wait(lambda: world.admin.call("GET", of_board)["items"])
    workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/user-ada/workloads"
    found = world.admin.call("GET", f"{workloads}?labelSelector=kueue.x-k8s.io/job-uid={uid}")
    (workload,) = found["items"]
    assert workload["spec"]["queueName"] == "default"
    assert ada("board", "--stop").code == 0
    refused = ada("resume", "small-1")
    assert (refused.code, "causeway rerun small-1" in refused.err) == (1, True)
    waiting = submitted(ada, "--gpus", "4", "--name", "large", *_TRAIN)
    # There is no node with GPUs yet, so Kueue finds no place in its topology.
    status = wait(lambda: (now := why(ada, waiting)) and "assign" in now["waits_for"] and now)
    assert status["state"] == "queued"
    assert "assign" in ada("why", waiting).out


def test_a_stopped_run_saves_keeps_its_record_and_goes_on(
    ada: Causeway, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(
        folder,
        """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
        print("begun", flush=True)
        time.sleep(3600)
        """,
    )
    name = submitted(ada, "--gpus", "0", "--name", "long", *_TRAIN)
    wait(lambda: "begun" in ada("logs", name).out)

    def changed(verb: str) -> bool:
        (row,) = json.loads(ada(verb, name, "--json").out)
        return bool(row["changed"])

    assert changed("stop")
    reached(ada, name, "stopped")
    assert ada("resume", name, "--time", "2h").code == 1
    assert f"causeway resume {name}" in ada("why", name).out
    assert not changed("stop")
    assert changed("resume")
    reached(ada, name, "running")
    assert why(ada, name)["restarts"] == 0
    # Nobody stops another's run.
    alan = person(world, "alan", folder, environment, command)
    assert alan("stop", name).code == 1
    assert state(ada, name) == "running"
    ada("stop", name)


_IGNORES = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("begun", flush=True)
    while not os.path.exists("/tmp/never"):
        time.sleep(0.1)
"""
_SAVES_LONG = """
    import causeway, os, signal, sys, time
    def save(*_):
        time.sleep(15)
        with causeway.checkpoint(3) as folder:
            (folder / "model").write_text("x")
        sys.exit()
    signal.signal(signal.SIGTERM, save)
    print("begun after", os.path.basename(os.environ.get("CAUSEWAY_RESUME", "nothing")), flush=True)
    while True:
        time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("name", "text", "grace", "after"),
    [("ignores", _IGNORES, 6, "begun"), ("saves-long", _SAVES_LONG, 60, "begun after step-3")],
)
def test_a_program_that_ignores_sigterm_is_killed_and_one_that_saves_for_long_is_waited_for(
    ada: Causeway,
    world: World,
    folder: Path,
    environment: Mapping[str, str],
    name: str,
    text: str,
    grace: int,
    after: str,
) -> None:
    """Neither counts as a failure: nothing may be restarted here. What was saved is listed, and how long that
    took is known at the next submission."""
    program(folder, text)
    (folder / "job.yaml").write_text(
        f"name: {name}\nrun: python3 train.py\ngpus: 0\ncpus: 3\nrestarts: 0\ngrace: {grace}s\n"
        "priority: normal\n"
    )
    with processors(world, 4):
        run = submitted(ada, "job.yaml")
        wait(lambda: "begun" in ada("logs", run).out)
        preempt(ada)
        wait(lambda: state(ada, run) in ("running", "failed") and after in ada("logs", run).out)
        status = why(ada, run)
        assert (status["state"], status["restarts"]) == ("running", 0)
        if saves := after.partition("begun after ")[2]:
            wait(lambda: (row := listed(ada, run)["saved"]) and row["name"] == saves)
            assert f"{saves}, " in ada("ps").out
            (seen,) = Path(environment["HOME"], ".cache/causeway/saved").rglob(run)
            seen.write_text(json.dumps({**json.loads(seen.read_text()), "seconds": grace + 1}))
            again = ada("run", "-d", "job.yaml")
            assert f"{saves} of {run}" in again.err
            ada("stop", f"{name}-2")
        else:
            assert listed(ada, run)["saved"] is None
        ada("stop", run)
        reached(ada, run, "stopped")


def test_a_run_that_cannot_start_says_so_is_stopped_and_goes_on_once_it_can(
    ada: Causeway, world: World, folder: Path
) -> None:
    lacking = {"name": "keyed", "run": "true", "gpus": 0, "secrets": {"given": "KEY"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(lacking))
    refused = ada("run", "job.yaml", "-d")
    assert (refused.code, " given -n user-ada" in refused.err) == (2, True)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given", "namespace": "user-ada"}}
    world.admin.create({**secret, "stringData": {"OTHER": "x"}})
    refused = ada("run", "job.yaml", "-d")
    assert (refused.code, " KEY" in refused.err) == (2, True)
    name = submitted(ada, "--gpus", "0", "--name", "lost", "--image", f"{NOWHERE}none:1", "--", "true")
    wait(lambda: f"{NOWHERE}none:1" in ada("why", name).out)
    wait(lambda: "1 blocked" in ada("ps").out)
    watch = Watch(Connection(str(_of_account(world, research.BLOCKED))), patience=60)
    assert (watch.look(0), watch.look(59)) == ([], [])
    ((namespace, stopped, why),) = watch.look(60)
    assert (namespace, stopped, why.reason) == ("user-ada", name, "ImagePullBackOff")
    reached(ada, name, "stopped")
    output = ada("why", name).out
    assert f"{NOWHERE}none:1" in output
    assert f"causeway resume {name}" in output
    assert watch.look(1000) == []
    # What a person stops later, or another time, they need not be told.
    assert ada("resume", name).code == 0
    reached(ada, name, "starting")
    assert ada("stop", name).code == 0
    reached(ada, name, "stopped")


_TRAINS = """
    import causeway, hashlib, json, os, pathlib, sys, time
    step, state, starts = 0, "", 0
    if resume := os.environ.get("CAUSEWAY_RESUME"):
        step, state, starts = json.loads(pathlib.Path(resume, "state.json").read_text())
    begun, starts = step, starts + 1
    while starts < 8 or step < begun + 40:
        step += 1
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
        stop = causeway.should_stop()
        if step % 7 == 0 or stop:
            with causeway.checkpoint(step) as folder:
                (folder / "state.json").write_text(json.dumps([step, state, starts]))
        if stop:
            sys.exit()
        if step == begun + 20:
            print(f"goes on from {begun}", flush=True)
        time.sleep(0.05)
    print(f"trained {step} steps: {state}", flush=True)
"""


def trained(steps: int) -> str:
    """What the program comes to when nothing disturbs it."""
    state = ""
    for step in range(1, steps + 1):
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
    return state


def test_a_run_that_is_preempted_and_evicted_again_and_again_goes_on_where_it_was(
    ada: Causeway, world: World, folder: Path
) -> None:
    """Five times by Kueue; twice its pod is evicted, as on a notice that a spot instance will end."""
    program(folder, _TRAINS)
    (folder / "job.yaml").write_text(
        "name: patient\nrun: python3 train.py\ngpus: 0\ncpus: 3\nrestarts: 0\npriority: normal\n"
    )
    seen: list[int] = []

    def next_start() -> bool:
        steps = {*map(int, re.findall(r"goes on from (\d+)", ada("logs", name).out))}
        seen.extend(sorted(steps - {*seen}))
        return bool(steps - before)

    with processors(world, 4):
        name = submitted(ada, "job.yaml")
        for number in range(7):
            before = {*seen}
            wait(next_start)
            if number in (1, 4):
                evict(world, name)
            else:
                preempt(ada)
        reached(ada, name, "done", "failed", seconds=300)
    status = why(ada, name)
    assert (status["state"], status["restarts"]) == ("done", 0)
    evictions = workload(world, name)["status"]["schedulingStats"]["evictions"]
    assert {each["reason"]: each["count"] for each in evictions} == {"Preempted": 5}
    # Asked to stop it saved at once, between two periodic checkpoints.
    assert len(seen) == 7
    assert any(step % 7 for step in seen[1:])
    ((steps, digest),) = re.findall(r"trained (\d+) steps: (\w+)", ada("logs", name).out)
    assert digest == trained(int(steps))
    kept = world.s3().list_objects_v2(
        Bucket=world.bucket, Prefix=f"runs/user-ada/{name}/checkpoints/manifests/"
    )
    # The last two; the one that the last start came from is one of them, or is there besides.
    assert len(kept["Contents"]) in (2, 3)


def test_of_a_sharded_checkpoint_each_worker_gets_all_parts_after_a_preemption(
    ada: Causeway, world: World, folder: Path
) -> None:
    program(
        folder,
        """
        import causeway, os, pathlib, sys, time
        rank = os.environ["CAUSEWAY_RANK"]
        if resume := os.environ.get("CAUSEWAY_RESUME"):
            found = {path.name: path.read_text() for path in sorted(pathlib.Path(resume).iterdir())}
            print(f"{rank} finds {found}", flush=True)
            sys.exit()
        # The second one writes a part that the first has not.
        for step in range(1, 3 + int(rank)):
            with causeway.checkpoint(step) as folder:
                (folder / f"part-{rank}").write_text(f"{step} of {rank}")
        print("written", flush=True)
        while not causeway.should_stop():
            time.sleep(0.1)
        """,
    )
    (folder / "job.yaml").write_text(
        "name: shards\nrun: python3 train.py\ngpus: 0\nnodes: 2\ncpus: 1\nlauncher: none\nrestarts: 0\n"
        "priority: normal\ncheckpoints: {sharded: true}\n"
    )
    with processors(world, 4):
        name = submitted(ada, "job.yaml")
        wait(lambda: ada("logs", name).out.count("written") == 2)
        preempt(ada)
        reached(ada, name, "done", "failed", seconds=300)
    assert state(ada, name) == "done"
    parts = "{'part-0': '2 of 0', 'part-1': '2 of 1'}"
    output = ada("logs", name).out
    assert [f"{rank} finds {parts}" in output for rank in (0, 1)] == [True, True]


def test_what_is_preempted_in_a_rack_goes_on_in_a_region_and_the_other_way(
    ada: Causeway, world: World, folder: Path
) -> None:
    """The scheduler's part is the stand-in's: it puts what is admitted next on the other machine."""
    sites = ("rack-a", "us-west-2", "rack-a")
    for site in sites[:2]:
        labels = {"causeway.dev/site": site, "topology.kubernetes.io/region": site}
        world.pods.register(f"machine-{site}", labels)
    program(folder, _TRAINS.replace("starts < 8", "starts < 3").replace("begun + 40", "begun + 600"))
    (folder / "job.yaml").write_text(
        "name: moves\nrun: python3 train.py\ngpus: 0\ncpus: 3\nrestarts: 0\npriority: normal\n"
    )
    begun = "goes on from"
    try:
        with processors(world, 4):
            world.pods.node = f"machine-{sites[0]}"
            name = submitted(ada, "job.yaml")
            for number, site in enumerate(sites):
                (worker,) = wait(lambda: (row := listed(ada, name))["state"] == "running" and row["workers"])
                assert (worker["site"], worker["node"]) == (site, f"machine-{site}")
                wait(lambda: begun in ada("logs", name).out)
                wait(lambda site=site: site in {
                    each["site"] for each in json.loads(ada("checkpoints", name, "--json").out)
                })  # fmt: skip
                if number == len(sites) - 1:
                    break
                world.pods.node = f"machine-{sites[number + 1]}"
                preempt(ada)
            reached(ada, name, "done", "failed", seconds=300)
    finally:
        world.pods.node = NODE
    assert why(ada, name)["restarts"] == 0
    ((steps, digest),) = re.findall(r"trained (\d+) steps: (\w+)", ada("logs", name).out)
    assert digest == trained(int(steps))


def evict(world: World, run: str) -> None:
    """As a drain does."""
    path = "/api/v1/namespaces/user-ada/pods"
    (pod,) = [
        each["metadata"]["name"]
        for each in world.admin.call("GET", f"{path}?labelSelector=causeway.dev%2Frun%3D{run}")["items"]
        if each["status"]["phase"] == "Running"
    ]
    about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    world.admin.call("POST", f"{path}/{pod}/eviction", about)


def workload(world: World, run: str) -> Any:
    found = world.admin.call("GET", "/apis/kueue.x-k8s.io/v1beta2/namespaces/user-ada/workloads")["items"]
    return next(each for each in found if each["metadata"]["ownerReferences"][0]["name"] == run)


@contextmanager
def processors(world: World, count: int) -> Iterator[None]:
    """A cohort with so many processors, of machines without GPUs, and no more."""
    paths = [f"/apis/kueue.x-k8s.io/v1beta2/{kind}" for kind in ("cohorts", "clusterqueues")]
    before = {
        f"{path}/{item['metadata']['name']}": item["spec"]["resourceGroups"]
        for path in paths
        for item in world.admin.call("GET", path)["items"]
    }
    plain = next(
        item["metadata"]["name"]
        for item in queueing.objects(world.spec)["flavors.yaml"]
        if item["kind"] == "ResourceFlavor" and "topologyName" not in item["spec"]
    )

    def put(path: str, groups: Any) -> None:
        spec = {"spec": {"resourceGroups": groups}}
        world.admin.call("PATCH", path, spec, MERGE)

    for path, groups in before.items():
        less = json.loads(json.dumps(groups))
        for flavor in less[0]["flavors"]:
            has_quota = path.split("/")[-2] == "cohorts" and flavor["name"] == plain
            for resource in flavor["resources"]:
                if resource["name"] == "cpu":
                    resource["nominalQuota"] = str(count if has_quota else 0)
        put(path, less)
    try:
        yield
    finally:
        for path, groups in before.items():
            put(path, groups)


def test_a_run_whose_time_is_up_is_stopped_and_another_goes_on_with_its_checkpoint(
    ada: Causeway, world: World, folder: Path
) -> None:
    program(
        folder,
        """
        import causeway, os, time
        print("begun after", os.path.basename(os.environ.get("CAUSEWAY_RESUME", "nothing")), flush=True)
        while not os.environ.get("CAUSEWAY_RESUME"):
            if causeway.should_stop():
                with causeway.checkpoint(7) as folder:
                    (folder / "model").write_text("x")
                break
            time.sleep(0.1)
        """,
    )
    # The time counts from the admission on, and pods take theirs to start.
    limit = 30
    done = ada("run", "--json", "--gpus", "0", "--name", "short", "--set", f"time={limit}s", *_TRAIN)
    assert (done.code, done.json["state"]) == (1, "timed-out"), done.err
    assert "nothing" in done.err.split()
    assert done.json["seconds"] >= limit
    name = done.json["name"]
    # Its worker saves within its grace, and what it saved is copied.
    more = ("--time", "2h", "--json")
    (resumed,) = json.loads(wait(lambda: (done := ada("resume", name, *more)).code == 0 and done.out))
    assert resumed["continues_as"] == "short-2"
    assert workload(world, "short-2")["spec"]["maximumExecutionTimeSeconds"] == 7200
    ended = ada("why", name, "--json").json
    assert ended["saved"]["name"] == "step-7"
    assert ended["moving_usd"]
    assert {*ended["moving_usd"]} <= {"rack-a", "rack-b", "us-east-1", "eu-west-1"}
    assert ada("why", "short-2", "--json").json["saved"]["name"] == "step-7", "what it goes on with"
    reached(ada, "short-2", "done")
    assert "step-7" in ada("logs", "short-2").out.split()


def test_of_a_run_that_failed_another_goes_on_with_its_checkpoint_and_without_one_none_does(
    ada: Causeway, folder: Path
) -> None:
    program(
        folder,
        """
        import causeway, os, sys
        if resume := os.environ.get("CAUSEWAY_RESUME"):
            print("begun after", os.path.basename(resume))
        elif sys.argv[1] == "saves":
            with causeway.checkpoint(3) as folder:
                (folder / "model").write_text("x")
            sys.exit(1)
        else:
            sys.exit(1)
        """,
    )
    for what, code in (("saves", 0), ("does-not", 1)):
        arguments = ("--gpus", "0", "--set", "restarts=0", "--name", what, "--", "python3", "train.py", what)
        done = ada("run", "--json", *arguments)
        assert (done.code, done.json["state"]) == (1, "failed"), done.err
        # What its worker saved is copied before its pod ends; a moment later it is listed as ended.
        resumed = wait(
            lambda name=done.json["name"]: (
                (tried := ada("resume", name, "--json")) and "still run" not in tried.err and tried
            )
        )
        assert resumed.code == code, resumed.err
    assert json.loads(ada("resume", "saves-1", "--json").out)[0]["continues_as"] == "saves-3"
    reached(ada, "saves-2", "done")
    assert "step-3" in ada("logs", "saves-2").out.split()
    assert "causeway rerun does-not-1" in resumed.err


def test_what_a_run_cost_is_known_when_its_pods_are_gone(ada: Causeway, world: World, folder: Path) -> None:
    program(folder, "print('ran')")
    done = ada("run", "--json", "--gpus", "0", "--name", "priced", "--", "python3", "train.py")
    name, cost = done.json["name"], done.json["cost"]
    assert cost is not None
    pods = f"/api/v1/namespaces/user-ada/pods?labelSelector=causeway.dev/run={name}"
    for pod in world.admin.call("GET", pods)["items"]:
        path = f"/api/v1/namespaces/user-ada/pods/{pod['metadata']['name']}"
        world.admin.call("DELETE", path, {"gracePeriodSeconds": 0})
    wait(lambda: not world.admin.call("GET", pods)["items"])
    assert ada("show", name, "--json").json["cost"] == pytest.approx(cost, rel=0.01)
    assert listed(ada, name)["cost"] == pytest.approx(cost, rel=0.01)


def test_what_may_cost_money_is_not_submitted_where_nobody_can_be_asked(
    ada: Causeway, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(folder, "print('ran')")
    careful = person(world, "ada", folder, {**environment}, command, CAUSEWAY_YES="")
    refused = careful("run", "--gpus", "1", "--name", "dear", "--", "python3", "train.py")
    assert (refused.code, "--yes" in refused.err) == (2, True), refused.err
    names = {each.get("name", "") for each in yaml.safe_load(ada("ps", "--json").out)}
    assert not any(name.startswith("dear") for name in names)
    submitted(careful, "--name", "cheap", "--set", "where.sites=[rack-a]", *_TRAIN)
    ada("stop", "cheap-1")


def test_the_doctor_finds_the_way_open_and_what_is_missing(
    ada: Causeway, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    found = yaml.safe_load(ada("doctor", "--json").out)
    assert {each["step"]: each["state"] for each in found} == dict.fromkeys(
        ("kubeconfig", "network", "api", "clock", "cluster", "rights", "queue", "store"), "ok"
    )
    alan = person(world, "alan", folder, environment, command)
    refused = alan("doctor", "--group", "engineers", "--json")
    states = {each["step"]: each["state"] for each in yaml.safe_load(refused.out)}
    assert (refused.code, states["rights"], states["store"]) == (1, "failed", "failed")
    config = yaml.safe_load(world.kubeconfigs["ada"].read_text())
    config["clusters"][0]["cluster"]["server"] = "https://nowhere.invalid:6443"
    (folder.parent / "away.yaml").write_text(yaml.safe_dump(config))
    away = person(world, "ada", folder, environment, command, KUBECONFIG=str(folder.parent / "away.yaml"))
    lost = away("doctor")
    assert lost.code == 3
    assert "VPN" in lost.out
    nobody = person(world, "ada", folder, environment, command, KUBECONFIG=str(folder / "none"))
    assert nobody("doctor").code == 3


def test_ssh_nodes_are_known_by_name(ada: Causeway, world: World, tmp_path: Path) -> None:
    """ssh itself is the lab's matter: what is started here is another program of that name."""
    (name, hosts), *_ = [(each.name, each.nodes) for each in world.spec.access.ssh]
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    for node in (name, hosts[0].partition(".")[0]):
        words = ada("shell", "--node", node, "--", "uptime", **path).out.split()
        assert words == [f"ada@{hosts[0]}", "uptime"]
    unknown = ada("shell", "--node", "moon", **path)
    assert (unknown.code, name in unknown.err) == (2, True)


def test_code_is_renewed_while_a_run_may_still_need_it(ada: Causeway, world: World, folder: Path) -> None:
    """What is a third of ``keep_days`` old is copied onto itself; with no days, all is that old."""
    _keep_days(world, 0)
    codes = {}
    for name in ("kept", "over", "other"):
        program(folder, f"print('{name}')")
        done = ada("run", "-d", "--json", "--gpus", "0" if name == "over" else "4", "--name", name, "--",
                   "python3", "train.py")  # fmt: skip
        assert done.code == 0, done.err
        codes[name] = f"code/user-ada/{done.json['code']}.tar.gz"
    reached(ada, "over-1", "done")
    ada("stop", "other-1")
    before = _written(world)
    renewed = _renewal(world)
    assert renewed.returncode == 0, renewed.stderr
    after = _written(world)
    # One run waits and one is stopped; no run needs the third, which expires in its time.
    assert [after[codes[name]] != before[codes[name]] for name in codes] == [True, False, True]
    # The client does the same before anything needs it: with a new run of the same tree, and with `resume`.
    assert ada("run", "-d", "--gpus", "4", "--name", "again", "--", "python3", "train.py").code == 0
    assert _written(world)[codes["other"]] != after[codes["other"]]
    assert ada("resume", "other-1").code == 0
    ada("stop", "other-1")
    world.s3().delete_object(Bucket=world.bucket, Key=codes["other"])
    for refused in (ada("resume", "other-1"), ada("rerun", "again-1")):
        assert (refused.code, "causeway run" in refused.err) == (1, True), refused.err
    assert "other-1" in _renewal(world).stderr
    _keep_days(world, 90)
    before = _written(world)
    assert _renewal(world).returncode == 0
    assert _written(world) == before, "what is new is left alone"
    # What was found to be gone is sent again; what was seen a while ago needs no look at the store.
    again = ("run", "-d", "--gpus", "4", "--name", "again", "--", "python3", "train.py")
    assert ada(*again).code == 0
    assert codes["other"] in _written(world)
    away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    assert ada(*again, **away).code == 0
    assert ada("resume", "other-1", **away).code == 3
    program(folder, "print('edited')")
    (folder / "new.py").write_text("")
    assert "-print('kept')" in ada("code", "kept-1", "--diff").out.splitlines()
    differences = json.loads(ada("code", "kept-1", "--diff", "--json").out)
    assert [difference["change"] for difference in differences] == ["added", "changed"]
    for name in ("kept-1", "again-1", "again-2", "again-3"):
        ada("stop", name)


def _keep_days(world: World, days: int) -> None:
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{research.NAME}"
    offer = json.loads(world.admin.call("GET", path)["data"]["cluster.json"])
    offer["code"]["keep_days"] = days
    data = {"data": {"cluster.json": json.dumps(offer)}}
    world.admin.call("PATCH", path, data, MERGE)


def _of_account(world: World, name: str) -> Path:
    """The kubeconfig of a service account of ours: what it may do is what its pod may."""
    return world.plane.kubeconfig_with(name, token=world.admin.token(SYSTEM, name))


def _written(world: World) -> dict[str, str]:
    """Archive of code → its version."""
    found = world.s3().list_object_versions(Bucket=world.bucket, Prefix="code/")["Versions"]
    return {each["Key"]: each["VersionId"] for each in found if each["IsLatest"]}


def _renewal(world: World) -> subprocess.CompletedProcess[str]:
    """A run of the CronJob: its command, with its service account's token where pods find it."""
    path = f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{research.RENEWAL}"
    pod = world.admin.call("GET", path)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    folder = world.plane.folder / "renewal"
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(world.admin.token(SYSTEM, pod["serviceAccountName"]))
    (folder / "ca.crt").write_text(world.plane.keys.ca.certificate)
    (folder / "hosts").write_text(f"127.0.0.1 {NAME}\n")
    mounted = """
        mount -t tmpfs tmpfs /run && mkdir -p "$1" && mount --bind "$0" "$1"
        mount --bind "$0/hosts" /etc/hosts && shift && exec "$@"
    """
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, str(folder), _TOKENS, *pod["containers"][0]["command"]],
        env={
            **world.tools(),
            "KUBERNETES_SERVICE_HOST": NAME,
            "KUBERNETES_SERVICE_PORT": str(world.plane.port),
        },
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
