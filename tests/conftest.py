"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

import itertools
import os
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


def pytest_configure(config: pytest.Config) -> None:
    """Terraform's AWS provider lives for seconds, a fifth of which it would collect garbage. The limit has it
    collect as ever where it grows."""
    os.environ.setdefault("GOGC", "400")
    os.environ.setdefault("GOMEMLIMIT", "600MiB")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell's background job is started with it ignored, and so would be all that tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# The network lab's tests share what takes long to make: a VM with the whole world of a spec in it; and a
# place for laptops, which asks less of a kernel.
_TOGETHER = {"tests/network/test_laptops_": "laptops", "tests/network/": "lab"}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The lab's daemons keep time by seconds, so what runs beside them stands back."""
    if _group(item.nodeid) == item.nodeid and "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(10 - os.nice(0))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take minutes come first, the longest before the others, and each with a short one behind
    it: workers are given tests in pairs, and the longest ones should run side by side while the others do
    the rest."""
    minutes = {
        item: mark.kwargs.get("minutes", 2) for item in items if (mark := item.get_closest_marker("heavy"))
    }
    heavy = sorted(minutes, key=lambda item: -minutes[item])
    rest = [item for item in items if item not in minutes]
    pairs = itertools.chain.from_iterable(zip(heavy, rest, strict=False))
    items[:] = [*pairs, *heavy[len(rest) :], *rest[len(heavy) :]]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests go to workers one by one, in our order; a group's all to one.

    xdist's own ``--dist loadgroup`` puts the group into a test's name, which pytest 9 does not read again.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's has no types
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def _group(nodeid: str) -> str:
    """What runs on one worker: a group, or a test alone."""
    return next((group for start, group in _TOGETHER.items() if nodeid.startswith(start)), nodeid)
