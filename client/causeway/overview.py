"""Everything known about a run, wherever it ran: in the cluster and its store, on machines without a cluster,
or on this machine."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from causeway import checkpoints, segments
from causeway.checkpoints import Part, Policy
from causeway.cluster import runs
from causeway.cluster.connection import Cluster
from causeway.cluster.jobset import reference
from causeway.cluster.runs import places
from causeway.cluster.started import keep_started, priced
from causeway.cluster.store import Store, asked
from causeway.code.archive import unpack
from causeway.job import Job, recorded, written
from causeway.local import find_here, is_running, record_of, runs_here, unpack_here
from causeway.machines import runs as machines
from causeway.machines import state
from causeway.places import Place
from causeway.saving import parts_in
from causeway.series import Metric, Usage, finite, metrics_of, usage_of
from causeway.storage import Folder, Storage
from causeway.workers import policy_of, workers_of

_METRICS, _USAGE = 4 << 20, 1 << 20
"""Bytes read of one worker, from the end."""
_LAST = 1 << 20
"""Bytes of one worker's metrics, if only the last values are needed."""
_WORKERS = 8
"""Maximum number of workers that are read."""


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    name: str
    size: int
    """In bytes."""
    largest_part: int
    """Bytes that one worker copies."""
    written: float
    """Seconds since the epoch."""
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Known:
    """What is known about a run."""

    name: str
    where: str
    """Its namespace, or the name of this machine."""
    state: str
    since: float
    """When its state last changed, in seconds since the epoch."""
    seconds: float
    """How long it has run, over all its starts."""
    job: Job
    code: str
    parameters: Mapping[str, str]
    person: str = ""
    nodes: str = ""
    """The machines of its workers, now or last."""
    image: str = ""
    """The reference that was requested; empty on this machine."""
    digest: str = ""
    """The reference with the digest that ran; empty if unknown."""
    gpu_models: Sequence[str] = ()
    """The models that it ran on, as the cluster names them."""
    restarts: int = 0
    cost: float | None = 0.0
    reason: str = ""
    """Why it is waiting, or how it ended."""
    continues: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """Worker (``worker-0``) → what it used."""
    saved: Sequence[Saved] = ()
    """Its checkpoints, the newest first."""
    packages: Sequence[str] = ()
    """Packages installed over those of the image: ``numpy==2.4.6``."""

    @property
    def models(self) -> list[str]:
        """Its GPU models, each once."""
        return sorted({model for each in self.usage.values() for model in each.models})

    @property
    def drivers(self) -> list[str]:
        return sorted({each.driver for each in self.usage.values() if each.driver})

    def plain(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "name": self.name,
            "where": self.where,
            "state": self.state,
            "since": self.since,
            "seconds": self.seconds,
            "person": self.person,
            "nodes": self.nodes,
            "image": self.image,
            "digest": self.digest,
            "gpu_models": list(self.gpu_models),
            "code": self.code,
            "job": written(self.job),
            "parameters": dict(self.parameters),
            "restarts": self.restarts,
            "cost": self.cost,
            "reason": self.reason,
            "continues": list(self.continues),
            "metrics": {name: each.plain() for name, each in self.metrics.items()},
            "usage": {worker: each.plain() for worker, each in self.usage.items()},
            "checkpoints": [
                {
                    "name": each.name,
                    "bytes": each.size,
                    "written": each.written,
                    "metrics": {name: finite(value) for name, value in each.metrics.items()},
                }
                for each in self.saved
            ],
            "packages": list(self.packages),
        }


class Source(Protocol):
    """Where the data of a run is found."""

    def known(self) -> Known:
        """Collect what is known. Raises CausewayError."""

    def unpack(self, folder: Path) -> None:
        """Unpack its code into a folder that does not exist yet. Raises CausewayError."""


