"""Pods that fit by our rules, but that the scheduler refuses.

The cause may be a rule unknown to us, a plugin, or a bug of ours: no machine is started for such a pod, so
it would wait silently. After some minutes users are informed, with the scheduler's own message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from infra.autoscaler.decision import Notice, Verdict
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.reporting import sentences

AFTER: Final = 300.0
"""Seconds: far longer than a scheduler's maximum back-off of a pod (KubeSchedulerConfiguration)."""
_MOST: Final = 500


def judge(
    snapshot: Snapshot, verdicts: Iterable[Verdict], since: Mapping[str, float], now: float
) -> tuple[dict[str, float], list[Notice]]:
    """The updated memory, and notices of pods that have been refused for long.

    ``since``: uid → when it was first refused. Of equal pods the first is considered.
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
