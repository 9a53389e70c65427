"""Runs in the cluster permanently: stops runs that cannot start, and releases their machines.

``python -m causeway.end_blocked``. A worker whose image or Secret is missing would wait for it forever, while
all workers of its run hold their GPUs. After ``PATIENCE`` the run is stopped, with the reason; the user fixes
the cause and resumes it. Temporary causes, such as a registry that does not answer, are left to the queue.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from causeway.cluster.blocked import Blocked, blocked
from causeway.cluster.connection import Cluster
from causeway.cluster.labels import BLOCKED, RUN
from causeway.cluster.runs import items, path_of, set_active, workload_with
from causeway.errors import CausewayError

PATIENCE = 300.0
"""Seconds since it was first found blocked. The kubelet has tried five times by then."""
_EVERY = 20.0
"""Seconds between two checks."""
_MERGE = "application/merge-patch+json"
_PENDING = {"labelSelector": RUN, "fieldSelector": "status.phase=Pending"}


class Watch:
    """Tracks which pods are blocked, and since when."""

    def __init__(self, cluster: Cluster, patience: float = PATIENCE) -> None:
        self._cluster = cluster
        self._patience = patience
        self._since: dict[str, float] = {}

    def look(self, now: float) -> list[tuple[str, str, Blocked]]:
        """Stop runs that have been blocked for too long; return (namespace, run, reason) of each.

        ``now``: seconds of a monotonic clock.
        """
        found = {each["metadata"]["uid"]: (each, why) for each, why in self._blocked()}
        self._since = {uid: self._since.get(uid, now) for uid in found}
        stopped: dict[tuple[str, str], Blocked] = {}
        for uid, (pod, why) in found.items():
            run = pod["metadata"]["namespace"], pod["metadata"]["labels"][RUN]
            if now - self._since[uid] >= self._patience and run not in stopped and self._stop(*run, why):
                stopped[run] = why
        return [(namespace, name, why) for (namespace, name), why in stopped.items()]

    def _blocked(self) -> Iterator[tuple[Any, Blocked]]:
        for pod in items(self._cluster, "/api/v1/pods", **_PENDING):
            why = blocked(pod)
            if why is not None and why.lasts:
                yield pod, why

    def _stop(self, namespace: str, name: str, why: Blocked) -> bool:
        """Stop a run; return whether it existed and was in its queue."""
        path = f"{path_of(namespace)}/{name}"
        run = self._cluster.find(path)
        workload = workload_with(self._cluster, namespace, run["metadata"]["uid"]) if run else None
        if workload is None or not workload["spec"].get("active", True):
            return False
        said = json.dumps({"at": round(time.time()), "why": str(why)}, ensure_ascii=False)
        self._cluster.call("PATCH", path, {"metadata": {"annotations": {BLOCKED: said}}}, form=_MERGE)
        set_active(self._cluster, namespace, workload, active=False)
        return True


def main(cluster: Cluster) -> None:
    """Run forever. If the API does not answer or refuses a request, it is retried."""
    watch = Watch(cluster)
    while True:
        try:
            for namespace, name, why in watch.look(time.monotonic()):
                print(f"causeway: stopped {namespace}/{name}: {why}", flush=True)
        except CausewayError as error:
            print(f"causeway: {error}", file=sys.stderr, flush=True)
        time.sleep(_EVERY)


if __name__ == "__main__":
    main(Cluster(own=True))
