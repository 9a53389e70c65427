"""``export``: a table of runs with their parameters and last metrics, for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError
from causeway.overview import Row, of_cluster, of_machine
from causeway.series import finite


def export(
    patterns: Sequence[str],
    group: str | None,
    *,
    experiment: str | None,
    search: str | None,
    local: bool,
    as_json: bool,
    to: str | None,
) -> int:
    """Write runs of a namespace or of this machine, the newest first. Raises CausewayError for a name without
    a run.

    ``patterns``: shell patterns of run names. ``search``: write its trials, which are left out otherwise.
    ``to``: the output file; None for stdout.
    """

    def wanted(name: str, job: Any) -> bool:
        return (not patterns or any(fnmatchcase(name, each) for each in patterns)) and (
            experiment is None or experiment_of(job) == experiment
        )

    rows = of_machine(wanted) if local else of_cluster(group, search, wanted)
    where = "this machine" if local else f"{group or 'your namespace'}"
    for pattern in patterns:
        if not any(fnmatchcase(each.name, pattern) for each in rows):
            raise CausewayError(f"no run {pattern} of {where}" + (f" in {experiment}" if experiment else ""))
    text = _json(rows) if as_json else _csv(rows)
    if to is None:
        print(text, end="")
        return 0
    try:
        Path(to).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CausewayError(f"{to} cannot be written: {error.strerror}") from None
    return 0


def experiment_of(job: Any) -> str:
    """Return the name of the experiment in MLflow. ``job``: as stored in the cluster, perhaps by another
    version."""
    tracking = job.get("tracking")
    said = tracking.get("experiment") if isinstance(tracking, dict) else None
    return str(said or job.get("name", ""))


def _plain(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "where": row.where,
        "experiment": experiment_of(row.job),
        "state": row.state,
        "person": row.person,
        "created": datetime.fromtimestamp(row.created, timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(row.seconds, 1),
        "cost": row.cost,
        "restarts": row.restarts,
        "code": row.code,
        "image": row.image,
    }


def _json(rows: Iterable[Row]) -> str:
    found = [
        {
            **_plain(row),
            "parameters": dict(row.parameters),
            "metrics": {name: finite(value) for name, value in row.metrics.items()},
        }
        for row in rows
    ]
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


def _csv(rows: Sequence[Row]) -> str:
    """Write CSV. Columns of parameters and metrics are named as ``mlflow.search_runs`` names them."""
    names = [*dict.fromkeys(name for row in rows for name in row.parameters)]
    metrics = sorted({name for row in rows for name in row.metrics})
    fixed = [*_plain(Row("", "", {}, "", 0.0, 0.0))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*fixed, *(f"params.{name}" for name in names), *(f"metrics.{name}" for name in metrics)])
    for row in rows:
        cells = [*_plain(row).values(), *(row.parameters.get(name) for name in names)]
        writer.writerow(map(_cell, [*cells, *(row.metrics.get(name) for name in metrics)]))
    return out.getvalue()


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
