"""A conductor's own loop against a real API server and a real MLflow (SQLite), without controllers and pods:
between two rounds trials are let in, report a step and end. A request may be counted, or be the last one
before the conductor is killed."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from client.mlflow_server import WORKSPACE, Mlflow, mlflow
from golden_clusters import golden
from kube.plane import planes
from kube.queues import kinds
from kube_tools import templated

from causeway.cluster.connection import Cluster
from causeway.cluster.offer import parse
from causeway.cluster.sweeps import ClusterBench, Order
from causeway.code.source import NO_SOURCE
from causeway.job import Job
from causeway.sweeping import step
from causeway.tracking.searches import Ledger, Whole, begin
from causeway.tracking.sending import Server
from infra.render.kubernetes import charts, research

JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{WORKSPACE}/jobsets"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/workloads"
_MERGE = "application/merge-patch+json"


class KilledError(BaseException):
    """The conductor is killed, before or after a request was answered."""


class _Watched(Cluster):
    """Tells of each request."""

    tell: Callable[[str], None]

    def _request(self, method: str, path: str, **options: Any) -> Any:
        self.tell("API server")
        answer = super()._request(method, path, **options)
        self.tell("")
        return answer


@dataclass
class ConductorWorld:
    """Both servers, and what becomes of requests to them."""

    admin: Cluster
    watched: _Watched
    mlflow: Mlflow
    database: Path
    seen: Counter[str] = field(default_factory=Counter)
    kill_after: int = -1
    """So many more words of requests; negative for never."""
    _steps: dict[str, int] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def tell(self, server: str) -> None:
        if server:
            self.seen[server] += 1
        if self.kill_after == 0:
            self.kill_after = -1
            raise KilledError
        self.kill_after -= 1

    def call(self, method: str, call: str, body: Any = None) -> Any:
        """Of MLflow, for a conductor."""
        self.tell("MLflow")
        answer = self.plain(method, call, body)
        self.tell("")
        return answer

    def plain(self, method: str, call: str, body: Any = None) -> Any:
        """Of MLflow, for others."""
        return Server.at(self.mlflow.address, WORKSPACE, None).call(method, call, body, timeout=120)

    def begin(self, job: Job) -> Whole:
        """A new search of this job."""
        order = Order(f"{job.name}-s1", job, "", "ada", NO_SOURCE)
        return begin(self.plain, order.name, job.name, order.plain(), {})

    def bench(self, whole: Whole) -> ClusterBench:
        """Of a conductor that begins."""
        return ClusterBench(self.watched, WORKSPACE, Ledger(self.call, whole.id), lambda _: None, every=0.0)

    def round(self, bench: ClusterBench, whole: Whole, steps: int) -> bool:
        """One round of a conductor, then one of trials that end after so many ``steps``. Whether the search
        goes on."""
        goes_on = step(bench, lambda _: None)
        self.go_on(whole, steps)
        if goes_on:
            bench._watch(1)  # as `wait`, without the time that it takes
        return goes_on

    def go_on(self, whole: Whole, steps: int) -> None:
        """Trials that are new get a Workload; those that may run report a step, and end after the last."""
        found = self.admin.call("GET", JOBSETS, labelSelector=f"causeway.dev/sweep={whole.name}")["items"]
        held = {each["metadata"]["name"]: each for each in self.admin.call("GET", WORKLOADS)["items"]}
        ids = {
            next(tag["value"] for tag in run["data"]["tags"] if tag["key"] == "mlflow.runName"): run
            for run in self.plain("POST", "runs/search", {
                "experiment_ids": [whole.experiment], "max_results": 5000,
                "filter": f"tags.`mlflow.parentRunId` = '{whole.id}'",
            }).get("runs", ())
        }  # fmt: skip
        points = []
        for each in found:
            name = each["metadata"]["name"]
            if name not in held:
                self._let_in(name, each["metadata"]["uid"])
                continue
            over = any(one["type"] == "Completed" for one in each.get("status", {}).get("conditions", ()))
            if over or not held[name]["spec"].get("active", True):
                continue
            at = self._steps[name] = self._steps.get(name, 0) + 1
            tags = {tag["key"]: tag["value"] for tag in ids[name]["data"]["tags"]}
            lr = float(yaml.safe_load(tags["causeway.trial.parameters"])["lr"])
            run = ids[name]["info"]["run_id"]
            points.append(("loss", lr + 1 / at, round(time.time() * 1000), run, at, False))
            if at == 1:
                note = {"run_id": run, "key": "causeway.checkpoint", "value": "step-1"}
                self.plain("POST", "runs/set-tag", note)
            if at >= steps:
                self._end(name)
        with closing(sqlite3.connect(self.database, timeout=60)) as opened, opened:
            opened.executemany(
                "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                points,
            )

    def _let_in(self, name: str, uid: str) -> None:
        pod = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
        self.admin.call("POST", WORKLOADS, {
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/job-uid": uid}},
            "spec": {"active": True, "queueName": "default",
                     "podSets": [{"name": "main", "count": 1, "template": pod}]},
        })  # fmt: skip

    def _end(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        over = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "",
                "lastTransitionTime": now}  # fmt: skip
        self.admin.call("PATCH", f"{JOBSETS}/{name}/status", {"status": {"conditions": [over]}}, form=_MERGE)


def job_of(name: str, trials: int, parallel: int, steps: int, first: int = 1) -> Job:
    """A search of one number, by ASHA from the step ``first`` on."""
    rule = {"rule": "asha", "min": first, "max": steps}
    fields = {
        "name": name, "run": "python3 train.py {--lr}", "code": False, "gpus": 0,
        "sweep": {"parameters": {"lr": {"float": [0, 1]}}, "metric": "loss", "trials": trials,
                  "parallel": parallel, "sampler": "random", "stop": rule},
    }  # fmt: skip
    return Job.model_validate(fields)


@contextmanager
def conductor_world(scratch: Path) -> Iterator[ConductorWorld]:
    """Both servers. Skips where there is no API server."""
    spec = golden("research")
    assert spec.research is not None
    with planes(scratch / "api") as plane, mlflow(scratch / "mlflow") as tracking:
        admin, watched = Cluster(str(plane.kubeconfig)), _Watched(str(plane.kubeconfig))
        watched.__dict__["offer"] = parse(research.contract(spec, spec.research))
        for chart, values in (("jobset", None), ("kueue", charts.values(spec)["kueue"])):
            kinds(plane.admin, templated(chart, values, f"--namespace={chart}-system"))
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WORKSPACE}}
        admin.call("POST", "/api/v1/namespaces", space)
        for kind in (JOBSETS, WORKLOADS):
            until = time.monotonic() + 60
            while admin.find(kind) is None:
                assert time.monotonic() < until, kind
                time.sleep(0.2)
        made = ConductorWorld(admin, watched, tracking, scratch / "mlflow/mlflow.db")
        watched.tell = made.tell
        yield made
