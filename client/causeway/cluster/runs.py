"""Runs in the cluster: submit, list, explain, stop. Everything known about a run is kept in the cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from platformdirs import user_cache_path

from causeway.cluster.blocked import blocked
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.labels import (
    API,
    BLOCKED,
    CODE,
    CONTINUES,
    EXACTLY,
    GPUS,
    JOB,
    PARAMETERS,
    PERSON,
    RUN,
    SECONDS,
    SWEEP,
)  # fmt: skip
from causeway.cluster.prices import of_worker
from causeway.errors import CausewayError
from causeway.units import exact_duration, parse_cpus

_TRIES, _GUESSES = 50, 5
"""Number of names that are tried, and how many of them are guessed before all runs are listed."""
_DAY = 86400.0
_AT_ONCE = 8
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_OF_ONE_LIST = 100
"""Maximum number of objects selected by UID in one URL."""
_UTC = timezone.utc
_LONG_AGO = datetime(1970, 1, 1, tzinfo=_UTC)
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LIMIT = re.compile(
    r"insufficient (?P<unused>unused )?quota for causeway\.dev/gpus in flavor limit\.team-(?P<group>[^.]+)\."
)
_TIME_IS_UP = "MaximumExecutionTimeExceeded"
"""Suffix of Kueue's reason when the maximum execution time has passed."""


REJECTED = "DeactivatedDueToAdmissionCheck"
"""Kueue's reason for a Workload whose request for machines was rejected permanently."""
_STOPS = 120
"""Maximum time in seconds that Kueue takes to stop a run."""

OVER = ("done", "failed", "timed-out")
"""States that a run never leaves in Kueue 0.19, whatever its Workload's ``active`` is."""


@dataclass(frozen=True)
class Worker:
    """A pod of a run."""

    name: str
    role: str
    rank: int
    state: str
    """``waiting``, ``starting``, ``running``, ``done``, ``failed``."""
    node: str | None
    site: str | None
    hourly_price: float | None
    """Hourly price in USD of its share of the machine; None while it has no machine, or if unknown."""
    started: datetime | None = None
    ended: Mapping[str, Any] | None = None
    """What the runtime recorded, or else what the kubelet reports: ``exit``, ``reason``, ``lines``,
    ``at``."""
    gpu_model: str | None = None
    """Model name used by the cluster."""
    image: str = ""
    """The image that its container runs, with the digest, as the kubelet reports it; empty before it runs."""
    blocked: str = ""
    """Why it cannot start, and the fix, if its image or Secret is missing."""
    attempt: int = 0
    """Number of restarts of its run before it."""
    created: datetime = _LONG_AGO


@dataclass(frozen=True)
class Run:
    """A run in the cluster."""

    name: str
    namespace: str
    uid: str
    """UID of its JobSet."""
    state: str
    """``queued``, ``starting``, ``running``, ``done``, ``failed``, ``stopped``, ``timed-out``."""
    created: datetime
    since: datetime
    """When its state last changed."""
    seconds: float
    """How long it has held machines, in total over its starts."""
    person: str
    code: str
    restarts: int
    """Restarts that count towards the job's ``restarts``: those after failures of the program."""
    reason: str
    job: Mapping[str, Any]
    workers: Sequence[Worker] = field(default=())
    continues: Sequence[str] = ()
    """Runs whose checkpoints it continues from, the nearest first."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Values that ``--set`` filled into its command."""
    repeats: str = ""
    """The run that it repeats exactly."""
    image: str = ""
    """Reference of its image."""
    waits_for: str = ""
    """Why it is not running, if it is queued, starting or stopped."""
    hourly_price: float | None = None
    """USD for all its workers where they are. None if some have no machine, or a price is unknown. When its
    pods are gone, the price that was recorded while they existed (``cluster.started``)."""
    attempt: int = 0
    """Number of starts after the first, including restarts that do not count, but not those after
    preemption."""

    @property
    def cost(self) -> float | None:
        """Cost so far in USD, at the price of where its workers are now or were last; None if unknown."""
        if not self.seconds:
            return 0.0
        return None if self.hourly_price is None else self.hourly_price * self.seconds / 3600


