"""From ``kubectl apply`` to a machine and back: policies, Kueue, the autoscaler and AWS, each in earnest.

A real API server with its controllers and scheduler, Kueue with the rendered configuration and queues, the
autoscaler's process with its own rights, AWS over HTTP. Only the machines are made up: see `kubelets`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from autoscaler.embedded import EmbeddedAws
from autoscaler.kube.account import account, acting
from autoscaler.kube.clusters import Cluster, Object
from autoscaler.kube.kubelets import SECONDS, Kubelets
from kube.queues import kueue
from localaws import faults
from waiting import until

from infra.autoscaler import config as configuration
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Action, SetDesired
from infra.autoscaler.observed.snapshot import Snapshot
from infra.catalogue.labels import POOL, SITE
from infra.commands.autoscaler import simulating
from infra.load import load
from infra.model import Cluster as Spec
from infra.render.kubernetes import autoscaler
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock
from infra.simulator import run
from infra.simulator.conditions import Capacity, Conditions
from infra.simulator.policy import Ours
from infra.simulator.trace import Job, Trace
from infra.simulator.world import World

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[3]
MINE = "user-ada"
JOBS = f"/apis/batch/v1/namespaces/{MINE}/jobs"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{MINE}/workloads"
FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"

SPEC = """\
version: 1
extends: base.yaml
name: chain
domain: chain.internal
sites:
  us-west-2: {kind: aws, primary: true}
  us-east-1: {kind: aws, overflow: 1}
images: {gpu: {ubuntu: 24.04, gpu: {driver: 580}}}
pools:
  ones:
    image: gpu
    instance_types: [g5.xlarge]
    priority: 1
    taints: &gpu [{key: nvidia.com/gpu, value: present}]
    regions: {us-west-2: {max: 4}, us-east-1: {max: 4}}
  fours:
    image: gpu
    instance_types: [g5.12xlarge]
    taints: *gpu
    regions: {us-west-2: {max: 2}, us-east-1: {max: 3}}
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
access:
  users:
    ada: {name: Ada Lovelace, email: ada@lab.example, uid: 10001, groups: [researchers]}
    alan: {name: Alan Turing, email: alan@lab.example, uid: 10002, groups: [engineers]}
