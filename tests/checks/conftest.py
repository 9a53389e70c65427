"""Each test that asks for a ``case`` runs with every one of them; for a ``waivable``, with those that may be
waived."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.breaking import Findings, cases

from infra.checks import CHECKS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    every_case = cases()
    waivable = [case for case in every_case if CHECKS[case.code].waivable]
    for name, every in (("case", every_case), ("waivable", waivable)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, every, ids=[f"{case.code}-{case.at or 'file'}" for case in every])


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(tmp_path)
