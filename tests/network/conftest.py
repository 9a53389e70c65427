"""The lab's machine and labs on it, for all tests in this folder.

One machine serves all of them: they are one xdist group (`--dist loadgroup`), so one worker runs them in
turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from network.lab import Lab
from network.machine import Machine, Unavailable
from network.machine import machine as made_machine


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in ours:
        item.add_marker(pytest.mark.xdist_group("network"))
    for first in ours[:1]:  # takes the others with it
        first.add_marker("heavy")


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    try:
        made = made_machine()
    except Unavailable as fault:
        pytest.skip(str(fault))
    yield made
    made.close()


@pytest.fixture(scope="module")
def lab(machine: Machine) -> Iterator[Lab]:
    """A lab for the tests of one file, which draw it in fixtures of their own."""
    made = Lab(machine)
    yield made
    made.close()
