"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import kube_tools
import pytest
import pytest_timeout

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


# A file's tests run on one worker, one after the other: what they share is set up once. Some files share more
# and are one group: the beginnings of their names, the group, and the minutes that it takes. A VM with the
# whole world of a spec in it, and a place for laptops, which asks less of a kernel; a real API server; a
# cluster that takes runs.
_TOGETHER = {
    "tests/network/test_algorithms.py": ("algorithms", 0),
    "tests/network/test_laptops_": ("laptops", 3),
    "tests/network/": ("lab", 8),
    "tests/client/test_run_in_cluster.py": ("runs in a cluster", 3),
    "tests/client/test_packages_in_cluster.py": ("runs in a cluster", 3),
    "tests/client/test_board.py": ("runs in a cluster", 3),
    "tests/drive/kubernetes/": ("API server of the drive", 2),
    "tests/autoscaler/kube/test_kube_": ("API server of the autoscaler", 2),
}
_ALONE = "tests/test_shipped_specs.py"
"""A file whose tests share nothing, and take minutes each."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The lab's daemons keep time by seconds, so what runs beside them stands back. And
    pytest-timeout has one timer for all attempts at a test: without its own, a second could hang for ever."""
    if getattr(item, "execution_count", 1) > 1:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=pytest_timeout._get_item_settings(item))
    if not item.nodeid.startswith("tests/network/") and "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(10 - os.nice(0))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups that take minutes come first, the longest before the others: none is left at the end."""
    minutes: dict[str, float] = dict.fromkeys((_group(item.nodeid) for item in items), 0)
    minutes.update((group, whole) for group, whole in _TOGETHER.values() if group in minutes)
    for item in items:
        if mark := item.get_closest_marker("heavy"):
            group = _group(item.nodeid)
            minutes[group] = max(minutes[group], mark.kwargs.get("minutes", 2))
    place = {group: number for number, group in enumerate(sorted(minutes, key=lambda group: -minutes[group]))}
    items.sort(key=lambda item: place[_group(item.nodeid)])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups go to workers one by one, in our order.

    xdist's own ``--dist loadgroup`` puts the group into a test's name, which pytest 9 does not read again.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's has no types
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def _group(nodeid: str) -> str:
    """What runs on one worker: a group of files, a file, or a test."""
    if nodeid.startswith(_ALONE):
        return nodeid
    file = nodeid.partition("::")[0]
    return next((group for start, (group, _) in _TOGETHER.items() if file.startswith(start)), file)
