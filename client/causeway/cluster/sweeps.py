"""Searches in the cluster: the conductor, a Job of the namespace, and the trials, which are runs.

The conductor (``causeway.conduct``) knows trials from MLflow (``causeway.tracking.searches``) and from their
JobSets. It is a small pod in the namespace's queue; if it dies, a new pod continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causeway.cluster import runs
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.fit import fit
from causeway.cluster.jobs import queued_job
from causeway.cluster.jobset import Submission, TrialOf, environment, jobset
from causeway.cluster.kubeconfig import ACCOUNT_FILES
from causeway.cluster.labels import OURS, SWEEP
from causeway.cluster.offer import Offer, Tracking
from causeway.cluster.runs import path_of
from causeway.code.source import Source
from causeway.job import Job, recorded, written
from causeway.jobfile import of_trial
from causeway.runtime import NEVER_WORKS
from causeway.search.engine import Engine
from causeway.search.fields import plain
from causeway.search.trials import Decision, End, Parameters, Resume, Start, Trial
from causeway.sweeping import AFTER, trial_of
from causeway.tracking.searches import Ledger, Row, Whole, alias_of
from causeway.workers import workers_of

ACCOUNT = "sweep"
"""The service account of conductors."""
LIFE = 90 * 86400
"""In seconds. The queue needs a maximum run time."""
EVERY = 10.0
"""Seconds between two rounds."""
A_TRIAL = 0.15
"""Additional seconds for each running trial: MLflow looks each of them up."""
_SELDOM = 6
"""Rounds between two checks of trials that are not running: whether they are queued or were stopped by a
user, and whether trials that were stopped early have a checkpoint."""
_LOOKS = 3
"""How often to look for a checkpoint: the last one is saved after the stop."""
_SHOWN = 30.0
"""Seconds between two updates of the summary."""
_UNSEEN = 15.0
"""Seconds until Kueue should have noticed a run that is to be stopped immediately."""
_AUTHORITY = "kube-root-ca.crt"
"""The ConfigMap in each namespace with the API server's CA certificate."""
_LEAVES = ("pausing", "stopping")
_LABEL = f"{OURS}/conductor"


@dataclass(frozen=True)
class Order:
    """What a search was submitted with."""

    name: str
    job: Job
    """The job, with its ``sweep``."""
    code: str
    person: str
    source: Source

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "job": written(self.job),
            "code": self.code,
            "person": self.person,
            "source": {"commit": self.source.commit, "branch": self.source.branch},
        }

    @classmethod
    def of(cls, whole: Whole) -> Order:
        given = whole.order
        source = Source(given["source"]["commit"], given["source"]["branch"], "", 0)
        return cls(whole.name, recorded(given["job"], whole.name), given["code"], given["person"], source)

    def engine(self, whole: Whole) -> Engine:
        """Return the engine, with later changes to the search applied."""
        sweep, trials = self.job.sweep, whole.trials
        assert sweep is not None
        changed = sweep if trials is None else sweep.model_copy(update={"trials": trials})
        return Engine(changed, self.name, whole.since)


def submission(
    order: Order, namespace: str, offer: Offer, search: str, number: int, given: Parameters
) -> Submission:
    """Return the submission of a trial's run. ``search``: id of the search in MLflow. Raises InputError if
    the cluster can no longer run it."""
    job = of_trial(order.job, given)
    image = offer.images.get(job.image or offer.default_image)
    workers = workers_of(job, image_launcher=image.launcher if image else None)
    return Submission(
        f"{order.name}-{number}", namespace, order.person, job, [fit(job, each, offer) for each in workers],
        offer, order.code, given={name: plain(value) for name, value in given.items()}, source=order.source,
        trial=TrialOf(order.name, number, alias_of(search, number)),
    )  # fmt: skip


def conductor(
    namespace: str, name: str, search: str, person: str, offer: Offer, tracking: Tracking
) -> dict[str, Any]:
    """Return the conductor's Job. ``search``: id of the search in MLflow."""
    own = {
        "CAUSEWAY_SWEEP": name,
        "CAUSEWAY_SWEEP_RECORD": search,
        "CAUSEWAY_NAMESPACE": namespace,
        "CAUSEWAY_TRACKING_URI": tracking.url,
        "HOME": "/tmp",  # noqa: S108  the pod's own
    }
    container = {
        "name": "conductor",
        "image": offer.tools,
        "command": ["python", "-m", "causeway.conduct"],
        "env": environment(own),
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "volumeMounts": [{"name": "account", "mountPath": str(ACCOUNT_FILES), "readOnly": True}],
    }
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3600, "path": "token"}},
        {"configMap": {"name": _AUTHORITY, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    failures = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": "conductor", "operator": "In", "values": [NEVER_WORKS]},
        },
    ]
    return queued_job(
        namespace,
        name,
        container,
        label={_LABEL: name},
        annotations={f"{OURS}/person": person},
        account=ACCOUNT,
        volumes=[{"name": "account", "projected": {"sources": sources}}],
        life=LIFE,
        # The conductor retries while servers are away; only the loss of its machine, or a bug, ends it.
        backoffLimit=100,
        # No two conductors run at the same time.
        podReplacementPolicy="Failed",
        podFailurePolicy={"rules": failures},
        ttlSecondsAfterFinished=86400,
    )


