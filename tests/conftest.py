"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks` and `tasks`


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden folders that differ; their tests fail once more, so that the change is seen",
    )


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell's background job is started with it ignored, and so would be all that tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that mostly wait for minutes come first, each with a short one behind it: workers are given tests
    in pairs, and the longest ones should run side by side while the others do the rest."""
    heavy = [item for item in items if item.get_closest_marker("heavy")]
    rest = [item for item in items if not item.get_closest_marker("heavy")]
    pairs = itertools.chain.from_iterable(zip(heavy, rest, strict=False))
    items[:] = [*pairs, *heavy[len(rest) :], *rest[len(heavy) :]]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests go to workers one by one, in our order; the network lab's all to one: they share a machine.

    xdist's own ``--dist loadgroup`` puts the group into a test's name, which pytest 9 does not read again.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's has no types
        def _split_scope(self, nodeid: str) -> str:
            return "network" if nodeid.startswith("tests/network/") else nodeid

    config.option.loadscopereorder = False
    return Scheduling(config, log)
