"""What runs were started with: the digest of their image, their GPUs, what their machines cost.

Their pods say it, and go with their machines; so it is kept in the store, and in this program's cache, which
a list of runs can ask at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from platformdirs import user_cache_path

from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run
from causeway.cluster.store import Store, asked
from causeway.errors import CausewayError
from causeway.storage import MissingError, Storage

_STARTED = "started.json"
"""Of a run's folder in the store: ``image`` that ran, with its digest, ``gpu_models``, ``hourly_price``."""
_AT_ONCE = 8
_MOST = 64
"""Runs that one command asks the store for."""


@dataclass(frozen=True)
class Started:
    """What a run was started with, as its pods say."""

    image: str = ""
    gpu_models: tuple[str, ...] = ()
    hourly_price: float | None = None
    """USD, of all its workers; None if it is not known."""


def started(run: Run) -> Started:
    """Empty before its workers run. The kubelet knows which digest it pulled: PodStatus, ``imageID``."""
    images = (each.image.rpartition("://")[2] for each in run.workers if "@sha256:" in each.image)
    models = tuple(sorted({each.gpu_model for each in run.workers if each.gpu_model}))
    return Started(next(images, ""), models, run.hourly_price)


def keep_started(storage: Storage, run: Run) -> Started:
    """Of a run whose pods are there, and kept in the store by each who looks, as pods go with their machines;
    else what was kept."""
    found = started(run)
    with asked("look for what the run was started with"):
        try:
            kept = _parsed(storage.read(_STARTED))
        except (MissingError, KeyError, TypeError, ValueError):
            kept = Started()
        if not found.image:
            return kept
        if found.hourly_price is None:  # some of its pods are gone, or not there yet
            found = replace(found, hourly_price=kept.hourly_price)
        if found != kept:
            storage.write(_STARTED, json.dumps(asdict(found)).encode())
    return found


def priced(run: Run, kept: Started) -> Run:
    """With the price that was kept, where its pods do not say it any more."""
    return run if run.hourly_price is not None else replace(run, hourly_price=kept.hourly_price)


def recalled(cluster: Cluster, found: Sequence[Run]) -> list[Run]:
    """Runs with the prices that this program has seen. Nothing is asked for."""
    return [
        priced(run, _seen(cluster, run) or Started()) if run.hourly_price is None else run for run in found
    ]


def remember(cluster: Cluster, found: Sequence[Run]) -> None:
    """Keeps what runs were started with, of those that this program has not kept yet; and fetches what others
    kept of runs whose pods are gone. If that fails, `rerun --exact` and `ps` know less."""
    new = [run for run in found if _is_new(run, _seen(cluster, run))][:_MOST]
    if not new:
        return
    with suppress(CausewayError, OSError):
        store = Store(cluster, new[0].namespace)  # all are of one namespace
        _remember(cluster, store, new[0])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda run: _remember(cluster, store, run), new[1:]):
                pass


def _is_new(run: Run, seen: Started | None) -> bool:
    """Whether the store has to be read, or updated."""
    values = started(run)
    if not values.image:
        return seen is None and not run.workers and run.seconds > 0
    if seen is None:
        return True
    if values.hourly_price is None:
        seen = replace(seen, hourly_price=None)
    return values != seen


def _remember(cluster: Cluster, store: Store, run: Run) -> None:
    kept = keep_started(store.of_run(run.name), run)
    path = _path(cluster, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(kept)), encoding="utf-8")


def _seen(cluster: Cluster, run: Run) -> Started | None:
    """What this program has kept of a run; None for nothing."""
    try:
        return _parsed(_path(cluster, run).read_bytes())
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _path(cluster: Cluster, run: Run) -> Path:
    return user_cache_path("causeway") / "started" / cluster.offer.store.bucket / run.namespace / run.uid


def _parsed(text: bytes) -> Started:
    """Also of an older client, which did not keep prices."""
    values = json.loads(text)
    return Started(values["image"], tuple(values["gpu_models"]), values.get("hourly_price"))
