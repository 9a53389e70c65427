"""What the real Kueue does with what is rendered for it: the scenarios that the simulator's model passes too,
and what one user may hold of a group's queue."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from autoscaler.admissions import SCENARIOS, Capacity, End, Scenario, Submit, spec
from autoscaler.kube.account import account, acting
from autoscaler.kube.clusters import Cluster, Object
from kube.queues import kinds, kueue
from kube_tools import need, templated
from waiting import until

from causeway.cluster import runs
from causeway.cluster.runs import in_the_queue
from infra.autoscaler.kube.client import MERGE
from infra.catalogue.labels import LIMITED_GPUS

pytestmark = pytest.mark.timeout(900)

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
USERS = ("ada", "alan", "edith", "frances", "mary", "rosa")
HELD = {"key": "causeway.dev/no-capacity", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("queues")
    found = spec(folder)
    with acting(folder / "plane") as plane, account(plane, found):
        kinds(plane.admin, templated("jobset"))
        with kueue(plane, found):
            yield Cluster.of(plane.kubeconfig)


class Real:
    """A scenario's runner."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def do(self, event: Submit | Capacity | End) -> None:
        match event:
            case Submit():
                self._submit(event)
            case End(job=job):
                end(self.cluster, *job.split("/"))
            case Capacity(pool=pool, there=there):
                self._hold(pool, on=not there)
                for each in [] if there else self._requests(pool):
                    self._fail(each)

    def have(self, job: str) -> str | None:
        """Its flavor, or nothing while it waits; None where Kueue is not done with it."""
        work = self._workload(*job.split("/"))
        for part in assigned(work):
            return str(part["flavors"]["cpu"])
        conditions = work.get("status", {}).get("conditions", ())
        reserved = next((each for each in conditions if each["type"] == "QuotaReserved"), None)
        looked = reserved is not None and "Pending the preemption" not in reserved["message"]
        return "" if looked else None

    def preempted(self, jobs: set[str]) -> set[str]:
        """Those whose quota others took."""
        return {
            job
            for job in jobs
            for each in self._workload(*job.split("/"))
            .get("status", {})
            .get("schedulingStats", {})
            .get("evictions", ())
            if each["reason"] == "Preempted"
        }

    def clear(self) -> None:
        for user in USERS:
            self.cluster.client.call("DELETE", jobs(user), body={"propagationPolicy": "Background"})
        for pool in ("ones", "fours"):
            self._hold(pool, on=False)
        until(lambda: not any(workloads(self.cluster, f"user-{user}") for user in USERS))

    def _submit(self, event: Submit) -> None:
        user, name = event.job.split("/")
        spec = asking({"nvidia.com/gpu": event.gpus} if event.gpus else {}, event.cpu)
        if event.site:
            spec["nodeSelector"] = {"causeway.dev/site": event.site}
        self.cluster.create(jobs(user), batch(name, spec, priority=event.priority, pods=event.pods))

    def _hold(self, pool: str, *, on: bool) -> None:
        path = f"{KUEUE}/resourceflavors/{pool}"
        found = self.cluster.get(path)
        assert found is not None
        kept = [each for each in found["spec"].get("nodeTaints", ()) if each["key"] != HELD["key"]]
        self.cluster.patch(path, {"spec": {"nodeTaints": [*kept, *([HELD] if on else [])]}})

    def _requests(self, pool: str) -> list[Object]:
        """Open ones of workloads with a flavor."""
        requests: list[Object] = []
        for user in USERS:
            path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/user-{user}/provisioningrequests"
            holders = {
                work["metadata"]["name"]
                for work in workloads(self.cluster, f"user-{user}")
                for part in assigned(work)
                if pool in part["flavors"].values()
            }
            items = (self.cluster.get(path) or {"items": []})["items"]
            requests += [each for each in items if holders & {*owners(each)}]
        return requests

    def _fail(self, request: Object, condition: str = "Failed", message: str = "") -> None:
        """As the autoscaler does where no region has machines of the pool."""
        meta = request["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = (
            f"/apis/autoscaling.x-k8s.io/v1/namespaces/{meta['namespace']}"
            f"/provisioningrequests/{meta['name']}/status"
        )
        conditions = [
            {"type": kind, "status": "True", "reason": "Test", "message": message, "lastTransitionTime": now}
            for kind in ("Accepted", condition)
        ]
        self.cluster.client.call("PATCH", path, body={"status": {"conditions": conditions}}, content=MERGE)

    def _workload(self, user: str, name: str) -> Object:
        return next((each for each in workloads(self.cluster, f"user-{user}") if name in owners(each)), {})


