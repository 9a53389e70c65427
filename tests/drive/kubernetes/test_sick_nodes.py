"""Which nodes have sick GPUs: told by taint, condition or annotation, whichever the cluster has."""

from __future__ import annotations

from typing import Any

import pytest

from infra.drive.kubernetes import status


def with_condition(kind: str, how: str, message: str = "") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": how, "message": message}]}}


def with_taint(key: str) -> dict[str, Any]:
    return {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        pytest.param({}, "", id="nothing is said"),
        pytest.param(with_condition("GpuSick", "False", "no fault found"), "", id="well"),
        pytest.param(with_condition("GpuSick", "Unknown"), "", id="not known"),
        pytest.param(with_condition("GpuHealthy", "True", "no fault found"), "", id="well, says the machine"),
        pytest.param(with_taint("nvidia.com/gpu"), "", id="another taint"),
        pytest.param({"spec": {"unschedulable": True}}, "", id="cordoned by a person"),
        pytest.param(with_taint("causeway.dev/gpu-sick"), "GPU", id="the taint came first"),
        pytest.param(with_condition("GpuSick", "True", "GPU 0: Xid 79"), "GPU 0: Xid 79", id="the condition"),
        pytest.param(
            with_taint("causeway.dev/gpu-sick") | with_condition("GpuSick", "True", "GPU 0: Xid 79"),
            "GPU 0: Xid 79",
            id="both",
        ),
        pytest.param(with_condition("GpuHealthy", "False"), "GPU", id="the machine's own condition"),
        pytest.param(
            {"metadata": {"annotations": {"causeway/gpu-health": "GPU 1"}}}, "GPU 1", id="cordoned for it"
        ),
    ],
)
def test_sick(node: dict[str, Any], why: str) -> None:
    assert status.sick(node) == why
