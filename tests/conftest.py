"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

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
