"""Helper Jobs in a namespace: the board, the conductor of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from causeway.cluster.labels import QUEUE, SECONDS

_GRACE = 5


def queued_job(
    namespace: str,
    name: str,
    container: Mapping[str, Any],
    *,
    label: Mapping[str, str],
    annotations: Mapping[str, str],
    account: str,
    volumes: Sequence[Mapping[str, Any]],
    life: int,
    **spec: Any,
) -> dict[str, Any]:
    """Return a Job with one container, in the namespace's queue.

    ``label``: label of the Job and its pods. ``account``: the service account. ``life``: its maximum duration
    in seconds, from which the queue estimates starts. ``spec``: more fields of the Job.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**label, "kueue.x-k8s.io/queue-name": QUEUE, SECONDS: str(life)},
            "annotations": dict(annotations),
        },
        "spec": {
            **spec,
            "template": {
                "metadata": {"labels": dict(label)},
                "spec": pod([container], volumes, account=account, grace=_GRACE),
            },
        },
    }


def pod(
    containers: Sequence[Mapping[str, Any]],
    volumes: Sequence[Mapping[str, Any]],
    *,
    account: str,
    grace: int,
    **spec: Any,
) -> dict[str, Any]:
    """The spec of every pod that the client creates: it runs once, and has no token but those of ``volumes``.

    ``account``: the service account. ``grace``: seconds to stop in. ``spec``: more fields.
    """
    return {
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace,
        **spec,
        "containers": [*containers],
        "volumes": [*volumes],
    }
