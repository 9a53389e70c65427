"""For the tests of the autoscaler's outer parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from autoscaler.embedded import EmbeddedAws, running


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedAws]:
    with running() as place:
        yield place


@pytest.fixture
def aws(embedded: EmbeddedAws) -> EmbeddedAws:
    """An embedded AWS with nothing in it."""
    embedded.reset()
    return embedded