autoscaler: {image: "registry.lab.example/autoscaler:1"}
"""

FAST: dict[str, Any] = {
    "interval": 1,
    "idle": 5,
    "settle": 1,
    "boot_timeout": 60,
    "backoff_min": 40,
    "backoff_max": 40,
    "booking": 60,
    "max_scale_in_percent": 100,
    "max_cluster_scale_in_percent": 100,
}


@dataclass
class Chain:
    """A cluster without a machine, and all that finds some."""

    cluster: Cluster
    aws: EmbeddedAws
    config: Config
    log: Path
    spec: Spec

    def submit(self, name: str, *, gpus: int = 1, pods: int = 1, seconds: float = 1, **more: Any) -> None:
        """What a person would: a job, and how long it runs, for the machines that are made up."""
        job: Object = yaml.safe_load(first_job())
        job["metadata"] = {"name": name, "namespace": MINE, **more.pop("metadata", {})}
        template = job["spec"]["template"]
        template["metadata"] = {"annotations": {SECONDS: str(seconds), **more.pop("annotations", {})}}
        template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        template["spec"].update(more.pop("pod", {}))
        job["spec"].update(parallelism=pods, completions=pods, **more)
        self.cluster.create(JOBS, job)

    def end(self, name: str) -> None:
        self.cluster.client.call("DELETE", f"{JOBS}/{name}", body={"propagationPolicy": "Background"})

    def job(self, name: str) -> Object:
        return self.cluster.get(f"{JOBS}/{name}") or {}

    def done(self, *names: str) -> bool:
        found = [self.job(name) for name in names]
        return all(each["status"].get("succeeded") == each["spec"]["completions"] for each in found)

    def running(self, name: str) -> int:
        return int(self.job(name).get("status", {}).get("ready", 0))

    def workload(self, name: str) -> Object:
        """Kueue's, of a job."""
        found = self.cluster.get(WORKLOADS) or {"items": []}
        uid = self.job(name)["metadata"]["uid"]
        return next(
            (
                each
                for each in found["items"]
                if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", ()))
            ),
            {},
        )

    def flavor(self, name: str) -> str:
        """Of its GPUs; empty while it has none."""
        admission = self.workload(name).get("status", {}).get("admission", {})
        for each in admission.get("podSetAssignments", ()):
            return str(each.get("flavors", {}).get("nvidia.com/gpu", ""))
        return ""

    def born(self, pool: str, region: str) -> int:
        """How many machines a group has."""
        return sum(
            len(self.aws.instances(each))
            for each in self.config.groups
            if (each.pool, each.region) == (pool, region)
        )

    def machines(self, pool: str) -> set[str]:
        """All that a pool has, by instance."""
        groups = [each for each in self.config.groups if each.pool == pool]
        return {name for each in groups for name in self.aws.instances(each)}

    def where(self, name: str) -> set[tuple[str, str]]:
        """Pool and site of the machines that a job's pods are on."""
        found = self.cluster.get(f"/api/v1/namespaces/{MINE}/pods?labelSelector=job-name%3D{name}")
        nodes = [each["spec"].get("nodeName") for each in (found or {"items": []})["items"]]
        labels = [(self.cluster.get(f"/api/v1/nodes/{each}") or {}).get("metadata") for each in nodes if each]
        return {(each["labels"][POOL], each["labels"][SITE]) for each in labels if each}

    def said(self, since: int = 0) -> list[Object]:
        """The autoscaler's log, from a line on."""
        return [json.loads(each) for each in self.log.read_text().splitlines()[since:] if each[:1] == "{"]

    def answers(self, name: str, since: int = 0) -> list[str]:
        """What the autoscaler has told the requests of a job."""
        done = [each["action"] for each in self.said(since) if each["message"] == "Answer: done"]
        return [each["condition"] for each in done if f"-{name}-" in each["name"]]

    def evictions(self, name: str) -> int:
        """How often Kueue took a job's place away."""
        return sum(
            each["count"]
            for each in self.workload(name)["status"].get("schedulingStats", {}).get("evictions", ())
        )

    def exhausted(self, kind: str, *regions: str) -> None:
        """AWS has no machine of a type there."""
        for region in regions:
            self.aws.order(faults.Fault(
                faults.CAPACITY, faults.FOREVER, region=region, holding=(kind,), status=500,
                code="InsufficientInstanceCapacity",
                message=f"We currently do not have sufficient {kind} capacity in the Availability Zone you "
                "requested.",
            ))  # fmt: skip

    def until(self, true: Callable[[], Any], what: str, seconds: float = 300.0) -> None:
        """Waits; tells what Kueue and the autoscaler said where it never comes to be."""

        def explain() -> str:
            tail = "\n".join(self.log.read_text().splitlines()[-20:])
            workloads = (self.cluster.get(WORKLOADS) or {"items": []})["items"]
            states = [(each["metadata"]["name"], each.get("status")) for each in workloads]
            return f"{what}: {states}\n{tail}"

        until(true, seconds=seconds, explain=explain)