def submit(cluster: Cluster, namespace: str, base: str, make: Callable[[str], Mapping[str, Any]]) -> str:
    """Create the object that ``make(name)`` returns, under the next free name, and return that name:
    ``resnet`` → ``resnet-4`` if 3 is the last number."""
    number = _next_number(cluster, namespace, base)
    for tried in range(_TRIES):
        if tried == _GUESSES:  # others have submitted many runs since
            number = max(number, _listed_number(cluster, namespace, base))
        if _created(cluster, namespace, make(f"{base}-{number}")):
            _remember_number(cluster, namespace, base, number)
            return f"{base}-{number}"
        number += 1
    raise CausewayError(f"no free name for {base} in {namespace}")


def submit_all(
    cluster: Cluster, namespace: str, base: str, makes: Sequence[Callable[[str], Mapping[str, Any]]]
) -> Iterator[str]:
    """Create an object with each of ``makes``, several at a time; return their names in that order. After an
    error, no further one is started."""
    first = _next_number(cluster, namespace, base)
    # `submit` continues with the rest of these.
    _remember_number(cluster, namespace, base, first + len(makes) - 1)

    def one(at: int) -> str:
        name = f"{base}-{first + at}"
        if _created(cluster, namespace, makes[at](name)):
            return name
        return submit(cluster, namespace, base, makes[at])

    with ThreadPoolExecutor(_AT_ONCE) as together:
        begun = [together.submit(one, at) for at in range(len(makes))]
        try:
            for each in begun:
                yield each.result()
        finally:
            together.shutdown(cancel_futures=True)


def _next_number(cluster: Cluster, namespace: str, base: str) -> int:
    """Guess the number of the next run. It may be taken, which the caller finds out when it creates the
    run."""
    path = _numbers(cluster, namespace, base)
    try:
        # Runs that others submitted since may be gone by now, but not within a day.
        if time.time() - path.stat().st_mtime < _DAY:
            return int(path.read_text(encoding="ascii")) + 1
    except (OSError, ValueError):
        pass
    return _listed_number(cluster, namespace, base)


def _listed_number(cluster: Cluster, namespace: str, base: str) -> int:
    """Return the number after the last existing one."""
    pattern = re.compile(rf"{re.escape(base)}-(\d+)")
    numbers = [
        int(match[1])
        for each in _list(cluster, namespace, only="metadata")
        if (match := pattern.fullmatch(_name(each)))
    ]
    return max(numbers, default=0) + 1


def _remember_number(cluster: Cluster, namespace: str, base: str, number: int) -> None:
    """Save the number in the cache. Losing it does no harm."""
    path = _numbers(cluster, namespace, base)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number), encoding="ascii")


def _numbers(cluster: Cluster, namespace: str, base: str) -> Path:
    return user_cache_path("causeway") / "numbers" / quote(cluster.host, safe="") / namespace / base


def _created(cluster: Cluster, namespace: str, made: Any) -> bool:
    """Create an object. False if the name is taken."""
    try:
        cluster.call("POST", path_of(namespace), made)
    except RefusedError as error:
        if error.code != 409:
            raise
        return False
    return True


@dataclass(frozen=True)
class Trials:
    """The trials of a search that have a run."""

    name: str
    """Name of the search."""
    person: str
    counts: Mapping[str, int]
    """``waiting`` (queued or stopped), ``running``, ``done``, ``failed`` → number of trials."""


def trials(cluster: Cluster, namespace: str) -> list[Trials]:
    """List the trials of all searches of a namespace, without the details of runs: there may be thousands."""
    counts: dict[str, dict[str, int]] = {}
    people: dict[str, str] = {}
    try:
        for about, suspended, terminal in _columns(cluster, namespace):
            search = about["labels"][SWEEP]
            people.setdefault(search, about.get("annotations", {}).get(PERSON, ""))
            state = {"Completed": "done", "Failed": "failed"}.get(
                terminal, "waiting" if suspended else "running"
            )
            of_search = counts.setdefault(search, {})
            of_search[state] = of_search.get(state, 0) + 1
    except RefusedError as error:
        if error.code != 404:  # a kind that is not installed
            raise
    return [Trials(name, people[name], counts[name]) for name in sorted(counts)]


def _columns(cluster: Cluster, namespace: str) -> Iterator[tuple[Any, bool, str]]:
    """Fetch the columns that ``kubectl get jobset`` prints for trials: metadata, whether it is suspended, how
    it ended."""
    query = {"labelSelector": SWEEP, "includeObject": "Metadata", **_CACHED}
    while True:
        page = cluster.call("GET", path_of(namespace), accept=_TABLE, **query)
        names = [each["name"] for each in page["columnDefinitions"]]
        terminal, suspended = names.index("TerminalState"), names.index("Suspended")
        for row in page["rows"] or ():
            cells = row["cells"]
            yield row["object"]["metadata"], str(cells[suspended]) == "true", str(cells[terminal] or "")
        more = page["metadata"].get("continue")
        if not more:
            return
        query["continue"] = more


