"""Records runs of this machine in its MLflow database, by MLflow itself, once they have ended.

``python -m causeway.local_recording FOLDER…``, the folders of runs, in a process of its own: MLflow takes
seconds to import, and longer to make a database, which is nothing for a run to wait for. While a program
runs, the database is its own: two who write to SQLite wait for each other.

What a program logged to a run of MLflow becomes part of the record; without any, one is made.
``recorded.json`` in the run's folder says which it is and how far it was read. What was not
recorded, as the machine went down or had no MLflow, is recorded by ``causeway ui --local``.
"""

from __future__ import annotations

import fcntl
import getpass
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from causeway.code.source import NO_SOURCE, Source, source_of
from causeway.described import parameters_of, tags_of
from causeway.job import Job
from causeway.local import first_failed, is_running, record_of, runs_here
from causeway.reported import parsed
from causeway.tracking import here
from causeway.tracking.record import OURS, metrics_of, usage_of
from causeway.tracking.spool import read_json, write_json
from causeway.workers import ends_with, workers_of

_SOURCE, _RECORDED, _LOCK, _LOG = "source.json", "recorded.json", "recording.lock", "recording.log"
_AT_ONCE = 250
"""Metrics in one call. MLflow accepts 1,000, but a program that logs meanwhile has to wait for the end of
each call."""
_MADE = 30.0
"""Seconds that a program may take to create a database."""
_STATUS = {"done": "FINISHED", "stopped": "KILLED"}
"""State → MLflow's state; any other is ``FAILED``."""
_INSTALL = "pip install 'causeway-client[tracking]'"


def is_possible() -> bool:
    """Whether this Python has MLflow with what its databases need; ``mlflow-skinny`` does not."""
    return all(importlib.util.find_spec(name) for name in ("mlflow", "sqlalchemy", "alembic"))


def note_source(folder: Path, code: Path) -> None:
    """Save the commit of a run's code and the changes since, for its record. ``code``: the folder that it was
    taken from."""
    with suppress(OSError):
        if is_possible():
            write_json(folder / _SOURCE, asdict(source_of(code)))


def copy_source(before: Path, folder: Path) -> None:
    """Copy the source of another run with the same code."""
    with suppress(OSError):
        shutil.copyfile(before / _SOURCE, folder / _SOURCE)


def begin(job: Job, folder: Path, say: Callable[[str], None]) -> None:
    """Start recording a run that has ended, in a process that continues if this program ends. Does nothing if
    the user has an MLflow of their own. If MLflow is not installed, that is reported once."""
    if not job.tracking.record or "MLFLOW_TRACKING_URI" in {**os.environ, **job.env}:
        return
    if not is_possible():
        said = user_cache_path("causeway") / "said-tracking"
        if not said.exists():
            with suppress(OSError):
                said.parent.mkdir(parents=True, exist_ok=True)
                said.touch()
                say(f"to record runs in MLflow on this machine too: {_INSTALL}; causeway ui shows them")
        return
    with suppress(OSError), (folder / _LOG).open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "causeway.local_recording", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def waiting(runs: Path, run: str | None) -> list[Path]:
    """Return runs whose record is not up to date, among those with the job name of ``run``, or of the newest
    run."""
    found = runs_here(runs)
    name = (run or (found[0].name if found else "")).rpartition("-")[0]
    return [
        folder
        for folder in reversed(found)
        if folder.name.rpartition("-")[0] == name and not is_running(folder) and not _is_recorded(folder)
    ]


def catch_up(folders: Sequence[Path]) -> None:
    """Record runs now. Errors go to stderr."""
    words = [sys.executable, "-m", "causeway.local_recording", *map(str, folders)]
    subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)


def _is_recorded(folder: Path) -> bool:
    record = record_of(folder)
    try:
        if not Job.model_validate(record["job"]).tracking.record:
            return True
    except ValueError:  # written by another version of this program
        return True
    found = read_json(folder / _RECORDED)
    return found is not None and found["ended"] == record.get("ended", {}).get("at")


def main(folders: Sequence[Path]) -> int:
    """Record runs; return the exit code, which is 1 if one could not be recorded. The others still are."""
    done = [_one(folder) for folder in folders]
    return 0 if all(done) else 1


