"""For all tests. That this file stands here also lets them import what lies beside it (`strategies`)."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import integration
import kube_tools
import pytest
from localaws import plugin

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks` and `tasks`


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden folders that differ; their tests fail once more, so that the change is seen",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Embedded AWSs show faults and record calls. And Terraform's AWS provider lives for seconds, a fifth of
    which it would collect garbage: it collects none before its memory grows to the limit."""
    os.environ.update(plugin.NAMED)
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
# and are one group, by the beginnings of their names: a VM with the whole world of a spec in it, and a place
# for laptops, which asks less of a kernel; a real API server; a cluster that takes runs, one with queues.
_TOGETHER: Final = {
    "tests/network/test_laptops_": "laptops",
    "tests/network/": "lab",
    "tests/client/test_run_in_cluster.py": "runs in a cluster",
    "tests/client/test_packages_in_cluster.py": "runs in a cluster",
    "tests/client/test_board.py": "runs in a cluster",
    "tests/client/test_notebook.py": "runs in a cluster",
    "tests/client/test_tracking_in_cluster.py": "runs in a cluster",
    "tests/client/test_run_in_a_queue.py": "runs in a queue",
    "tests/client/test_sweep_in_cluster.py": "runs in a queue",
    "tests/drive/kubernetes/": "API server of the drive",
    "tests/autoscaler/kube/test_kube_": "API server of the autoscaler",
}
_ALONE: Final = "tests/test_shipped_specs.py"
"""A file whose tests share nothing, and take minutes each."""

_FIRST: Final = "tests/test_minimal_lifecycle.py"
"""The longest of `make test`: what waits for AWS's provider goes on beside the others."""

MOST_QUARANTINED: Final = 10


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark integration tests, before ``-m`` chooses, and let those in quarantine fail."""
    for item in items:
        if integration.area_of(item.nodeid):
            item.add_marker(pytest.mark.integration)
    quarantined = [(item, mark) for item in items if (mark := item.get_closest_marker("quarantine"))]
    if (count := len({item.nodeid.partition("[")[0] for item, _ in quarantined})) > MOST_QUARANTINED:
        raise pytest.UsageError(f"{count} tests in quarantine, at most {MOST_QUARANTINED} may be")
    for item, mark in quarantined:
        reason = f"{integration.QUARANTINE} since {mark.kwargs['since']}: {mark.kwargs['reason']}"
        item.add_marker(pytest.mark.xfail(strict=False, reason=reason))
    items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups go to workers one by one, in the order in which they were collected.

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
    return next((group for start, group in _TOGETHER.items() if file.startswith(start)), file)
