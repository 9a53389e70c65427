"""Each test that asks for a ``case`` runs with every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.breaking import Findings, cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        every = cases()
        metafunc.parametrize("case", every, ids=[f"{case.code}-{case.at or 'file'}" for case in every])


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(tmp_path)
