"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import kube_tools
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks` and `tasks`


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden folders that differ; their tests fail once more, so that the change is seen",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Terraform's AWS provider lives for seconds, a fifth of which it would collect garbage: it collects none
    before its memory grows to the limit."""
    os.environ.setdefault("GOGC", "off")
    os.environ.setdefault("GOMEMLIMIT", "1GiB")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell's background job is started with it ignored, and so would be all that tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return kube_tools.header()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """What was not tested, as the last thing: a row a reason, with the number of tests."""
    yield
    reasons = Counter(report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    if reasons:
        terminalreporter.section("skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5}  {reason.removeprefix('Skipped: ')}")


# Tests that share what takes long to start run on one worker: the beginnings of their names, the group, and
# the minutes that it takes. A VM with the whole world of a spec in it, and a place for laptops, which asks
# less of a kernel; a real API server; a cluster that is begun, grown and ended from test to test.
_TOGETHER = {
    "tests/network/test_algorithms.py": ("algorithms", 0),
    "tests/network/test_laptops_": ("laptops", 3),
    "tests/network/": ("lab", 8),
    "tests/commands/test_cluster_commands.py": ("cluster commands", 3),
    "tests/drive/kubernetes/": ("API server of the drive", 2),
    "tests/autoscaler/kube/test_kube_": ("API server of the autoscaler", 2),
    "tests/render/kubernetes/test_policies_live.py": ("API server with rules", 1),
    "tests/render/kubernetes/test_features_live.py": ("API server with features", 1),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The lab's daemons keep time by seconds, so what runs beside them stands back."""
    if _group(item.nodeid) not in ("laptops", "lab") and "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(10 - os.nice(0))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take minutes come first, the longest before the others, and each with a short one behind
    it: workers are given tests in pairs, and the longest ones should run side by side while the others do
    the rest."""
    minutes = {
        item: mark.kwargs.get("minutes", 2) for item in items if (mark := item.get_closest_marker("heavy"))
    }
    for group, whole in _TOGETHER.values():
        first = next((item for item in items if _group(item.nodeid) == group), None)
        if first and whole > 1:
            minutes[first] = whole
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
    return next((group for start, (group, _) in _TOGETHER.items() if nodeid.startswith(start)), nodeid)