def jobs(user: str) -> str:
    return f"/apis/batch/v1/namespaces/user-{user}/jobs"


def workloads(cluster: Cluster, namespace: str) -> list[Object]:
    return list((cluster.get(f"{KUEUE}/namespaces/{namespace}/workloads") or {"items": []})["items"])


def owners(work: Object) -> list[str]:
    """Names of the jobs that it is of."""
    return [owner["name"] for owner in work["metadata"].get("ownerReferences", ())]


def assigned(work: Object) -> list[Object]:
    """What its sets of pods have been given."""
    return list(work.get("status", {}).get("admission", {}).get("podSetAssignments", ()))


def batch(name: str, spec: Object, *, priority: str, pods: int = 1) -> Object:
    """An indexed Job of one container, ``spec``."""
    container = {"name": "main", "image": "none", **spec.pop("container")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/priority-class": priority}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {"spec": {"containers": [container], "restartPolicy": "Never", **spec}},
        },
    }


def asking(limits: Object, cpu: int = 1) -> Object:
    """The spec of a pod that asks for this."""
    requests = {"cpu": str(cpu), "memory": "1Gi"}
    return {"container": {"resources": {"requests": requests, "limits": limits}}}


@pytest.fixture
def real(cluster: Cluster) -> Iterator[Real]:
    found = Real(cluster)
    yield found
    found.clear()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_kueue_admits_as_the_model(real: Real, scenario: Scenario) -> None:
    submitted: set[str] = set()
    for step in scenario.steps:
        if isinstance(step.event, Submit):
            submitted.add(step.event.job)
        _asked(real, step.event)
        real.do(step.event)
        _see(real, step.event, dict(step.have))
        _next_second()
    assert real.preempted(submitted) == scenario.preempted


def _asked(real: Real, event: Submit | Capacity | End) -> None:
    """What is to fail must have been asked for."""
    if isinstance(event, Capacity) and not event.there:
        until(lambda: real._requests(event.pool))


def _see(real: Real, event: object, have: dict[str, str]) -> None:
    ends = time.monotonic() + 90
    while (found := {job: real.have(job) for job in have}) != have:
        assert time.monotonic() < ends, f"{event}: {found}, and not {have}"
        time.sleep(0.05)


def _next_second() -> None:
    """Kueue orders by times in whole seconds."""
    time.sleep(1.0 - time.time() % 1.0)


def end(cluster: Cluster, user: str, name: str) -> None:
    cluster.client.call("DELETE", f"{jobs(user)}/{name}", body={"propagationPolicy": "Background"})


def test_what_queues_do_not_count_keeps_nobody_waiting(real: Real) -> None:
    """Adapters and huge pages come with GPUs; queues count processors, memory and GPUs."""
    asked = {"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5128Mi"}
    real.cluster.create(jobs("ada"), batch("adapters", asking(asked), priority="normal"))
    until(lambda: real.have("ada/adapters") == "fours")


def test_work_that_asks_for_what_nothing_has_is_given_up_and_says_why(real: Real) -> None:
    asked = {"nvidia.com/gpu": "4", "example.com/fpga": "1"}
    real.cluster.create(jobs("ada"), batch("fpga", asking(asked), priority="normal"))
    until(lambda: real._requests("fours"))
    (request,) = real._requests("fours")
    why = "nothing in this cluster has 1 example.com/fpga"
    real._fail(request, "CapacityRevoked", why)
    until(lambda: real._workload("ada", "fpga")["spec"].get("active") is False)
    until(lambda: not real.have("ada/fpga"))
    work = real._workload("ada", "fpga")
    evicted = next(each for each in work["status"]["conditions"] if each["type"] == "Evicted")
    assert evicted["reason"] == runs.REJECTED, "by which `causeway resume` knows it"
    said = [each.get("message", "") for each in work["status"].get("admissionChecks", ())]
    assert any(why in each for each in (evicted["message"], *said))
    # Whoever has changed the cluster deletes the Workload, as members may, and its job is asked for anew. One
    # that is only made active again, Kueue leaves out of its queue.
    real.cluster.delete(f"{KUEUE}/namespaces/user-ada/workloads/{work['metadata']['name']}")
    until(lambda: real._requests("fours"))
    assert real._workload("ada", "fpga")["metadata"]["uid"] != work["metadata"]["uid"]


MARY = "user-mary"
LIMIT = "causeway.dev/gpu-limit"


def template(gpus: int, **more: Any) -> Object:
    container: Object = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [container], "restartPolicy": "Never", **more},
    }


