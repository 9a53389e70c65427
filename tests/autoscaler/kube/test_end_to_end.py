"""All of it in earnest: a real API server with its controllers and its scheduler, the process as its image
runs it and with its own rights, and AWS over HTTP. Only the machines are made up: see `kubelets`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from autoscaler import make
from autoscaler.embedded import EmbeddedAws
from autoscaler.kube.account import REQUESTS
from autoscaler.kube.clusters import Cluster, Object
from autoscaler.kube.kubelets import SECONDS, Kubelets
from autoscaler.kube.plane import planes
from localaws import faults

from infra.autoscaler.config import MachineType
from infra.autoscaler.observed.snapshot import GPU
from infra.render.kubernetes.manifests import SYSTEM

JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/autoscaler"
POOL = "causeway.dev/pool"

SMALL = MachineType("p3.2xlarge", 1, 8, 3.06, 0.92, "on-demand-p", "spot-p")
_OF_SMALL: dict[str, Any] = {
    "pool": "scarce",
    "types": (SMALL,),
    "taints": (make.GPU_TAINT,),
    "allocatable": {"cpu": 7_590, "memory": 55_000 * make.MI, "pods": 110, GPU: 1},
}
WEST, EAST = make.group(), make.group("us-east-1")
NONE, REST = make.group(**_OF_SMALL), make.group("us-east-1", **_OF_SMALL)
CPU = make.cpu_group()
CONFIG = make.config(
    WEST,
    NONE,
    EAST,
    REST,
    CPU,
    interval=1,
    idle=5,
    settle=1,
    boot_timeout=60,
    backoff_min=600,
    booking=60,
    max_scale_in_percent=100,
    max_cluster_scale_in_percent=100,
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    with planes(tmp_path_factory.mktemp("plane")) as found:
        yield found


@dataclass
class Lab:
    """A cluster without a node, and the autoscaler that is to find some."""

    cluster: Cluster
    aws: EmbeddedAws
    kubelets: Kubelets
    options: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    fewest: int | None = None
    """The fewest copies of the service that were ready at a time."""

    def begin(self) -> None:
        with self.log.open("ab") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infra.autoscaler", "run", "--port", "0", *self.options],
                stderr=lines,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        """As when its machine loses power. Its lease goes too: to wait for its end takes half a minute."""
        self.end(signal.SIGKILL)
        if self.cluster.get(LEASE) is not None:
            self.cluster.delete(LEASE)
        self.begin()

    def lines(self) -> list[dict[str, Any]]:
        # The last line of one that was killed may be half of one.
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def reigns(self) -> int:
        """How many processes have begun to decide."""
        return self.log.read_text().count('"this process decides"') if self.log.exists() else 0

    def sizes(self) -> dict[str, int]:
        """Group → its size, where it has one."""
        found = {group.name: self.aws.group(group) for group in CONFIG.groups}
        return {name: each.desired_capacity for name, each in found.items() if each.desired_capacity}

    def resizes(self, group: str) -> list[tuple[int, int]]:
        """(was, desired) of each write of a group's size, as the process tells."""
        return [
            (line["action"]["was"], line["action"]["desired"])
            for line in self.lines()
            if line["message"] == "SetDesired: done" and line["action"]["group"] == group
        ]

    def job(self, name: str, pods: int, spec: Object, *, seconds: float, **more: Any) -> None:
        meta = {"annotations": {SECONDS: str(seconds), **more.pop("annotations", {})}}
        self.cluster.create(
            JOBS,
            {
                "metadata": {"name": name},
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "backoffLimit": 0,
                    "template": {"metadata": meta, "spec": {**spec, "restartPolicy": "Never"}},
                    **more,
                },
            },
        )

    def finished(self, *names: str) -> bool:
        """Whether all pods of jobs have succeeded."""
        found = [self.cluster.get(f"{JOBS}/{name}") for name in names]
        return all(each and each["status"].get("succeeded") == each["spec"]["completions"] for each in found)

    def conditions(self, name: str) -> set[str]:
        """What is true of a provisioning request."""
        found = self.cluster.get(f"{REQUESTS}/{name}") or {}
        said = found.get("status", {}).get("conditions", ())
        return {each["type"] for each in said if each["status"] == "True"}

    def notes(self) -> set[str]:
        """What Events of ours at pods say."""
        found = self.cluster.get(EVENTS)
        assert found is not None
        return {
            f"{each['reason']}: {each['note']}"
            for each in found["items"]
            if str(each.get("reportingController", "")).endswith("autoscaler")
        }

    def waiting(self, job: str) -> int:
        """How many pods of a job there are."""
        found = self.cluster.get(f"{JOBS}/{job}") or {}
        return int(found.get("status", {}).get("active", 0))

    def running(self, job: str) -> int:
        """How many of them run."""
        found = self.cluster.get(f"{JOBS}/{job}") or {}
        return int(found.get("status", {}).get("ready", 0))

    def nodes(self) -> list[str]:
        found = self.cluster.get("/api/v1/nodes")
        assert found is not None
        return [each["metadata"]["name"] for each in found["items"]]

    def until(self, true: Callable[[], Any], what: str, seconds: float = 90.0) -> None:
        """Waits; tells what the process said where it never comes to be."""
        ends = time.monotonic() + seconds
        while not true():
            if time.monotonic() > ends:
                tail = "\n".join(self.log.read_text().splitlines()[-30:])
                raise AssertionError(
                    f"{what} never comes to be: {self.sizes()}, {self.kubelets.seen}\n{tail}"
                )
            time.sleep(0.1)