def _one(folder: Path) -> bool:
    try:
        with _alone(folder):
            if not _is_recorded(folder):
                _Recording(folder).write()
    except Exception as error:
        print(f"{folder.name} is not recorded: {error}", file=sys.stderr, flush=True)
        return False
    return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Recording:
    """The record of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._record = record_of(folder)
        self._job = Job.model_validate(self._record["job"])
        self._workers = workers_of(self._job)
        before = read_json(folder / _RECORDED) or {}
        self._read: dict[str, int] = before.get("read", {})
        """File → number of bytes recorded."""
        self._database, self._run = before.get("database"), before.get("run")

    def write(self) -> None:
        """Write the record. Raises OSError, MlflowException."""
        place = here.place_of(self._folder.parent, self._job.name)
        place.mkdir(parents=True, exist_ok=True)
        os.environ["_MLFLOW_SERVER_ARTIFACT_ROOT"] = str(place / here.ARTIFACTS)
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        from mlflow import MlflowClient

        # Two processes that create one database disturb each other.
        with _alone(place):
            database = Path(self._database) if self._database else self._chosen(place)
            client = MlflowClient(tracking_uri=f"sqlite:///{database}")
            run = self._run or self._programs(client) or self._made(client)
        self._log(client, run, "params", parameters_of(self._job, self._record.get("parameters", {})))
        self._log(client, run, "tags", self._tags())
        for path in sorted((self._folder / "workers").glob("*.metrics.jsonl")):
            self._metrics(client, run, path, _reported)
        # That of the worker whose end is the run's, as in a cluster.
        self._metrics(client, run, self._folder / "workers" / f"{self._first}.usage.jsonl", _used)
        state = self._record.get("ended", {})
        client.set_terminated(run, _STATUS.get(state.get("state", "stopped"), "FAILED"), self._end)
        done = {"database": str(database), "run": run, "ended": state.get("at"), "read": self._read}
        write_json(self._folder / _RECORDED, done)

    def _chosen(self, place: Path) -> Path:
        """The database that the program has logged to, if it did and the database can be written to; else
        ours."""
        from mlflow import MlflowClient

        programs = place / here.PROGRAMS
        if programs.exists() and _opens(programs):
            client = MlflowClient(tracking_uri=f"sqlite:///{programs}")
            return programs if self._programs(client) is not None else _database(place)
        return _database(place)

    @property
    def _first(self) -> str:
        return f"{ends_with(self._workers)}-0"

    @property
    def _end(self) -> int:
        """End time in milliseconds; for a run that was killed, the last sign of life."""
        at: float | None = self._record.get("ended", {}).get("at")
        if at is None:
            found = [path.stat().st_mtime for path in (self._folder / "workers").glob("*")]
            at = max(found, default=self._record["started"])
        return round(at * 1000)

    def _programs(self, client: Any) -> str | None:
        """Return the first run that the program itself created."""
        found = client.search_runs(
            [each.experiment_id for each in client.search_experiments()],
            f"tags.`{OURS}run` = '{self._folder.name}'",
            order_by=["attributes.start_time ASC"],
        )
        runs = (each.info.run_id for each in found if "mlflow.parentRunId" not in each.data.tags)
        return next(runs, None)

    def _made(self, client: Any) -> str:
        name = self._job.tracking.experiment or self._job.name
        experiment = client.get_experiment_by_name(name)
        identity = experiment.experiment_id if experiment else client.create_experiment(name)
        run = client.create_run(identity, round(self._record["started"] * 1000), run_name=self._folder.name)
        return str(run.info.run_id)

    def _tags(self) -> dict[str, str]:
        first, ended = first_failed(self._folder), self._record.get("ended", {})
        state = ended.get("state", "stopped")
        lines = (first or {}).get("lines") or [""]
        reason = (first or {}).get("reason") or (first or {}).get("signal") or lines[-1]
        ours = {
            "run": self._folder.name,
            "code": self._record["code"],
            "gpus": str(sum(each.count * each.gpus.count for each in self._workers)),
            "workers": str(sum(each.count for each in self._workers)),
            "gpu": ", ".join(self._models()),
            "node": platform.node(),
            "exit": str(first["exit"]) if first else {"done": "0"}.get(state, ""),
            "reason": str(reason) if first else "" if state == "done" else state,
            "hours": f"{ended.get('seconds', 0.0) / 3600:.4f}",
        }
        said = read_json(self._folder / _SOURCE)
        source = Source(**said) if said else NO_SOURCE
        return tags_of(self._job, source, getpass.getuser(), ours)

    def _models(self) -> list[str]:
        found: dict[str, None] = {}
        for path in (self._folder / "workers").glob("*.usage.jsonl"):
            with suppress(OSError, ValueError, AttributeError):
                line = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
                found |= dict.fromkeys(json.loads(line).get("models", ()))
        return sorted(found)

    def _metrics(
        self, client: Any, run: str, path: Path, read: Callable[[str], list[dict[str, Any]]]
    ) -> None:
        """Record what is new in a file that grew."""
        from mlflow.entities import Metric

        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                data = file.read()
        except FileNotFoundError:
            return
        data = data[: data.rfind(b"\n") + 1]
        lines = data.decode("utf-8", "replace").split("\n")[:-1]
        metrics = [
            Metric(each["key"], float(each["value"]), each["timestamp"], each["step"])
            for line in lines
            for each in read(line)
        ]
        for at in range(0, len(metrics), _AT_ONCE):
            self._batch(client, run, "metrics", metrics[at : at + _AT_ONCE])
        self._read[path.name] = self._read.get(path.name, 0) + len(data)

    def _log(self, client: Any, run: str, kind: str, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        made = [(Param if kind == "params" else RunTag)(*each) for each in values.items()]
        for at in range(0, len(made), 100):
            self._batch(client, run, kind, made[at : at + 100])

    def _batch(self, client: Any, run: str, kind: str, values: Sequence[Any]) -> None:
        """Record values. Names that MLflow rejects do not affect the others."""
        from mlflow.exceptions import MlflowException

        try:
            client.log_batch(run, **{kind: values})
        except MlflowException as error:
            names = dict.fromkeys(each.key for each in values)
            if len(names) == 1:
                print(f"{self._folder.name}: {values[0].key} is left out: {error}", file=sys.stderr)
                return
            for name in names:
                self._batch(client, run, kind, [each for each in values if each.key == name])


def _database(place: Path) -> Path:
    """Return the database that programs log to, if this MLflow can open it. MLflow refuses one of another
    version: then the record is beside it."""
    shared = place / here.DATABASE
    if not shared.exists():
        _make(place, shared)
    until = time.monotonic() + _MADE
    while not _opens(shared):
        if time.monotonic() > until:
            return place / here.RECORDS
        time.sleep(1)  # a program may be creating it
    return shared


def _make(place: Path, shared: Path) -> None:
    """Create a database under a temporary name, so that a program sees none or a complete one: if two
    processes create an MLflow database at the same time, both fail."""
    from mlflow import MlflowClient
    from mlflow.version import VERSION

    scratch = place / f".{os.getpid()}.db"
    try:
        MlflowClient(tracking_uri=f"sqlite:///{scratch}").search_experiments(max_results=1)
        write_json(place / here.OURS, {"version": VERSION})
        os.link(scratch, shared)
    except FileExistsError:  # a program was faster: do not use it
        (place / here.OURS).unlink(missing_ok=True)
    finally:
        for each in place.glob(f"{scratch.name}*"):
            each.unlink(missing_ok=True)


def _opens(database: Path) -> bool:
    from mlflow.store.db import utils
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{database}")
    try:
        is_same: bool = utils._get_schema_version(engine) == utils._get_latest_schema_revision()
    finally:
        engine.dispose()
    return is_same


def _reported(line: str) -> list[dict[str, Any]]:
    report = parsed(line)
    return metrics_of(report) if report is not None else []


def _used(line: str) -> list[dict[str, Any]]:
    try:
        return usage_of(json.loads(line))
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


if __name__ == "__main__":
    raise SystemExit(main([Path(word) for word in sys.argv[1:]]))