def runs(cluster: Cluster, namespace: str, *, sweep: str | None = None) -> list[Run]:
    """List the runs of a namespace with their workers, the newest first: the trials of ``sweep``, or all runs
    that are not trials."""
    chosen = f"{SWEEP}={sweep}" if sweep else f"{RUN},!{SWEEP}"
    with ThreadPoolExecutor(3) as together:  # most of the time is spent waiting for the API
        jobsets = items(cluster, path_of(namespace), labelSelector=chosen, **_CACHED)
        listed = together.submit(lambda: [*jobsets])
        queued = together.submit(_workloads, cluster, namespace)
        pods: dict[str, list[Any]] = {}
        path = f"/api/v1/namespaces/{namespace}/pods"
        for pod in items(cluster, path, labelSelector=chosen, **_CACHED):
            pods.setdefault(pod["metadata"]["labels"][RUN], []).append(pod)
        place = _placing(cluster, [pod for of_run in pods.values() for pod in of_run])
        workloads = queued.result()
        found = [
            _run(each, pods.get(_name(each), []), workloads.get(_name(each)), place)
            for each in listed.result()
        ]
    return sorted(found, key=lambda run: run.created, reverse=True)


def find(cluster: Cluster, namespace: str, name: str, *, placed: bool = True) -> Run:
    """Return one run. Raises CausewayError if it does not exist. ``placed``: include sites and prices of its
    workers."""
    found = cluster.find(f"{path_of(namespace)}/{name}")
    if found is None or RUN not in found["metadata"].get("labels", {}):
        raise CausewayError(f"{namespace} has no run {name}; causeway ps lists them")
    pods = list(items(cluster, f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{RUN}={name}"))
    workload = workload_with(cluster, namespace, found["metadata"]["uid"])
    return _run(found, pods, workload, _placing(cluster, pods if placed else ()))


def activate(cluster: Cluster, run: Run, *, active: bool) -> bool:
    """Stop a run or queue it again; its record stays. False if it already is in that state.

    The Workload belongs to Kueue; users may set its ``spec.active``.
    """
    workload = workload_of(cluster, run)
    if workload is None:
        raise CausewayError(f"{run.name} has no Workload: Kueue has not seen it yet, or it has ended")
    if workload["spec"].get("active", True) is active:
        return False
    evicted = _conditions(workload).get("Evicted", {})
    if active and evicted.get("reason") == REJECTED:
        # Kueue 0.19 never queues it again, whatever ``active`` is; it creates a new one for one that was
        # deleted.
        cluster.call("DELETE", f"{_KUEUE}/namespaces/{run.namespace}/workloads/{_name(workload)}")
        return True
    set_active(cluster, run.namespace, workload, active=active)
    return True


def set_active(cluster: Cluster, namespace: str, workload: Any, *, active: bool) -> None:
    """Remove a workload from its queue, or put it back."""
    path = f"{_KUEUE}/namespaces/{namespace}/workloads/{_name(workload)}"
    cluster.call("PATCH", path, {"spec": {"active": active}}, form="application/merge-patch+json")


def first_failed(run: Run) -> Worker | None:
    """Return the worker that failed first, among those whose pods still exist."""
    failed = [each for each in run.workers if each.state == "failed" and each.ended]
    return min(failed, key=lambda each: (each.ended or {}).get("at", float("inf")), default=None)


def places(workers: Sequence[Worker]) -> str:
    """Format the machines: ``titan-1, titan-2 in rack-a``; the number of machines if there are more than
    three."""
    sites: dict[str, dict[str, None]] = {}
    for worker in workers:
        if worker.node:
            sites.setdefault(worker.site or "", {})[worker.node] = None
    return "; ".join(
        (", ".join(nodes) if len(nodes) <= 3 else f"{len(nodes)} machines") + (f" in {site}" if site else "")
        for site, nodes in sorted(sites.items())
    )


def _workloads(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Return run → its Workload, which Kueue queues."""
    found = {}
    for each in items(cluster, f"{_KUEUE}/namespaces/{namespace}/workloads", **_CACHED):
        for owner in each["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "JobSet":
                found[owner["name"]] = each
    return found


def workload_of(cluster: Cluster, run: Run) -> Any:
    """Return the Workload of a run; None if it has none."""
    return workload_with(cluster, run.namespace, run.uid)


def workload_with(cluster: Cluster, namespace: str, uid: str) -> Any:
    """Return the Workload of the JobSet or Job with this UID, which Kueue sets as a label."""
    path = f"{_KUEUE}/namespaces/{namespace}/workloads"
    return next(items(cluster, path, labelSelector=f"{_JOB_UID}={uid}"), None)


def workloads_with(cluster: Cluster, namespace: str, uids: Sequence[str]) -> dict[str, Any]:
    """Return JobSet UID → its Workload, for JobSets that have one."""
    found: dict[str, Any] = {}
    path = f"{_KUEUE}/namespaces/{namespace}/workloads"
    for at in range(0, len(uids), _OF_ONE_LIST):
        chosen = ",".join(uids[at : at + _OF_ONE_LIST])
        for each in items(cluster, path, labelSelector=f"{_JOB_UID} in ({chosen})"):
            found[each["metadata"]["labels"][_JOB_UID]] = each
    return found


def path_of(namespace: str) -> str:
    """The API path of a namespace's JobSets."""
    return f"/apis/{API}/namespaces/{namespace}/jobsets"


def _list(cluster: Cluster, namespace: str, *, only: str = "") -> Iterator[Any]:
    return items(cluster, path_of(namespace), only=only, labelSelector=RUN)


_CACHED = {"resourceVersion": "0"}
"""For a list: read from the API server's cache, which is at most a moment old. Consistent reads go to etcd
and decode each object, which takes ten times as long (Kubernetes API Concepts, "Resource versions")."""


def items(cluster: Cluster, path: str, *, only: str = "", **query: str) -> Iterator[Any]:
    """List objects; empty if the kind is not installed.

    ``only``: ``metadata`` if the rest is not needed. ``**_CACHED`` is for long lists that are only displayed.
    """
    query = query if "resourceVersion" in query else {**query, "limit": "500"}
    while True:
        try:
            page = cluster.call("GET", path, accept=_METADATA if only else "application/json", **query)
        except RefusedError as error:
            if error.code == 404:  # a kind that is not installed
                return
            raise
        # A list of metadata has null for no items.
        yield from page["items"] or ()
        more = page["metadata"].get("continue")
        if not more:
            return
        query["continue"] = more


def _name(each: Any) -> str:
    return str(each["metadata"]["name"])


_Place = Callable[[Any], tuple[str | None, float | None, str | None]]
"""A pod's site, its hourly price, and the model of its GPUs."""


def _placing(cluster: Cluster, pods: Sequence[Any]) -> _Place:
    """Return how workers are placed; reads the nodes once, if any pod has one."""
    nodes: dict[str, Mapping[str, str]] = {}
    if any(pod["spec"].get("nodeName") for pod in pods):
        for node in items(cluster, "/api/v1/nodes", only="metadata", **_CACHED):
            nodes[_name(node)] = node["metadata"].get("labels", {})
    machines = cluster.offer.machines

    def place(pod: Any) -> tuple[str | None, float | None, str | None]:
        node = pod["spec"].get("nodeName")
        if node is None:
            return None, None, None
        # The queue makes workloads select the pool of their machines, which is still known when the machine
        # is gone.
        labels = {**pod["spec"].get("nodeSelector", {}), **nodes.get(node, {})}
        main = next(each for each in pod["spec"]["containers"] if each["name"] == "main")
        amounts = main["resources"]
        gpus = int(amounts.get("limits", {}).get(GPUS, 0))
        price = of_worker(machines, labels, gpus, parse_cpus(amounts["requests"]["cpu"]))
        return labels.get("causeway.dev/site"), price, labels.get("causeway.dev/gpu-model") if gpus else None

    return place


def _run(found: Any, pods: Sequence[Any], workload: Any, place: _Place) -> Run:
    about, status = found["metadata"], found.get("status", {})
    annotations = about.get("annotations", {})
    workers = sorted((_worker(pod, place) for pod in pods), key=lambda each: (each.role, each.rank))
    created = _time(about["creationTimestamp"])
    state, since, reason = state_of(found, workload, workers)
    return Run(
        name=about["name"],
        namespace=about["namespace"],
        uid=about["uid"],
        state=state,
        created=created,
        since=since or created,
        seconds=_seconds(found, workload, workers),
        person=annotations.get(PERSON, ""),
        code=annotations.get(CODE, ""),
        restarts=int(status.get("restartsCountTowardsMax", 0)),
        reason=reason,
        job=json.loads(annotations.get(JOB, "{}")),
        workers=workers,
        continues=tuple(filter(None, annotations.get(CONTINUES, "").split(","))),
        parameters=json.loads(annotations.get(PARAMETERS, "{}")),
        repeats=annotations.get(EXACTLY, ""),
        image=_image(found),
        waits_for=_waits_for(about, state, reason, workload, workers),
        hourly_price=_hourly(found, workers),
        attempt=int(status.get("restarts", 0)),
    )


def _hourly(found: Any, workers: Sequence[Worker]) -> float | None:
    """Return the hourly price in USD of all machines of a run (a JobSet of the API); None until all workers
    have a machine, and once some are gone."""
    count = sum(
        each.get("replicas", 1) * each["template"]["spec"].get("parallelism", 1)
        for each in found["spec"]["replicatedJobs"]
    )
    prices = [each.hourly_price for each in newest(workers) if each.hourly_price is not None]
    return sum(prices) if len(prices) == count else None


def newest(workers: Sequence[Worker]) -> list[Worker]:
    """Return the newest pod of each rank: a pod that was lost with its machine may still be listed."""
    last: dict[str, Worker] = {}
    for each in sorted(workers, key=lambda one: one.created):
        last[f"{each.role}-{each.rank}"] = each
    return [each for each in workers if last[f"{each.role}-{each.rank}"] is each]


def _waits_for(about: Any, state: str, reason: str, workload: Any, workers: Sequence[Worker]) -> str:
    """Return why a run is not running; empty if it is running or has ended."""
    if state == "starting":
        return next((f"{each.role}-{each.rank}: {each.blocked}" for each in workers if each.blocked), "")
    if state == "stopped" and reason:
        return f"{reason}; then causeway resume {about['name']}"
    if state == "stopped" and (search := about["labels"].get(SWEEP)):
        return f"its search or a user stopped it; causeway sweep show {search}"
    return waiting_for(about["name"], workload) if state in ("queued", "stopped") else ""


def _image(found: Any) -> str:
    """The image of the job's container in its first role."""
    pods = (each["template"]["spec"]["template"]["spec"] for each in found["spec"]["replicatedJobs"])
    mains = (each for pod in pods for each in pod["containers"] if each["name"] == "main")
    return str(next(mains, {"image": ""})["image"])


def state_of(found: Any, workload: Any, workers: Sequence[Worker] = ()) -> tuple[str, datetime | None, str]:
    """Return the state of a run (a JobSet of the API), since when, and why."""
    conditions = _conditions(found)
    if done := conditions.get("Completed"):
        return "done", _changed(done), ""
    if failed := conditions.get("Failed"):
        return "failed", _changed(failed), str(failed.get("message", ""))
    if found["spec"].get("suspend"):
        evicted = _conditions(workload or {}).get("Evicted")
        if workload is None or workload["spec"].get("active", True):
            return "queued", _changed(evicted), ""
        if evicted and evicted.get("reason", "").endswith(_TIME_IS_UP):
            took = exact_duration(int(found["metadata"]["labels"].get(SECONDS, "0")))
            more = f"causeway resume {_name(found)} --time 8h allows more"
            return "timed-out", _changed(evicted), f"it ran for all of its `time`, {took}; {more}"
        return "stopped", _changed(evicted), _could_not_start(found, evicted)
    # If some have ended, others are running, or the last one has not been counted yet.
    begun = [each for each in newest(workers) if each.state in ("running", "done", "failed")]
    if begun:
        return "running", min((each.started for each in begun if each.started), default=None), ""
    return "starting", _changed(_conditions(workload or {}).get("Admitted")), ""


def _could_not_start(found: Any, evicted: Any) -> str:
    """Why a run that could not start was stopped; empty if a user stopped it, then or later."""
    text = found["metadata"].get("annotations", {}).get(BLOCKED)
    if text is None or evicted is None:
        return ""
    said = json.loads(text)
    recent = abs(_time(evicted["lastTransitionTime"]).timestamp() - said["at"]) < _STOPS
    return f"it could not start: {said['why']}" if recent else ""


def has_ended(found: Any) -> bool:
    """Whether a run (a JobSet of the API) is done or has failed: it never starts again."""
    return not {"Completed", "Failed"}.isdisjoint(_conditions(found))


def _changed(condition: Any) -> datetime | None:
    return _time(condition["lastTransitionTime"]) if condition else None


def _seconds(found: Any, workload: Any, workers: Sequence[Worker]) -> float:
    """How long a run has held machines: from its queue's record; without one, since its oldest pod was
    created."""
    now = datetime.now(_UTC)
    over = _conditions(found)
    ended = _changed(over.get("Completed") or over.get("Failed")) or now
    if workload is None:
        started = min((each.started for each in workers if each.started), default=ended)
        return max((ended - started).total_seconds(), 0.0)
    past = float(workload.get("status", {}).get("accumulatedPastExecutionTimeSeconds", 0))
    admitted = _changed(_conditions(workload).get("Admitted"))
    return past + (max((ended - admitted).total_seconds(), 0.0) if admitted else 0.0)


def waiting_for(name: str, workload: Any) -> str:
    """Why a workload is not running, in Kueue's words. ``workload`` is None until Kueue has created it."""
    if workload is None:
        return "the queue has not seen it yet"
    if not workload["spec"].get("active", True):
        return f"it was stopped; causeway resume {name}"
    refused = _conditions(workload, status="False")
    for kind in ("QuotaReserved", "Admitted"):
        if kind in refused:
            return in_the_queue(str(refused[kind]["message"]))
    return "its machines are starting"


def in_the_queue(message: str) -> str:
    """Explain why a run waits in its queue, from Kueue's message. A user's GPU limit is a flavor."""
    limit = _LIMIT.search(message)
    if limit is None:
        return message
    if limit["unused"]:
        return f"you hold as many GPUs as one user may in {limit['group']}; it starts as your other runs end"
    return f"it requests more GPUs than one user may hold in {limit['group']}: lower gpus or nodes"


def _conditions(each: Any, *, status: str = "True") -> dict[str, Any]:
    found = each.get("status", {}).get("conditions", ())
    return {one["type"]: one for one in found if one["status"] == status}


def _worker(pod: Any, place: _Place) -> Worker:
    about, status = pod["metadata"], pod.get("status", {})
    labels = about.get("labels", {})
    main: Any = next((each for each in status.get("containerStatuses", ()) if each["name"] == "main"), {})
    phase = status.get("phase", "Pending")
    terminated = main.get("state", {}).get("terminated") or (
        _failed_before(status.get("initContainerStatuses", ())) if phase == "Failed" else None
    )
    states = {"Succeeded": "done", "Failed": "failed", "Running": "running"}
    state = states.get(phase, "starting" if pod["spec"].get("nodeName") else "waiting")
    site, price, model = place(pod)
    started = (main.get("state", {}).get("running") or terminated or {}).get("startedAt")
    return Worker(
        name=about["name"],
        role=labels.get("jobset.sigs.k8s.io/replicatedjob-name", ""),
        rank=int(labels.get("batch.kubernetes.io/job-completion-index", 0)),
        state=state,
        node=pod["spec"].get("nodeName"),
        site=site,
        hourly_price=price,
        started=_time(started) if started else None,
        ended=_ended(terminated, status) if state in ("done", "failed") else None,
        gpu_model=model,
        image=main.get("imageID", ""),
        blocked=str(blocked(pod) or "") if state == "starting" else "",
        attempt=int(about.get("annotations", {}).get("jobset.sigs.k8s.io/restart-attempt") or 0),
        created=_time(about["creationTimestamp"]),
    )


def _failed_before(statuses: Sequence[Any]) -> Any:
    """The first init container that failed: it could not fetch code, or install packages."""
    ended = (each.get("state", {}).get("terminated") for each in statuses)
    return next((each for each in ended if each and each["exitCode"]), None)


def _ended(terminated: Any, status: Any) -> dict[str, Any]:
    """Return the runtime's termination message; without one, what Kubernetes reports."""
    if terminated is None:
        return {"reason": status.get("reason") or status.get("message", ""), "lines": []}
    known = {"exit": terminated["exitCode"], "reason": terminated.get("reason", ""), "lines": []}
    if finished := terminated.get("finishedAt"):
        known["at"] = _time(finished).timestamp()
    try:
        return {**known, **json.loads(terminated.get("message", ""))}
    except ValueError:
        return known


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=_UTC)
