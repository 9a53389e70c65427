"""What no shipped spec has: applied, found as it was asked for, gone without a trace.

What they have, `tests/test_shipped_specs.py` applies.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from infra.drive import localaws as process
from localaws.place import Place

pytestmark = pytest.mark.timeout(1200)


def test_applied_then_no_changes_then_nothing_left(settle: Callable[..., Place]) -> None:
    place = settle("everything")
    assert (done := place.terraform("init")).code == 0, done
    for step in (place.apply, place.plan):
        assert (done := step()).code == 0, done
    told = json.loads((place.folder / "terraform.tfstate").read_text())["outputs"]["vpn"]["value"]
    expected = {name: value for name, value in told.items() if name.startswith("expected_")}
    assert expected
    assert {name: told[name.removeprefix("expected_")] for name in expected} == expected
    assert (done := place.destroy()).code == 0, done
    assert process.inventory(place.server) == {}