class OfCluster:
    """A run of the cluster."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._store = Store(cluster, namespace)

    def known(self) -> Known:
        run = runs.find(self._cluster, self._namespace, self._name)
        job = recorded(run.job, run.name)
        storage = self._store.of_run(run.name)
        started = keep_started(storage, run)
        with asked("look for what the run left"):
            return Known(
                name=run.name,
                where=run.namespace,
                state=run.state,
                since=run.since.timestamp(),
                seconds=run.seconds,
                job=job,
                code=run.code,
                parameters=run.parameters,
                person=run.person,
                nodes=places(run.workers),
                image=run.image or reference(job, self._cluster.offer),
                digest=started.image,
                gpu_models=started.gpu_models,
                restarts=run.restarts,
                cost=priced(run, started).cost,
                reason=run.waits_for or run.reason,
                continues=run.continues,
                metrics=_metrics(storage, _METRICS),
                usage=_usage(storage),
                saved=_saved(parts_in(self._store.of_run(run.name, "checkpoints/")), _policy(job)),
                packages=_packages(storage),
            )

    def unpack(self, folder: Path) -> None:
        run = runs.find(self._cluster, self._namespace, self._name, placed=False)
        if run.code:
            self._store.unpack_code(run.code, folder)
        else:
            folder.mkdir()


class OfMachine:
    """A run of this machine."""

    def __init__(self, name: str) -> None:
        self._folder, self._job = find_here(name)

    def known(self) -> Known:
        record, job = record_of(self._folder), self._job
        workers = workers_of(job)
        all_places = [Place(self._folder, each.role, rank) for each in workers for rank in range(each.count)]
        ended = record.get("ended", {})
        return Known(
            name=self._folder.name,
            where=f"{platform.node()}, {self._folder}",
            state=_state_here(self._folder, record),
            since=ended.get("at", record["started"]),
            seconds=ended.get("seconds", 0.0),
            job=job,
            code=record["code"],
            parameters=record.get("parameters", {}),
            metrics=metrics_of([_text(place.metrics) for place in all_places]),
            usage={place.name: usage_of([_text(place.usage)]) for place in all_places[:_WORKERS]},
            saved=_saved(parts_in(Folder(self._folder / "kept")), _policy(job)),
            packages=record.get("packages", ()),
        )

    def unpack(self, folder: Path) -> None:
        unpack_here(self._folder, folder)


class OfMachines:
    """A run on machines without a cluster."""

    def __init__(self, run: state.Run) -> None:
        self._run = run

    def known(self) -> Known:
        run, record = self._run, self._run.record
        job, left = machines.job_of(run)[0], machines.left(run, metrics=_METRICS, usage=_USAGE, most=_WORKERS)
        return Known(
            name=run.name,
            where=", ".join(run.hosts),
            state=run.state,
            since=run.since,
            seconds=left.seconds,
            job=job,
            code=record["code"],
            parameters=record.get("parameters", {}),
            person=record["by"],
            nodes=", ".join(f"{each.name} on {each.host}" for each in run.workers),
            image=record["image"],
            restarts=record["start"] - 1,
            reason=run.reason,
            metrics=metrics_of([*left.metrics.values()]),
            usage={name: usage_of([text]) for name, text in left.usage.items()},
            saved=_saved(left.parts, _policy(job)),
            packages=left.packages,
        )

    def unpack(self, folder: Path) -> None:
        digest = self._run.record["code"]
        if not digest:
            folder.mkdir()
            return
        with tempfile.TemporaryFile() as archive:
            machines.copy_code(self._run, archive)
            archive.seek(0)
            unpack(archive, digest, folder)


def source(name: str, group: str | None, *, local: bool, on: Sequence[str] | None = None) -> Source:
    """Return the source of a run. ``on``: machines that know it; empty: those that this laptop remembers.

    Raises CausewayError if it does not exist there.
    """
    if on is not None:
        return OfMachines(machines.find(name, on))
    if local:
        return OfMachine(name)
    cluster = Cluster()
    return OfCluster(cluster, cluster.namespace(group), name)


@dataclass(frozen=True)
class Row:
    """A run in a table."""

    name: str
    where: str
    job: Mapping[str, Any]
    """As recorded, possibly by another version of this program."""
    state: str
    created: float
    """Seconds since the epoch."""
    seconds: float
    person: str = ""
    cost: float | None = 0.0
    restarts: int = 0
    code: str = ""
    image: str = ""
    """With the digest that ran, if known."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each."""


