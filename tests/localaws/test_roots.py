"""Each resource type that we render: applied, found as it was asked for, gone without a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from localaws.place import Life

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("root", ["network", "vpn", "interconnect", "nodes", "services", "storage"])
def test_applied_then_no_changes_then_nothing_left(lives: Mapping[str, Future[Life]], root: str) -> None:
    life = lives[root].result()
    assert life.apply.code == 0, life.apply
    assert life.plan.code == 0, life.plan
    assert "No changes." in life.plan.text
    assert life.destroy.code == 0, life.destroy
    assert life.left == {}
    if root == "vpn":
        tunnels_are_as_asked_for(json.loads(life.outputs.text)["tunnels"]["value"])


def tunnels_are_as_asked_for(tunnels: dict[str, Any]) -> None:
    assert len(set(tunnels["outside"])) == 2
    assert all(address.startswith(("198.18.", "198.19.")) for address in tunnels["outside"])
    assert tunnels["inside"] == ["169.254.20.1", "169.254.20.2", "169.254.20.5", "169.254.20.6"]
    assert tunnels["asn"] == "64620"
    assert tunnels["key"] == "first_tunnels_key_0123456789"