@pytest.fixture
def lab(plane: tuple[Cluster, Path], aws: EmbeddedAws, tmp_path: Path) -> Iterator[Lab]:
    cluster, account = plane
    aws.make(*CONFIG.groups)
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(CONFIG))
    kubelets = Kubelets(cluster, aws, CONFIG.groups, boot=1.0, cards=1.0)
    found = Lab(
        cluster, aws, kubelets, ["--config", str(path), "--kubeconfig", str(account)], tmp_path / "log"
    )
    kubelets.start()
    try:
        yield found
    finally:
        if found.process is not None and found.process.poll() is None:
            found.end(signal.SIGKILL)
        kubelets.stop()
        _swept(cluster)


def _swept(cluster: Cluster) -> None:
    """Nothing of a test is left for the next one."""
    for folder in (JOBS, DEPLOYMENTS, BUDGETS, TEMPLATES, REQUESTS, "/api/v1/nodes"):
        cluster.client.call("DELETE", folder, body={"propagationPolicy": "Background"})
    at_once = {"gracePeriodSeconds": 0}
    cluster.client.call("DELETE", "/api/v1/namespaces/default/pods", body=at_once)
    for path in (LEASE, f"/api/v1/namespaces/{SYSTEM}/configmaps/autoscaler-memory"):
        if cluster.get(path) is not None:
            cluster.delete(path)


def _pod(pool: str, *, cpu: str = "1", gpus: int = 0) -> Object:
    cards = {GPU: str(gpus)} if gpus else {}
    asked = {"cpu": cpu, "memory": "1Gi", **cards}
    return {
        "containers": [{"name": "main", "image": "none", "resources": {"requests": asked, "limits": cards}}],
        "nodeSelector": {POOL: pool},
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
    }


def _sweep(lab: Lab) -> None:
    """40 pods with a card each: ten machines."""
    lab.job("sweep", 40, _pod("gpu-p3", gpus=1), seconds=1)


def _gang(lab: Lab) -> None:
    """Twelve machines together, of which the first region has ten left: all of it starts in the second."""
    lab.job("gang", 12, _pod("gpu-p3", gpus=4), seconds=1, completionMode="Indexed")


def _scarce(lab: Lab) -> None:
    """The first region has none of these machines."""
    lab.aws.order(faults.Fault(
        faults.CAPACITY, faults.FOREVER, region=NONE.region, holding=(SMALL.name,), status=500,
        code="InsufficientInstanceCapacity",
        message=f"We currently do not have sufficient {SMALL.name} capacity in the Availability Zone you "
        "requested.",
    ))  # fmt: skip
    lab.job("scarce", 6, _pod("scarce", gpus=1), seconds=1)