def job_path(namespace: str, name: str) -> str:
    """The API path of a conductor."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"


def waits_for(cluster: Cluster, namespace: str, name: str) -> str:
    """Return why no conductor of a search is running; empty if one is."""
    found = cluster.find(job_path(namespace, name))
    if found is None:
        return f"its conductor is gone; causeway sweep resume {name}"
    status = found.get("status", {})
    if any(each["type"] == "Failed" and each["status"] == "True" for each in status.get("conditions", ())):
        return f"its conductor has failed; causeway sweep resume {name}"
    if status.get("active"):
        return "" if status.get("ready") else "its conductor is starting"
    waiting = runs.waiting_for(name, runs.workload_with(cluster, namespace, found["metadata"]["uid"]))
    return f"its conductor waits: {waiting}"


@dataclass
class _Run:
    """What is known about a trial's JobSet."""

    found: Any
    """Name, UID, labels, whether it is suspended, conditions."""
    state: str = ""
    """``stopped`` or ``timed-out``, if its Workload says so."""
    why: str = ""

    @property
    def uid(self) -> str:
        return str(self.found["metadata"]["uid"])

    @property
    def suspended(self) -> bool:
        return bool(self.found["spec"].get("suspend"))


@dataclass
class ClusterBench:
    """The bench of one search, for its conductor."""

    cluster: Cluster
    namespace: str
    ledger: Ledger
    say: Callable[[str], None]
    every: float = EVERY
    """Seconds between two rounds, if there are few trials."""
    _whole: Whole | None = None
    _order: Order | None = None
    _rows: dict[int, Row] = field(default_factory=dict)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _version: str = ""
    """resourceVersion of the list of JobSets."""
    _looked: float = 0.0
    _looks: dict[int, int] = field(default_factory=dict)
    _late: dict[int, int] = field(default_factory=dict)
    """Trial → number of rounds in which its metrics were still awaited."""
    _shown: tuple[float, Any] = (0.0, None)

    # -- Read ---------------------------------------------------------------------------------------------

    def look(self) -> Engine | None:
        first = self._whole is None
        whole = self._whole = self.ledger.whole()
        if whole.state not in ("running", "resumed"):
            return None
        if first:
            self._order = Order.of(whole)
            self._rows = {row.number: row for row in self.ledger.rows(whole.experiment, self._metric)}
        if not self._version:
            self._list(whole)
            self._looked = 0.0
        if first:
            self._go_on(resumed=whole.state == "resumed")
            if whole.state == "resumed":
                self.ledger.change("running")
        else:
            self.ledger.read([row for row in self.live() if not self._run(row).suspended], self._metric)
        if time.monotonic() - self._looked > _SELDOM * self.every:
            self._look_at_suspended()
            self._look_for_checkpoints()
        self._take_ended()
        assert self._order is not None
        engine = self._order.engine(whole)
        # A trial that cannot be resumed is judged differently.
        judged = {decision.number for decision in engine.judge(self.trials())}
        wanted = [self._rows[number] for number in sorted(judged) if not self._rows[number].has_checkpoint]
        self.ledger.refresh(wanted, whole.experiment)
        return engine

    @property
    def _metric(self) -> str:
        assert self._order is not None
        assert self._order.job.sweep is not None
        return self._order.job.sweep.metric

    def trials(self) -> Sequence[Trial]:
        return [trial_of(self._rows[number]) for number in sorted(self._rows)]

    def wait(self) -> None:
        """Wait while there is nothing to do, recording events of JobSets meanwhile."""
        seconds = self.every + A_TRIAL * len(self.live())
        until = time.monotonic() + seconds
        if self._version:
            self._watch(seconds)
        if (left := until - time.monotonic()) > 0:
            time.sleep(left)

    def _list(self, whole: Whole) -> None:
        self._runs = {}
        path, query = path_of(self.namespace), {"labelSelector": f"{SWEEP}={whole.name}", "limit": "250"}
        while True:
            page = self.cluster.call("GET", path, **query)
            for each in page["items"]:
                self._note(each)
            if not (more := page["metadata"].get("continue")):
                break
            query["continue"] = more
        self._version = str(page["metadata"]["resourceVersion"])

    def _watch(self, seconds: float) -> None:
        assert self._whole is not None
        chosen = {"labelSelector": f"{SWEEP}={self._whole.name}", "resourceVersion": self._version}
        try:
            for event in self.cluster.watch(path_of(self.namespace), max(round(seconds), 1), **chosen):
                each = event["object"]
                self._version = str(each["metadata"]["resourceVersion"])
                if event["type"] == "DELETED":
                    self._runs.pop(each["metadata"]["name"], None)
                elif event["type"] != "BOOKMARK":
                    self._note(each)
        except RefusedError as error:
            if error.code != 410:
                raise
            self._version = ""  # version too old: the list is read again

    def _note(self, found: Any) -> None:
        about = found["metadata"]
        kept = {
            "metadata": {name: about.get(name, {}) for name in ("name", "uid", "labels")},
            "spec": {"suspend": found["spec"].get("suspend", False)},
            "status": {"conditions": found.get("status", {}).get("conditions", [])},
        }
        if known := self._runs.get(about["name"]):
            known.found = kept
        else:
            self._runs[about["name"]] = _Run(kept)

    def live(self) -> list[Row]:
        """Return the trials that have a run and are recorded as running."""
        return [row for row in self._rows.values() if row.state == "running" and self._has_run(row)]

    def _name(self, row: Row) -> str:
        assert self._whole is not None
        return f"{self._whole.name}-{row.number}"

    def _has_run(self, row: Row) -> bool:
        return self._name(row) in self._runs

    def _run(self, row: Row) -> _Run:
        return self._runs[self._name(row)]

    def _look_at_suspended(self) -> None:
        """Find out whether suspended trials that should run are queued, or were taken out of their queue."""
        self._looked = time.monotonic()
        found = {self._run(row).uid: self._run(row) for row in self.live() if self._run(row).suspended}
        for uid, workload in runs.workloads_with(self.cluster, self.namespace, [*found]).items():
            state, _, why = runs.state_of(found[uid].found, workload)
            found[uid].state, found[uid].why = state, why

    def _look_for_checkpoints(self) -> None:
        """Look for checkpoints of trials that may continue later."""
        wanted = [
            row
            for row in self._rows.values()
            if row.state == "paused" and not row.has_checkpoint and self._looks.get(row.number, 0) < _LOOKS
        ]
        assert self._whole is not None
        self.ledger.refresh(wanted, self._whole.experiment)
        self._looks |= {row.number: self._looks.get(row.number, 0) + 1 for row in wanted}

    def _take_ended(self) -> None:
        """Record which trials have ended, and how."""
        over: dict[int, str] = {}
        for row in self._rows.values():
            if row.state not in ("running", "paused"):
                continue
            if not self._has_run(row):
                self.ledger.note(row, state="stopped", cause="its run was deleted")
                continue
            run = self._run(row)
            state, _, why = runs.state_of(run.found, {"spec": {}})
            if state in ("done", "failed"):
                over[row.number] = (why or "it failed") if state == "failed" else ""
            elif row.state == "running" and run.suspended and run.state in ("stopped", "timed-out"):
                state = "failed" if run.state == "stopped" and run.why else "stopped"
                self.ledger.note(row, state=state, cause=run.why or "stopped by a user")
                self.say(f"trial {row.number} {row.state}: {row.cause}")
        if over:
            self._note_ends([self._rows[number] for number in over], over)

    def _note_ends(self, rows: Sequence[Row], why: Mapping[int, str]) -> None:
        """Record ends. ``why``: trial → the cluster's explanation of a failure; empty for a trial that is
        done."""
        assert self._whole is not None
        self.ledger.refresh(rows, self._whole.experiment)
        self.ledger.read(rows, self._metric)
        for row in rows:
            if why[row.number]:
                self.ledger.note(row, state="failed", cause=_cause(row, why[row.number]))
            elif not row.reports and self._is_late(row):
                continue
            else:
                self.ledger.note(row, state="done", cause="")
            self.say(f"trial {row.number} {row.state}{f': {row.cause}' if row.cause else ''}")

    def _is_late(self, row: Row) -> bool:
        """Whether its last reports may still arrive: pods send what an earlier pod could not."""
        self._late[row.number] = self._late.get(row.number, 0) + 1
        return self._late[row.number] <= _SELDOM

    # -- Act ----------------------------------------------------------------------------------------------

    def _go_on(self, *, resumed: bool) -> None:
        """Carry out what was recorded and may not have been done when this program was last killed."""
        for row in self._rows.values():
            if row.state == "running" and not self._has_run(row):
                self._submit(row)
        unfinished = {*AFTER, *(["running"] if resumed else [])}
        known = [row for row in self._rows.values() if row.state in unfinished and self._has_run(row)]
        uids = {self._run(row).uid: row for row in known if not runs.has_ended(self._run(row).found)}
        for uid, workload in runs.workloads_with(self.cluster, self.namespace, [*uids]).items():
            if workload["spec"].get("active", True) is not (wanted := uids[uid].state not in _LEAVES):
                runs.set_active(self.cluster, self.namespace, workload, active=wanted)
        for row in self._rows.values():
            if row.state in AFTER:
                self.ledger.note(row, state=AFTER[row.state])

    def start(self, move: Start) -> None:
        whole, order = self._whole, self._order
        assert whole is not None
        assert order is not None
        tags = {
            "causeway.person": order.person,
            "causeway.run": f"{order.name}-{move.number}",
            "mlflow.user": order.person,
        }
        row = self.ledger.create(whole.experiment, whole.name, move.number, move.parameters, tags)
        self._rows[row.number] = row
        self._submit(row)

    def _submit(self, row: Row) -> None:
        """Create a trial's run. Its name ensures that it is created only once."""
        assert self._whole is not None
        assert self._order is not None
        given = row.parameters
        made = submission(self._order, self.namespace, self.cluster.offer, self._whole.id, row.number, given)
        try:
            self._note(self.cluster.call("POST", path_of(self.namespace), jobset(made)))
        except RefusedError as error:
            if error.code == 409:
                self._adopt(row)
                return
            if not 400 <= error.code < 500 or error.code in (401, 403, 429):
                raise
            self.ledger.note(row, state="failed", cause=str(error))

    def _adopt(self, row: Row) -> None:
        """Take over the JobSet that has a trial's name, unless it belongs to another search."""
        assert self._whole is not None
        found = self.cluster.find(f"{path_of(self.namespace)}/{self._name(row)}")
        if found is not None and found["metadata"].get("labels", {}).get(SWEEP) == self._whole.name:
            self._note(found)
        elif found is not None:
            self.ledger.note(row, state="failed", cause=f"another run already has the name {self._name(row)}")

    def resume(self, move: Resume) -> None:
        row = self._rows[move.number]
        self.ledger.note(row, state="resuming", judged=move.step, cause="")
        run = self._run(row)
        run.state, run.why = "", ""
        for workload in runs.workloads_with(self.cluster, self.namespace, [run.uid]).values():
            runs.set_active(self.cluster, self.namespace, workload, active=True)
        self.ledger.note(row, state="running")

    def judge(self, decision: Decision) -> None:
        row = self._rows[decision.number]
        if decision.action == "pass":
            self.ledger.note(row, judged=decision.step)
            return
        state = {"pause": "pausing", "stop": "stopping"}[decision.action]
        self.ledger.note(row, state=state, judged=decision.step, cause=decision.reason)
        self._stop(row)

    def _stop(self, row: Row) -> None:
        """Take a trial's run out of its queue; it keeps its record and its checkpoint."""
        until = time.monotonic() + _UNSEEN
        while self._has_run(row) and not runs.has_ended((run := self._run(row)).found):
            found = runs.workloads_with(self.cluster, self.namespace, [run.uid])
            for workload in found.values():
                runs.set_active(self.cluster, self.namespace, workload, active=False)
            if found or time.monotonic() > until:
                break
            time.sleep(0.5)  # Kueue has not seen it yet
        self.ledger.note(row, state=AFTER[row.state])

    def show(self, summary: Callable[[], Mapping[str, Any]], *, last: bool) -> None:
        at, before = self._shown
        if last or time.monotonic() - at > _SHOWN:
            if (now := summary()) != before:
                self.ledger.summarise(now)
            self._shown = (time.monotonic(), now)

    def end(self, end: End) -> None:
        for row in self.live():
            self.ledger.note(row, state="stopping", cause=f"the search is over: {end.reason}")
            self._stop(row)
        self.ledger.change(end.kind, end.reason)


def _cause(row: Row, why: str) -> str:
    """Return why a trial failed, in one line: as reported by its pod, else by the cluster."""
    last = row.reason.strip().splitlines()[-1:] or [""]
    if last[0]:
        return f"{last[0]} (exit code {row.exit})" if row.exit else last[0]
    return why