def job(name: str, namespace: str, gpus: int, **more: Any) -> Object:
    """High work: all pools are open to it."""
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {"template": template(gpus, priorityClassName="high", **more)},
    }


def submitted(cluster: Cluster, user: str, work: Object, *groups: str, dry: bool = False) -> str:
    """What the API server says to a user's own request: nothing where it takes it."""
    command = [need("kubectl"), f"--kubeconfig={cluster.kubeconfig}", f"--as={user}", "create", "-f", "-"]
    command += [f"--as-group={each}" for each in groups] + (["--dry-run=server"] if dry else [])
    done = subprocess.run(command, input=json.dumps(work), capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def holding(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Job → the flavor of its limit, of those that have quota."""
    return {
        name: part["flavors"][LIMITED_GPUS]
        for work in workloads(cluster, namespace)
        for part in assigned(work)
        for name in owners(work)
    }


def waits(cluster: Cluster, namespace: str, name: str) -> str:
    """Why a job has no quota, in Kueue's words."""
    for work in workloads(cluster, namespace):
        if name in owners(work):
            for condition in work.get("status", {}).get("conditions", ()):
                if (condition["type"], condition["status"]) == ("QuotaReserved", "False"):
                    return str(condition["message"])
    return ""


def test_a_user_holds_no_more_gpus_than_the_limit_of_all_pools_together(cluster: Cluster) -> None:
    # The limit is one machine's; there are more GPUs in each pool.
    assert not submitted(cluster, "mary", job("one", MARY, 3))
    # Kueue orders by creation, in whole seconds: of two in one second either may be first.
    until(lambda: holding(cluster, MARY) == {"one": f"limit.team-vision.{MARY}"})
    for name, namespace, gpus in (("two", MARY, 2), ("three", "team-vision", 1)):
        assert not submitted(cluster, "mary", job(name, namespace, gpus))
    assert not submitted(cluster, "rosa", job("one", "user-rosa", 4))
    # What she submits in the group's namespace counts for her too; what others submit there counts
    # for the group.
    until(lambda: holding(cluster, "team-vision") == {"three": f"limit.team-vision.{MARY}"})
    until(lambda: holding(cluster, "user-rosa") == {"one": "limit.team-vision.user-rosa"})
    assert not submitted(cluster, "engineer", job("four", "team-vision", 4), "system:masters")
    until(lambda: holding(cluster, "team-vision").get("four") == "limit.team-vision.team-vision")
    until(lambda: LIMITED_GPUS in waits(cluster, MARY, "two"))
    # Those words are what `causeway why` goes by; what it does not know it passes on.
    limited = in_the_queue(waits(cluster, MARY, "two"))
    assert limited != waits(cluster, MARY, "two")
    large = job("large", MARY, 3)
    large["spec"] |= {"parallelism": 2, "completions": 2}
    assert not submitted(cluster, "mary", large)
    until(lambda: LIMITED_GPUS in waits(cluster, MARY, "large"))
    assert in_the_queue(waits(cluster, MARY, "large")) not in (limited, waits(cluster, MARY, "large"))
    end(cluster, "mary", "one")
    until(lambda: holding(cluster, MARY) == {"two": f"limit.team-vision.{MARY}"})


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": LIMIT, "operator": "Equal", "value": "user-rosa"},
        {"key": LIMIT, "operator": "Exists"},
        {"operator": "Exists"},
    ],
    ids=["of somebody else", "of everybody", "of all taints"],
)
@pytest.mark.parametrize("kind", ["Job", "JobSet", "Deployment"])
def test_work_counts_for_nobody_else(cluster: Cluster, kind: str, toleration: Object) -> None:
    each = job("x", "team-vision", 1, tolerations=[toleration])
    if kind == "JobSet":
        part = {"name": "main", "template": {"spec": each["spec"]}}
        each |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": kind, "spec": {"replicatedJobs": [part]}}
    elif kind == "Deployment":
        pod = template(1, tolerations=[toleration], restartPolicy="Always")
        each |= {
            "apiVersion": "apps/v1",
            "kind": kind,
            "spec": {"template": pod, "selector": {"matchLabels": {"app": "x"}}},
        }
    assert "denied request" in submitted(cluster, "mary", each, dry=True)


def test_work_may_say_for_whom_it_counts(cluster: Cluster) -> None:
    own = {"key": LIMIT, "operator": "Equal", "value": MARY, "effect": "NoSchedule"}
    assert not submitted(cluster, "mary", job("x", "team-vision", 1, tolerations=[own]), dry=True)
