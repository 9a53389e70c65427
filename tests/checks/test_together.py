"""Faults that meet: rules never trip over what another one refuses."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from checks.breaking import CASES, Case, Findings, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.checks import CHECKS

CASE = st.sampled_from(cases())


@given(CASE, CASE)
@settings(deadline=None)
def test_two_faults_at_once_are_told_and_nothing_breaks(first: Case, second: Case) -> None:
    with TemporaryDirectory() as folder:
        base = Path(folder) / "base.yaml"
        base.write_text(f"{first.spec}\nextends: {CASES / 'good.yaml'}\n")
        problems = Findings(Path(folder)).of(f"version: 1\nextends: {base}\n{second.spec}")
    assert problems
    assert {problem.code for problem in problems} <= set(CHECKS)
    assert all(problem.position is not None for problem in problems)
