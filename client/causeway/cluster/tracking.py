"""The environment variables for MLflow in a run's containers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from causeway.cluster.fit import Fit
from causeway.cluster.offer import Tracking
from causeway.cluster.prices import hourly
from causeway.code.source import Source
from causeway.described import parameters_of, tags_of
from causeway.job import Job
from causeway.tracking.record import Place, Record
from causeway.tracking.relay import PORT
from causeway.workers import ends_with

_ADDRESS = f"http://127.0.0.1:{PORT}"
_UID = "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"
"""Names may be reused; the UID is unique."""
_TOPOLOGY = "metadata.labels['topology.kubernetes.io/{}']"
"""Kubernetes copies these labels to a pod once it has a node (admission plugin PodTopologyLabels)."""


def record_of(
    tracking: Tracking,
    job: Job,
    fits: Sequence[Fit],
    *,
    run: str,
    namespace: str,
    person: str,
    digest: str,
    image: str,
    given: Mapping[str, str],
    source: Source,
) -> Record:
    """Return the record of a run before it starts. ``given``: values of ``--set``."""
    gpus = sum(each.workers.count * each.workers.gpus.count for each in fits)
    ours = {
        "run": run,
        "namespace": namespace,
        "code": digest,
        "image": image,
        "gpus": str(gpus),
        "workers": str(sum(each.workers.count for each in fits)),
    }
    return Record(
        url=tracking.url,
        workspace=namespace,
        run=run,
        experiment=job.tracking.experiment or job.name,
        worker=f"{ends_with([each.workers for each in fits])}-0",
        parameters=parameters_of(job, given),
        tags=tags_of(job, source, person, ours),
        places=dict(_places(fits)),
    )


def _places(fits: Sequence[Fit]) -> Iterator[tuple[str, Place]]:
    """Yield the sites that all roles may be placed at."""
    sites = [{machine.site for machine in each.machines} for each in fits]
    for site in sorted(set.intersection(*sites)):
        prices = [[*_prices(each, site)] for each in fits]
        models = {
            machine.gpus.model if machine.gpus else None
            for each in fits
            if each.workers.gpus.count
            for machine in each.machines
            if machine.site == site
        }
        known = [[price for price in of_role if price is not None] for of_role in prices]
        all_known = all(map(len, known)) and sum(map(len, known)) == sum(map(len, prices))
        yield (
            site,
            Place(
                gpu=models.pop() if len(models) == 1 else None,
                least=sum(map(min, known)) if all_known else None,
                most=sum(map(max, known)) if all_known else None,
            ),
        )


def _prices(fit: Fit, site: str) -> Iterator[float | None]:
    """Yield the hourly price in USD of all workers of a role, on each kind of machine at a site."""
    for machine in fit.machines:
        if machine.site == site:
            for spot in {False, machine.is_spot}:
                price = hourly(machine, fit.workers.gpus.count, fit.cpus, spot=spot)
                yield None if price is None else price * fit.workers.count


def sidecars_environment(record: Record, token: str, alias: str = "") -> list[dict[str, Any]]:
    """Return the sidecar's variables. ``token``: path of the token file. ``alias``: the alias of the MLflow
    run, if it already exists."""
    return [
        {"name": "CAUSEWAY_TRACKING", "value": record.text().replace("$", "$$")},
        {"name": "CAUSEWAY_TRACKING_TOKEN", "value": token},
        _run_id("MLFLOW_RUN_ID", alias),
        _field("CAUSEWAY_NODE", "spec.nodeName"),
        _field("CAUSEWAY_ZONE", _TOPOLOGY.format("zone")),
        _field("CAUSEWAY_REGION", _TOPOLOGY.format("region")),
    ]


def programs_environment(record: Record, job: Job, alias: str = "") -> list[dict[str, Any]]:
    """Return the programs' variables; none for a job that uses an MLflow of its own.

    The runtime sets MLflow's own variables. The runtime and the sidecar come from the same image, so they are
    not set with a sidecar of an older image, which does not listen.
    """
    if "MLFLOW_TRACKING_URI" in {*job.env, *job.secrets.values()}:
        return []
    settings = {
        "MLFLOW_EXPERIMENT_NAME": record.experiment,
        # This address is valid only inside the pod.
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Tags of further runs that the program starts.
        "MLFLOW_RUN_CONTEXT": json.dumps(
            {
                "causeway.parent": record.run,
                "causeway.person": record.tags["causeway.person"],
            }
        ),
    }
    values = {
        "CAUSEWAY_TRACKING_URI": _ADDRESS,
        "CAUSEWAY_TRACKED_WORKER": record.worker,
        "CAUSEWAY_MLFLOW": json.dumps(settings).replace("$", "$$"),
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        _run_id("CAUSEWAY_MLFLOW_RUN_ID", alias),
    ]


def _run_id(name: str, alias: str) -> dict[str, Any]:
    return {"name": name, "value": alias} if alias else _field(name, _UID)


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