def _service(lab: Lab) -> None:
    """Two copies that share their machines with jobs, and that a budget keeps one of."""
    labels = {"app": "service"}
    lab.cluster.create(
        BUDGETS,
        {"metadata": {"name": "one"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
    )
    lab.job("filler", 2, _pod("cpu", cpu="9"), seconds=1)
    lab.cluster.create(
        DEPLOYMENTS,
        {
            "metadata": {"name": "service"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod("cpu", cpu="4")},
            },
        },
    )


def _request(lab: Lab) -> None:
    """Three machines are asked for before there is a pod."""
    lab.cluster.create(
        TEMPLATES,
        {
            "metadata": {"name": "three"},
            "template": {"spec": {**_pod("scarce", gpus=1), "restartPolicy": "Never"}},
        },
    )
    lab.cluster.create(
        REQUESTS,
        {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": "three"},
            "spec": {
                "provisioningClassName": CONFIG.provisioning_class,
                "podSets": [{"podTemplateRef": {"name": "three"}, "count": 3}],
            },
        },
    )


def _requested(lab: Lab) -> None:
    """The pods for which they were asked for."""
    booked = {
        "autoscaling.x-k8s.io/consume-provisioning-request": "three",
        "autoscaling.x-k8s.io/provisioning-class-name": CONFIG.provisioning_class,
    }
    lab.job("three", 3, _pod("scarce", gpus=1), seconds=1, annotations=booked)


WORK = ("sweep", "gang", "scarce", "filler", "three")


def _steps(lab: Lab) -> list[tuple[str, Callable[[], bool], Callable[[Lab], None]]]:
    """What comes when. Work runs on until what it stands in the way of is there."""
    held = lab.kubelets.held
    held |= {"sweep", "scarce", "filler", "gang", "three"}
    return [
        ("a begin", lambda: True, _scarce),
        ("a begin", lambda: True, _service),
        ("work of the second region", lambda: lab.running("scarce") == 6, _request),
        ("the sweep's machines", lambda: lab.running("sweep") == 40, _gang),
        ("the gang's", lambda: lab.running("gang") == 12, lambda _: held.remove("sweep")),
        ("both copies", lambda: lab.kubelets.seen.fewest == 2, lambda _: held.remove("filler")),
        ("what was requested", lambda: lab.conditions("three") >= {"Accepted", "Provisioned"}, _requested),
        ("its pods", lambda: lab.running("three") == 3, lambda _: held.clear()),
    ]


def _done(lab: Lab) -> None:
    """All work is over; what keeps machines is taken away, and they go."""
    lab.until(lambda: lab.finished(*WORK), "the end of all work")
    lab.until(lambda: lab.sizes() == {CPU.name: 1}, "one machine for the service")
    lab.fewest = lab.kubelets.seen.fewest
    lab.cluster.delete(f"{DEPLOYMENTS}/service")
    lab.until(lambda: not lab.sizes() and not lab.nodes(), "an empty cluster")


def _right(lab: Lab) -> None:
    """What holds however it came about."""
    seen = lab.kubelets.seen
    assert seen.problems == []
    assert seen.lost == [], "work was cut off"
    bought = {group.name: len(seen.born[group.name]) for group in CONFIG.groups}
    assert bought == {WEST.name: 10, NONE.name: 0, EAST.name: 12, REST.name: 9, CPU.name: 2}
    assert lab.fewest == 1, "a copy of the service was moved, and one was always there"


def test_a_day(lab: Lab) -> None:
    _sweep(lab)
    lab.until(lambda: lab.waiting("sweep") == 40, "all of the sweep")
    lab.begin()
    for what, due, step in _steps(lab):
        lab.until(due, what)
        step(lab)
    _done(lab)
    _right(lab)
    assert lab.resizes(WEST.name) == [(0, 10)], "one write for the sweep"
    assert lab.resizes(EAST.name) == [(0, 12)], "one write for the gang"
    assert lab.resizes(NONE.name)[-1][1] == 0, "what it has not is not asked for any longer"
    assert any("us-west-2 has no capacity" in note for note in lab.notes()), lab.notes()
    assert lab.end() == 0
    assert not [line for line in lab.lines() if line["level"] == "error"]


def test_a_day_of_processes_that_are_killed_at_any_moment(lab: Lab) -> None:
    random = Random(6)
    kills, left = 0, 0.0
    _sweep(lab)
    lab.until(lambda: lab.waiting("sweep") == 40, "all of the sweep")
    lab.begin()
    steps = _steps(lab)

    def on() -> bool:
        """What is due; and the process is killed some time after it has begun to decide."""
        nonlocal kills, left
        if steps and steps[0][1]():
            steps.pop(0)[2](lab)
        if lab.reigns() > kills:
            left = left or time.monotonic() + random.uniform(0.0, 2.5)
            if time.monotonic() > left:
                lab.kill()
                kills, left = lab.reigns(), 0.0
        return not steps and lab.finished(*WORK)

    lab.until(on, "the end of all work", 150)
    for _ in range(2):
        lab.until(lambda: lab.reigns() > kills, "another process")  # noqa: B023, now
        time.sleep(random.uniform(0.0, 3.0))
        lab.kill()
        kills = lab.reigns()
    _done(lab)
    _right(lab)
    assert kills > 4