Wanted = Callable[[str, Mapping[str, Any]], bool]
"""Called with the name of a run and its job."""


def of_cluster(group: str | None, search: str | None, wanted: Wanted) -> list[Row]:
    """Return the runs of a namespace, the newest first: those that are not trials, or those of a search."""
    cluster = Cluster()
    namespace = cluster.namespace(group)
    store = Store(cluster, namespace)
    found = [run for run in runs.runs(cluster, namespace, sweep=search) if wanted(run.name, run.job)]
    if not found:
        return []
    # All threads share its session, which the first use opens.
    storages = [store.of_run(run.name) for run in found]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return [*pool.map(_row, found, storages)]


def _row(run: runs.Run, storage: Storage) -> Row:
    started = keep_started(storage, run)
    with asked("look for what the run left"):
        metrics = _metrics(storage, _LAST)
    return Row(
        name=run.name,
        where=run.namespace,
        job=run.job,
        state=run.state,
        created=run.created.timestamp(),
        seconds=run.seconds,
        person=run.person,
        cost=priced(run, started).cost,
        restarts=run.restarts,
        code=run.code,
        image=started.image or run.image,
        parameters=run.parameters,
        metrics={name: each.last[1] for name, each in metrics.items()},
    )


def of_machine(wanted: Wanted) -> list[Row]:
    """Return the runs of this machine, the newest first."""
    records = [(folder, record_of(folder)) for folder in runs_here()]
    return [
        Row(
            name=folder.name,
            where=platform.node(),
            job=record["job"],
            state=_state_here(folder, record),
            created=record["started"],
            seconds=record.get("ended", {}).get("seconds", 0.0),
            code=record["code"],
            parameters=record.get("parameters", {}),
            metrics={
                name: each.last[1]
                for name, each in metrics_of(
                    [_text(path) for path in sorted((folder / "workers").glob("*.metrics.jsonl"))]
                ).items()
            },
        )
        for folder, record in records
        if wanted(folder.name, record["job"])
    ]


def _state_here(folder: Path, record: Mapping[str, Any]) -> str:
    return record.get("ended", {}).get("state") or ("running" if is_running(folder) else "stopped")


def _metrics(storage: Storage, most: int) -> dict[str, Metric]:
    """Read the metrics of a run's workers. ``most``: how many bytes of each to read, from the end."""
    return metrics_of([each for texts in _ends(storage, "metrics/", most).values() for each in texts])


def _policy(job: Job) -> Policy:
    return policy_of(job, workers_of(job))


def _ends(storage: Storage, prefix: str, most: int) -> dict[str, list[str]]:
    """Return worker → the growing files of its starts as texts, in order; of each worker about the last
    ``most`` bytes."""
    found = segments.sizes_of(storage.sizes(prefix))
    wanted: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for name in sorted(found, reverse=True):
        worker = name.split("/")[1]
        if left.setdefault(worker, most) > 0:
            wanted.setdefault(worker, []).insert(0, name)
            left[worker] -= sum(found[name])

    def read(name: str) -> str:
        return segments.read(storage, name, found[name], most=most).decode("utf-8", "replace")

    with ThreadPoolExecutor(8) as pool:
        return {worker: [*pool.map(read, wanted[worker])] for worker in sorted(wanted)[:_WORKERS]}


def _usage(storage: Storage) -> dict[str, Usage]:
    return {worker: usage_of(texts) for worker, texts in _ends(storage, "usage/", _USAGE).items()}


def _saved(parts: Sequence[Part], policy: Policy) -> list[Saved]:
    found = checkpoints.whole(parts, policy.workers)
    return [
        Saved(
            each.name,
            sum(sizes := [sum(file.size for file in part.files) for part in each.parts]),
            max(sizes),
            each.written / 1e9,
            {name: value for part in each.parts for name, value in part.metrics.items()},
        )
        for each in found
    ]


def _packages(storage: Storage) -> list[str]:
    texts = next(iter(_ends(storage, "packages/", _USAGE).values()), [])
    return texts[-1].splitlines() if texts else []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
