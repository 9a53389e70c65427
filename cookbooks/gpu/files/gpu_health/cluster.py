"""The Kubernetes node: cordoned while its machine is unhealthy, with the kubelet's own identity.

What that identity may do decides how. The admission plugin NodeRestriction forbids a kubelet to change its
node's taints and most labels below ``kubernetes.io`` (kubernetes, plugin/pkg/admission/noderestriction), and
``--register-with-taints`` is for new nodes only. The rest of its own node it may patch (rules of the role
``system:node``): ``spec.unschedulable``, annotations, and conditions in the status. So an unhealthy node is
cordoned and says why in an annotation and in the condition ``GpuHealthy``; running pods continue. Stopping
the device plugin instead would take GPUs away from those who use them, and its restart by anybody would
bring the node back.

The annotation is also the memory of who cordoned: a node that a person cordoned has none, and is left alone.
Where Node Feature Discovery taints unhealthy nodes (``features``), this only sets the condition.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from gpu_health.judge import State
from gpu_health.report import stamp
from gpu_health.settings import Settings

ANNOTATION = "causeway/gpu-health"
CONDITION = "GpuHealthy"


class ClusterError(Exception):
    """What kubectl said."""


def tell(settings: Settings, state: State, now: int) -> None:
    """Bring the node in line with the verdict. Raises ClusterError.

    If the cluster knows that the machine is healthy, nothing is read; for an unhealthy one, the node is read
    each time, as an upgrade or a person may have uncordoned it meanwhile.
    """
    if settings.node is None or not settings.kubeconfig.exists():
        return
    if state.told and not state.sick:
        return
    node = json.loads(_kubectl(settings, "get", "node", settings.node, "--output", "json"))
    cordoned = bool(node["spec"].get("unschedulable"))
    reason = node["metadata"].get("annotations", {}).get(ANNOTATION)
    change = _change(state.sick and settings.cordon, cordoned, reason, state.why)
    if change:
        _kubectl(settings, "patch", "node", settings.node, "--type", "merge", "--patch", json.dumps(change))
    if not state.told or (settings.cordon and reason != state.why):
        _condition(settings, state, now)


def takes_pods(settings: Settings) -> bool:
    """Whether the machine is a node, and not cordoned. Raises ClusterError."""
    if settings.node is None or not settings.kubeconfig.exists():
        return False
    node = json.loads(_kubectl(settings, "get", "node", settings.node, "--output", "json"))
    return not node["spec"].get("unschedulable")


def _change(sick: bool, cordoned: bool, reason: str | None, why: str) -> dict[str, Any] | None:
    """What differs, as a merge patch."""
    ours = reason is not None
    if sick and (ours or not cordoned) and (not cordoned or reason != why):
        return {"metadata": {"annotations": {ANNOTATION: why}}, "spec": {"unschedulable": True}}
    if not sick and ours:
        return {"metadata": {"annotations": {ANNOTATION: None}}, "spec": {"unschedulable": None}}
    return None


def _condition(settings: Settings, state: State, now: int) -> None:
    at = stamp(now)
    condition = {
        "type": CONDITION,
        "status": "False" if state.sick else "True",
        "reason": "GPUsUnhealthy" if state.sick else "GPUsHealthy",
        "message": state.why or "no fault found",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    patch = json.dumps({"status": {"conditions": [condition]}})
    what = ["patch", "node", str(settings.node), "--subresource", "status", "--type", "strategic"]
    _kubectl(settings, *what, "--patch", patch)


def _kubectl(settings: Settings, *arguments: str) -> str:
    as_kubelet = ["--kubeconfig", str(settings.kubeconfig), "--request-timeout", "20s"]
    command = [settings.kubectl, *as_kubelet, *arguments]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ClusterError(str(problem)) from None
    if ran.returncode != 0:
        raise ClusterError(ran.stderr.strip() or f"kubectl ended with {ran.returncode}")
    return ran.stdout
