"""Faults that meet: rules never trip over what another one refuses."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from checks.breaking import CASES, Case, Findings, cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from infra.checks import CHECKS

CURES = (
    {"SITE001", "SITE002"},  # one region is made primary, the other is not any more
    {"ACC021", "ACC022"},  # a public node, and addresses that are few
    {"POOL036", "POOL048"},  # a reservation where it does no good, and a Capacity Block that lacks one
)
"""Faults that make a sound spec together."""
CASE = st.sampled_from(cases())


@given(CASE, CASE)
@settings(deadline=None)
def test_two_faults_at_once_are_told_and_nothing_breaks(first: Case, second: Case) -> None:
    assume({first.code, second.code} not in CURES)
    with TemporaryDirectory() as folder:
        base = Path(folder) / "base.yaml"
        base.write_text(f"{first.spec}\nextends: {CASES / 'good.yaml'}\n")
        problems = Findings(Path(folder)).of(f"version: 1\nextends: {base}\n{second.spec}")
    assert problems
    assert {problem.code for problem in problems} <= set(CHECKS)
    assert all(problem.position is not None for problem in problems)
