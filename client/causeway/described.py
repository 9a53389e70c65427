"""What MLflow records about a run before it starts: the same in a cluster and on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from causeway.code.source import Source
from causeway.job import Job, flat, written
from causeway.tracking.record import LONGEST, LONGEST_TAG, OURS

_NOT_RECORDED = ("name", "secrets", "tracking")


def parameters_of(job: Job, given: Mapping[str, str]) -> dict[str, str]:
    """Return fields of the job file and values of placeholders as parameters. Their names have a prefix so
    that a program may log its own ``lr``: MLflow rejects a second value."""
    fields = {name: value for name, value in written(job).items() if name not in _NOT_RECORDED}
    found = {f"job.{name}": text for name, text in flat(fields).items()}
    found |= {f"set.{name}": value for name, value in given.items()}
    return {name: text[:LONGEST] for name, text in found.items() if text}


def tags_of(job: Job, source: Source, person: str, ours: Mapping[str, str]) -> dict[str, str]:
    """``ours``: further tags of Causeway, without their prefix. Tags without a value are left out."""
    ours = {
        **ours,
        "person": person,
        "diff": source.diff,
        "diff_lines": str(source.changed) if source.commit else "",
    }
    theirs = {
        "user": person,
        "source.type": "JOB",
        "source.name": job.run,
        "source.git.commit": source.commit,
        "source.git.branch": source.branch,
    }
    tags = {f"{OURS}{name}": value for name, value in ours.items()}
    tags |= {f"mlflow.{name}": value for name, value in theirs.items()}
    return {name: value[:LONGEST_TAG] for name, value in tags.items() if value}