def first_job() -> str:
    """The tutorial's."""
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml\n(apiVersion: batch/v1\nkind: Job\n.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, embedded: EmbeddedAws) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    base = (ROOT / "environments/base.yaml").read_text(encoding="utf-8")
    (folder / "base.yaml").write_text(base, encoding="utf-8")
    (folder / "chain.yaml").write_text(SPEC, encoding="utf-8")
    spec, _ = resolve(load(folder / "chain.yaml").spec, Lock(), "chain")
    config = configuration.parse(autoscaler.configuration(spec))
    config = msgspec.structs.replace(config, **FAST)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    embedded.make(*config.groups, cluster=config.cluster)
    with acting(folder / "plane") as plane, account(plane, spec) as own, kueue(plane, spec):
        cluster = Cluster.of(plane.kubeconfig)
        kubelets = Kubelets(cluster, embedded, config.groups, boot=1.0, gpus=1.0)
        kubelets.start()
        log = folder / "autoscaler.log"
        words = ["--config", str(folder / "config.json"), "--kubeconfig", str(own), "--port", "0"]
        with log.open("ab") as lines:
            process = subprocess.Popen(
                [sys.executable, "-m", "infra.autoscaler", "run", *words],
                stderr=lines,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        try:
            yield Chain(cluster, embedded, config, log, spec)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            kubelets.stop()


@pytest.fixture(autouse=True)
def quiet(chain: Chain) -> Iterator[None]:
    """A test leaves neither jobs nor machines, nor what the autoscaler has learned of AWS."""
    yield
    chain.cluster.client.call("DELETE", JOBS, body={"propagationPolicy": "Background"})
    faults.FAULTS.clear()
    chain.until(lambda: not any(chain.aws.instances(each) for each in chain.config.groups), "an empty cloud")
    chain.until(lambda: not held(chain), "free flavors")


def held(chain: Chain) -> set[str]:
    """Flavors that the autoscaler keeps work from."""
    found = chain.cluster.get(FLAVORS) or {"items": []}
    return {
        each["metadata"]["name"]
        for each in found["items"]
        for taint in each["spec"].get("nodeTaints", ())
        if taint["key"] == "causeway.dev/no-capacity"
    }


def barred(chain: Chain) -> set[str]:
    """Pools without capacity, as people are told."""
    found = chain.cluster.get("/api/v1/namespaces/causeway-system/configmaps/availability")
    published = json.loads(found["data"]["availability.json"]) if found else {"no_capacity": []}
    return {each["pool"] for each in published["no_capacity"] if each["until"]}


def test_the_readmes_first_job_gets_a_machine_runs_and_the_machine_goes(chain: Chain) -> None:
    chain.submit("first")
    chain.until(lambda: chain.done("first"), "the end of the first job")
    assert chain.flavor("first") == "ones"
    chain.until(lambda: not chain.born("ones", "us-west-2"), "the end of its machine")


def test_without_capacity_in_any_region_it_starts_in_the_next_pool(chain: Chain) -> None:
    chain.exhausted("g5.xlarge", "us-west-2", "us-east-1")
    # People are told within half a minute: the job must still run then.
    chain.submit("moved-on", seconds=600)
    chain.until(lambda: "ones" in held(chain), "a flavor without capacity")
    chain.until(lambda: "ones" in barred(chain), "the word of it for people")
    chain.until(lambda: chain.running("moved-on"), "its start")
    assert chain.flavor("moved-on") == "fours"


def test_a_gang_starts_in_one_region_or_not_at_all(chain: Chain) -> None:
    """Of three machines the first region may have two: all three are the next one's. No region may have four:
    none is started, unless the gang may run at several sites."""
    gang: dict[str, Any] = {"gpus": 4, "completionMode": "Indexed", "seconds": 600}
    chain.submit("gang", pods=3, **gang)
    chain.until(lambda: chain.running("gang") == 3, "its start")
    assert chain.where("gang") == {("fours", "us-east-1")}
    assert chain.born("fours", "us-west-2") == 0
    chain.end("gang")
    chain.until(lambda: not chain.machines("fours"), "the end of its machines")
    begun = len(chain.log.read_text().splitlines())
    chain.submit("wide", pods=4, **gang)
    chain.until(lambda: "Failed" in chain.answers("wide", begun), "the answer that it fits nowhere")
    chain.end("wide")
    assert not [each for each in chain.said(begun) if each["message"] == "SetDesired: done"]
    chain.submit("split", pods=4, annotations={"causeway.dev/gang-across": "sites"}, **gang)
    chain.until(lambda: chain.running("split") == 4, "its start")
    assert chain.where("split") == {("fours", "us-west-2"), ("fours", "us-east-1")}


def test_higher_work_takes_the_place_of_lower_and_that_comes_back(chain: Chain) -> None:
    """Kueue evicts: the pool's quota is used up, and its group's own queue has both."""
    busy: dict[str, Any] = {"completionMode": "Indexed", "pods": 2, "gpus": 4}
    low, high = {"kueue.x-k8s.io/priority-class": "low"}, {"kueue.x-k8s.io/priority-class": "high"}
    chain.submit("low-1", seconds=20, metadata={"labels": low}, **busy)
    chain.submit("low-2", seconds=20, metadata={"labels": low}, **{**busy, "pods": 3})
    chain.until(lambda: chain.running("low-1") + chain.running("low-2") == 5, "five busy machines")
    chain.submit("high", gpus=4, seconds=1, metadata={"labels": high})
    chain.until(lambda: chain.done("high"), "the end of the higher work")
    evicted = [name for name in ("low-1", "low-2") if chain.evictions(name)]
    assert len(evicted) == 1
    chain.until(lambda: chain.done("low-1", "low-2"), "the end of the lower work")


def test_work_on_a_machine_that_dies_starts_again_on_another(chain: Chain) -> None:
    chain.submit("hit", seconds=8, backoffLimit=3)
    chain.until(lambda: chain.running("hit"), "its start")
    (machine,) = chain.machines("ones")
    chain.aws.client("ec2", "us-west-2").terminate_instances(InstanceIds=[machine])
    chain.until(lambda: chain.machines("ones") - {machine}, "another machine")
    chain.until(lambda: chain.done("hit"), "its end")
    # Kueue finds no other node for it at once, and lets all of it queue again: so does the simulator's model.
    assert chain.evictions("hit") == 1


BURST = (
    Job(submit=0, name="wide", pods=2, gpus=4, seconds=8, gang=True, user="ada", cpu=500, memory=1024),
    Job(submit=0, name="pair", pods=2, gpus=1, seconds=8, gang=True, user="ada", cpu=500, memory=1024),
    Job(submit=0, name="solo", pods=1, gpus=1, seconds=8, user="ada", cpu=500, memory=1024),
    Job(submit=9, name="rest", pods=4, gpus=1, seconds=2, gang=True, user="ada", cpu=500, memory=1024),
)
"""The second region takes all but the last, which comes when these run, and needs their machines and one
more."""


@dataclass
class Decided:
    """What a burst came to: not when, but where, with how many machines, and in which order."""

    where: dict[str, set[tuple[str, str]]]
    """Job → pool and site of its machines."""
    launched: dict[str, int]
    """Group → machines that were asked for, where there are some."""
    late: set[str]
    """Jobs that began after others had ended."""


def test_a_burst_with_gangs_is_decided_as_in_the_simulator(chain: Chain) -> None:
    chain.exhausted("g5.xlarge", "us-west-2")
    chain.exhausted("g5.12xlarge", "us-west-2")
    real, waits = _in_earnest(chain)
    simulated, supposed = _in_the_simulator(chain)
    print(f"loops waited: here {waits}, in the simulator {supposed}")  # `pytest -rP` shows it
    assert real == simulated
    ones, fours = {("ones", "us-east-1")}, {("fours", "us-east-1")}
    assert real.where == {"wide": fours, "pair": ones, "solo": ones, "rest": ones}
    assert sorted(real.launched.values()) == [2, 4]
    assert real.late == {"rest"}


def _in_earnest(chain: Chain) -> tuple[Decided, dict[str, int]]:
    begun = len(chain.log.read_text().splitlines())
    where: dict[str, set[tuple[str, str]]] = {job.name: set() for job in BURST}
    waits: dict[str, int] = {}
    late: set[str] = set()

    def submit(job: Job) -> None:
        more = {"completionMode": "Indexed"} if job.gang else {}
        chain.submit(job.name, gpus=job.gpus, pods=job.pods, seconds=job.seconds, **more)

    def look() -> bool:
        over = {name for name in where if chain.job(name) and chain.done(name)}
        for job in BURST:
            where[job.name] |= chain.where(job.name)
            if job.name not in waits and where[job.name]:
                waits[job.name] = sum(each["message"] == "loop" for each in chain.said(begun))
                late.update([job.name] if over - {job.name} else [])
        return len(over) == len(BURST)

    for job in BURST[:-1]:
        submit(job)
    chain.until(lambda: look() or len(waits) == len(BURST) - 1, "the start of the first ones")
    submit(BURST[-1])
    chain.until(look, "the end of the burst")
    done = [each["action"] for each in chain.said(begun) if each["message"] == "SetDesired: done"]
    launched = _launched((each["group"], each["was"], each["desired"]) for each in done)
    return Decided(where, launched, late), waits


def _in_the_simulator(chain: Chain) -> tuple[Decided, dict[str, int]]:
    rules = simulating.rules(chain.spec)
    none = Capacity(region="us-west-2", begin=0, end=1e6, machines=0)
    conditions = Conditions(
        reaction=0.2,
        running=0.2,
        boot=1,
        boot_spread=0,
        gpu_startup=1,
        recreate=0.2,
        ending=1,
        capacity=(none,),
    )
    trace = Trace(BURST, conditions)
    policy = _Watching(chain.config)
    result = run(chain.config, trace, policy, world=World(chain.config, trace, rules=rules), until=600)
    assert result.finished == sum(job.pods for job in BURST)
    return Decided(policy.where, _launched(policy.sizes), policy.late), policy.waits


class _Watching(Ours):
    """Ours, and what is seen of the jobs in each loop."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.where: dict[str, set[tuple[str, str]]] = {job.name: set() for job in BURST}
        self.waits: dict[str, int] = {}
        self.late: set[str] = set()
        self.sizes: list[tuple[str, int, int]] = []
        self._loops = 0

    def loop(self, world: World, snapshot: Snapshot, now: float) -> float:
        super().loop(world, snapshot, now)
        self._loops += 1
        nodes = {each.name: each.labels for each in snapshot.nodes}
        runs = {pod.owner.name: nodes[pod.node] for pod in snapshot.pods if pod.owner and pod.node in nodes}
        over = set(self.waits) - set(runs)
        for name, labels in runs.items():
            self.where[name].add((labels[POOL], labels[SITE]))
            if name not in self.waits:
                self.waits[name] = self._loops
                self.late.update([name] if over else [])
        return now  # each loop is run, as there

    def act(self, world: World, action: Action, now: float) -> None:
        if isinstance(action, SetDesired):
            self.sizes.append((action.group, action.was, action.desired))
        super().act(world, action, now)


def _launched(sizes: Iterable[tuple[str, int, int]]) -> dict[str, int]:
    """Machines that groups were to grow by; what a group did not get is taken back, and does not count."""
    found: Counter[str] = Counter()
    for group, was, desired in sizes:
        found[group] += desired - was
    return {group: count for group, count in found.items() if count}
