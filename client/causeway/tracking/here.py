"""MLflow for runs of this machine, without a server: a database and a folder for all runs of a job's name."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from causeway.job import Job
from causeway.tracking.spool import read_json

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"
PROGRAMS = "programs.db"
"""Used by programs instead of a ``DATABASE`` that we created, if their MLflow may be of another version,
which would fail to open it."""
RECORDS = "records.db"
"""Used by us instead of a ``DATABASE`` that a program created with another version of MLflow."""
OURS = "made.json"
"""File beside a ``DATABASE`` that we created: ``version`` of MLflow."""


def environment(job: Job, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return additional variables for the programs of a run; none if the user has an MLflow of their own.

    ``folder``: the run's, in the folder of all runs, next to which the database is. MLflow reads these
    variables, if the program uses it at all.
    """
    if not job.tracking.record or "MLFLOW_TRACKING_URI" in given:
        return {}
    place = place_of(folder.parent, job.name)
    place.mkdir(parents=True, exist_ok=True)
    tags = {"causeway.run": folder.name, "mlflow.runName": folder.name}
    return {
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / _of_programs(place, job, given)}",
        "MLFLOW_EXPERIMENT_NAME": job.tracking.experiment or job.name,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
        # Without a server, files would be written to the current folder, which is a copy of the code
        # (mlflow.tracking._tracking_service.utils).
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(place / ARTIFACTS),
    }


def place_of(runs: Path, name: str) -> Path:
    """The folder of the databases and artifacts of a job's name."""
    return runs.with_name("mlflow") / name


def _of_programs(place: Path, job: Job, given: Mapping[str, str]) -> str:
    made = read_json(place / OURS)
    if made is None or same(made["version"], _version(job, given)):
        return DATABASE
    return PROGRAMS


def same(one: str, other: str) -> bool:
    """Whether two versions of MLflow can open each other's databases: the schema changes with minor
    versions."""
    return one.split(".")[:2] == other.split(".")[:2]


def _version(job: Job, given: Mapping[str, str]) -> str:
    """Return the version of MLflow installed for the program of a job, for example in a virtual environment;
    empty if unknown. No Python is started to find out."""
    if job.python:  # its packages are installed over others
        return ""
    try:
        words = shlex.split(job.run.strip().splitlines()[-1])
    except ValueError:
        return ""
    program = shutil.which(words[0], path=given.get("PATH")) if words else None
    if program is None:
        return ""
    for path in (Path(program).parents[1] / "lib").glob("python3*/site-packages/mlflow/version.py"):
        if found := re.search(r"^VERSION = [\"'](.+?)[\"']", path.read_text(encoding="utf-8"), re.MULTILINE):
            return found[1]
    return ""


def database_of(runs: Path, name: str) -> Path:
    """Return the database that programs of a job's name log to, or did last; it may not exist."""
    found = [place_of(runs, name) / each for each in (DATABASE, PROGRAMS)]
    there = [each for each in found if each.exists()]
    return max(there, key=lambda path: path.stat().st_mtime, default=found[0])


def newest(runs: Path, run: str | None) -> Path | None:
    """Return the database of a run, or the one that was written to last; None if there is none."""
    name = "*" if run is None else run.rpartition("-")[0]
    if run is not None and (recorded := read_json(runs / run / "recorded.json")):
        return Path(recorded["database"])
    names = (DATABASE, PROGRAMS, RECORDS)
    found = [path for each in names for path in runs.with_name("mlflow").glob(f"{name}/{each}")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def server(database: Path, port: int, *, own: bool) -> list[str]:
    """Return the command that shows it. ``own``: with the MLflow of this Python."""
    artifacts = database.with_name(ARTIFACTS)
    return [
        *([sys.executable, "-m"] if own else []), "mlflow", "server", "--host=127.0.0.1",
        f"--port={port}", "--workers=1",
        f"--backend-store-uri=sqlite:///{database}",
        f"--default-artifact-root={artifacts}",
    ]  # fmt: skip
