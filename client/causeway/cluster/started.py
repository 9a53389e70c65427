"""What runs were started with: the digest of their image, their GPUs.

Their pods say it, and go with their machines; so it is kept in the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from platformdirs import user_cache_path

from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run
from causeway.cluster.store import Store, asked
from causeway.errors import CausewayError
from causeway.storage import MissingError, Storage

_STARTED = "started.json"
"""Of a run's folder in the store: ``image`` that ran, with its digest, and ``gpu_models``."""


@dataclass(frozen=True)
class Started:
    """What a run was started with, as its pods say."""

    image: str = ""
    gpu_models: tuple[str, ...] = ()


def started(run: Run) -> Started:
    """Empty before its workers run. The kubelet knows which digest it pulled: PodStatus, ``imageID``."""
    images = (each.image.rpartition("://")[2] for each in run.workers if "@sha256:" in each.image)
    return Started(
        next(images, ""), tuple(sorted({each.gpu_model for each in run.workers if each.gpu_model}))
    )


def keep_started(storage: Storage, run: Run) -> Started:
    """Of a run whose pods are there, and kept in the store by each who looks, as pods go with their machines;
    else what was kept."""
    found = started(run)
    with asked("look for what the run was started with"):
        try:
            values = json.loads(storage.read(_STARTED))
            kept = Started(values["image"], tuple(values["gpu_models"]))
        except (MissingError, KeyError, TypeError, ValueError):
            kept = Started()
        if not found.image:
            return kept
        if found != kept:
            storage.write(_STARTED, json.dumps(asdict(found)).encode())
    return found


def remember(cluster: Cluster, found: Sequence[Run]) -> None:
    """Keeps what runs were started with, of those that this program has not kept yet. If that fails, `rerun
    --exact` knows less."""
    for run in found:
        values = started(run)
        mark = user_cache_path("causeway") / "started" / cluster.offer.store.bucket / run.namespace / run.uid
        if values.image and not mark.exists():
            with suppress(CausewayError, OSError):
                keep_started(Store(cluster, run.namespace).of_run(run.name), run)
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
