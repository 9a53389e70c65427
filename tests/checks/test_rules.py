"""Every rule: a spec that breaks it, and just it, with the exact place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checks.breaking import Case, Findings, cases
from golden_folders import assert_text

from infra.checks import CHECKS
from infra.load import load
from infra.render import strongswan
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[2] / "environments"
MESSAGES = Path(__file__).parents[1] / "messages" / "checks.txt"


def test_a_good_spec_has_no_finding(findings: Findings) -> None:
    assert findings.of("") == []


@pytest.mark.parametrize("name", ["minimal", "local", "machines", "research"])
def test_what_we_ship_has_no_finding(name: str) -> None:
    assert load(ENVIRONMENTS / f"{name}.yaml").problems == ()


def test_the_example_of_launch_configurations_is_for_an_old_account_alone() -> None:
    loaded = load(ENVIRONMENTS / "examples" / "launch-configuration.yaml")
    assert [(one.code, one.fatal) for one in loaded.problems] == [("POOL043", False)]
    cluster, _ = resolve(loaded.spec, Lock(), "legacy")
    assert {pool.name: pool.launch for pool in cluster.pools} == {
        "cpu": "template",
        "cpu-legacy": "configuration",
    }


def test_every_rule_has_a_spec_that_breaks_it() -> None:
    rules = {code for code, check in CHECKS.items() if check.function is not None}
    assert rules - {case.code for case in cases()} == set()


def test_one_cause_gives_one_finding_at_its_place(findings: Findings, case: Case) -> None:
    problems = findings.of(case.spec)
    assert [(problem.code, problem.path) for problem in problems] == [(case.code, case.at)]
    [problem] = problems
    assert problem.level is CHECKS[case.code].level
    assert problem.hint, "a finding says what would mend it"
    assert problem.position is not None
    if case.line is not None:
        assert Path(problem.position.file).name == "case.yaml"
        assert problem.position.line == case.line


def test_messages(findings: Findings, request: pytest.FixtureRequest) -> None:
    """What each of them says, for a reader."""
    problems = (problem for case in cases() for problem in findings.of(case.spec))
    lines = [str(replace(problem, position=None)).replace(str(findings.folder), ".") for problem in problems]
    assert_text(MESSAGES, "\n".join(lines) + "\n", rewrite=request.config.getoption("--update-golden"))


def test_with_a_waiver_the_spec_still_means_something(findings: Findings, waivable: Case) -> None:
    """Whatever may be waived leaves a spec that resolves, and whose gateways have files."""
    spec = waivable.spec + f"\nwaivers: [{{code: {waivable.code}, reason: accepted here}}]\n"
    [problem] = findings.of(spec)
    assert problem.waived == "accepted here"
    assert not problem.fatal
    loaded = load(findings.folder / "case.yaml")
    cluster, _ = resolve(loaded.spec, Lock(), "case")
    strongswan.render(cluster)
