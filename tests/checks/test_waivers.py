"""Waivers: what they cover, and that none outlives its reason."""

from __future__ import annotations

import pytest
from checks.breaking import Findings

SPOT = """\
pools:
  cpu: {market: {kind: spot, max_price: 0.5}}
"""


@pytest.mark.parametrize("path", ["", "pools", "pools.cpu", "pools.cpu.market.max_price"])
def test_a_waiver_covers_its_path_and_what_is_below(findings: Findings, path: str) -> None:
    where = f"path: {path}, " if path else ""
    waiver = f"waivers: [{{code: POOL027, {where}reason: our contract}}]\n"
    [problem] = findings.of(SPOT + waiver)
    assert (problem.code, problem.waived, problem.fatal) == ("POOL027", "our contract", False)


@pytest.mark.parametrize("path", ["pools.cp", "pools.cpu.mark", "pools.gpu", "pools.cpu.market.max_price.x"])
def test_a_waiver_for_another_path_covers_nothing_and_is_told(findings: Findings, path: str) -> None:
    waiver = f"waivers: [{{code: POOL027, path: {path}, reason: our contract}}]\n"
    found = findings.of(SPOT + waiver)
    assert [(problem.code, problem.waived) for problem in found] == [("POOL027", ""), ("WAIV002", "")]


def test_a_waiver_for_a_list_covers_its_entries(findings: Findings) -> None:
    spec = """\
pools: {cpu: {instance_types: [{type: m6i.2xlarge, weight: 2}, m6i.4xlarge]}}
waivers: [{code: POOL016, path: pools.cpu.instance_types, reason: both alike}]
"""
    [problem] = findings.of(spec)
    assert problem.waived == "both alike"


def test_one_reason_is_enough_and_both_waivers_are_of_use(findings: Findings) -> None:
    waivers = """\
waivers:
  - {code: POOL027, path: pools.cpu, reason: first reason}
  - {code: POOL027, reason: second reason}
"""
    [problem] = findings.of(SPOT + waivers)
    assert problem.waived == "first reason"


def test_what_can_not_be_waived_stays_an_error(findings: Findings) -> None:
    spec = """\
pools: {cpu: {image: cpus}}
waivers: [{code: POOL004, reason: we make it later on}]
"""
    found = {problem.code: problem for problem in findings.of(spec)}
    assert set(found) == {"POOL004", "WAIV003"}
    assert found["POOL004"].fatal
