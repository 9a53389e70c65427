"""What runs were started with: the digest of their image, their GPUs, the price of their machines.

Only their pods know this, and pods go away with their machines. It is therefore kept in the store, and in
this program's cache, which a list of runs can read without delay.
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
"""File in a run's folder in the store: ``image`` with the digest that ran, ``gpu_models``,
``hourly_price``."""
_AT_ONCE = 8
_MOST = 64
"""Maximum number of runs for which one command asks the store."""


@dataclass(frozen=True)
class Started:
    """What a run was started with, as reported by its pods."""

    image: str = ""
    gpu_models: tuple[str, ...] = ()
    hourly_price: float | None = None
    """USD per hour for all its workers; None if unknown."""


def started(run: Run) -> Started:
    """Read it from the pods of a run; empty before its workers run. The kubelet reports the digest that it
    pulled (PodStatus, ``imageID``)."""
    images = (each.image.rpartition("://")[2] for each in run.workers if "@sha256:" in each.image)
    models = tuple(sorted({each.gpu_model for each in run.workers if each.gpu_model}))
    return Started(next(images, ""), models, run.hourly_price)


def keep_started(storage: Storage, run: Run) -> Started:
    """Return what a run was started with, and save it in the store while its pods exist: any client that
    looks at the run does so. When the pods are gone, return what was saved."""
    found = started(run)
    with asked("look for what the run was started with"):
        try:
            kept = _parsed(storage.read(_STARTED))
        except (MissingError, KeyError, TypeError, ValueError):
            kept = Started()
        if not found.image:
            return kept
        if found.hourly_price is None:  # some of its pods are gone, or not created yet
            found = replace(found, hourly_price=kept.hourly_price)
        if found != kept:
            storage.write(_STARTED, json.dumps(asdict(found)).encode())
    return found


def priced(run: Run, kept: Started) -> Run:
    """Return a run with the saved price, if its pods no longer report one."""
    return run if run.hourly_price is not None else replace(run, hourly_price=kept.hourly_price)


def recalled(cluster: Cluster, found: Sequence[Run]) -> list[Run]:
    """Return runs with the prices in this program's cache. Makes no requests."""
    return [
        priced(run, _seen(cluster, run) or Started()) if run.hourly_price is None else run for run in found
    ]


def remember(cluster: Cluster, found: Sequence[Run]) -> None:
    """Cache what runs were started with, and fetch what others saved for runs whose pods are gone. If that
    fails, `rerun --exact` and `ps` know less."""
    new = [run for run in found if _is_new(run, _seen(cluster, run))][:_MOST]
    if not new:
        return
    with suppress(CausewayError, OSError):
        store = Store(cluster, new[0].namespace)  # all are in one namespace
        _remember(cluster, store, new[0])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda run: _remember(cluster, store, run), new[1:]):
                pass


def _is_new(run: Run, seen: Started | None) -> bool:
    """Whether the store has to be read or updated."""
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
    """Return the cache entry of a run; None if there is none."""
    try:
        return _parsed(_path(cluster, run).read_bytes())
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _path(cluster: Cluster, run: Run) -> Path:
    return user_cache_path("causeway") / "started" / cluster.offer.store.bucket / run.namespace / run.uid


def _parsed(text: bytes) -> Started:
    """Parse an entry, also one of an older client, which did not save prices."""
    values = json.loads(text)
    return Started(values["image"], tuple(values["gpu_models"]), values.get("hourly_price"))
