"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks` and `tasks`


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden folders that differ; their tests fail once more, so that the change is seen",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that mostly wait for minutes come first, each with a short one behind it: workers are given tests
    in pairs, and the longest ones should run side by side while the others do the rest."""
    heavy = [item for item in items if item.get_closest_marker("heavy")]
    rest = [item for item in items if not item.get_closest_marker("heavy")]
    pairs = itertools.chain.from_iterable(zip(heavy, rest, strict=False))
    items[:] = [*pairs, *heavy[len(rest) :], *rest[len(heavy) :]]
