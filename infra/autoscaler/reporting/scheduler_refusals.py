"""Pods that have room by our reckoning, and that the scheduler refuses all the same.

A rule that is not known here, a plugin, or a fault of ours: nothing is started for such a pod, so that it
would wait without a word. After some minutes people hear of it, in the scheduler's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from infra.autoscaler.decision import Notice, Verdict
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.reporting import sentences

AFTER: Final = 300.0
"""Seconds: a scheduler's longest back-off of a pod (KubeSchedulerConfiguration) is far less."""
_MOST: Final = 500


def judge(
    snapshot: Snapshot, verdicts: Iterable[Verdict], since: Mapping[str, float], now: float
) -> tuple[dict[str, float], list[Notice]]:
    """What is remembered from now on, and notices of what has been so for long.

    ``since``: uid → when it was first found so. Of equal pods the first is looked at.
    """
    refused = {pod.uid: pod for pod in snapshot.pods if pod.refused and not pod.node}
    kept: dict[str, float] = {}
    notices = []
    for verdict in verdicts:
        uid = next((each for each in verdict.pods if each in refused), None)
        if verdict.outcome != "fits" or uid is None or len(kept) == _MOST:
            continue
        kept[uid] = since.get(uid, now)
        if now - kept[uid] >= AFTER:
            pod = refused[uid]
            name = f"{pod.namespace}/{pod.name}"
            refuses = f"the scheduler has refused it for {int(now - kept[uid]) // 60} min: {pod.refused}"
            notices.append(
                Notice("disputed", name, "warning", f"{name} {sentences.verdict(verdict)}, and {refuses}")
            )
    return kept, notices
