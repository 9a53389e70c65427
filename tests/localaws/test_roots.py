"""What no shipped spec has: applied, found as it was asked for, gone without a trace.

What they have, `tests/test_shipped_specs.py` applies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from infra.drive import localaws as process
from localaws.place import Place

ROOTS = ("storage", "vpn", "interconnect", "nodes")
"""Those that take longest go first."""

TOGETHER = 4
"""Roots that are applied at a time. They mostly sleep: Terraform's provider waits before it first asks."""


def test_applied_then_no_changes_then_nothing_left(settle: Callable[..., Place]) -> None:
    """One test for all of them, so that they run beside each other."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        wrong = dict(zip(ROOTS, pool.map(lambda root: what_is_wrong(settle(root)), ROOTS), strict=True))
    assert "\n\n".join(f"{root}: {text}" for root, text in wrong.items() if text) == ""


def what_is_wrong(place: Place) -> str:
    """What did not go as it should in the life of a root; empty if nothing."""
    for step in (place.apply, place.plan):
        if (done := step()).code != 0:
            return f"{step.__name__}: {done}"
    outputs = json.loads((place.folder / "terraform.tfstate").read_text())["outputs"]
    expected = {name: outputs[name]["value"] for name in outputs if name.startswith("expected_")}
    for name, value in expected.items():
        told = outputs[name.removeprefix("expected_")]["value"]
        if told != value:
            return f"{name}: {value}, and got {told}"
    if (done := place.destroy()).code != 0:
        return f"destroy: {done}"
    left = process.inventory(place.server)
    return f"left: {left}" if left else ""
