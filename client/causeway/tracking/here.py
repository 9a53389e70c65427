"""MLflow for runs of this machine: a database and a folder for all runs of a job's name, without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from causeway.job import Job

_DATABASE, _ARTIFACTS = "mlflow.db", "artifacts"


def environment(job: Job, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """What the programs of a run are given besides. Nothing for who has an MLflow of their own.

    ``folder``: the run's, in the folder of all runs, beside which the database is. MLflow takes what it finds
    in these variables, if the program has it at all.
    """
    if not job.tracking.record or "MLFLOW_TRACKING_URI" in given:
        return {}
    place = _place(folder.parent, job.name)
    place.mkdir(parents=True, exist_ok=True)
    tags = {"causeway.run": folder.name, "mlflow.runName": folder.name}
    return {
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / _DATABASE}",
        "MLFLOW_EXPERIMENT_NAME": job.tracking.experiment or job.name,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
        # Without a server files would go below the current folder, which is a copy of the code
        # (mlflow.tracking._tracking_service.utils).
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(place / _ARTIFACTS),
    }


def _place(runs: Path, name: str) -> Path:
    return runs.with_name("mlflow") / name


def database_of(runs: Path, name: str) -> Path:
    """Of the runs of a job's name; it may not be there."""
    return _place(runs, name) / _DATABASE


def newest(runs: Path, run: str | None) -> Path | None:
    """The database of a run, or the one that was written to last; None without one."""
    if run is not None:
        path = _place(runs, run.rpartition("-")[0]) / _DATABASE
        return path if path.exists() else None
    found = runs.with_name("mlflow").glob(f"*/{_DATABASE}")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def server(database: Path, port: int) -> list[str]:
    """The command that shows it."""
    artifacts = database.with_name(_ARTIFACTS)
    return [
        "mlflow", "server", "--host=127.0.0.1", f"--port={port}", "--workers=1",
        f"--backend-store-uri=sqlite:///{database}",
        f"--default-artifact-root={artifacts}",
    ]  # fmt: skip
