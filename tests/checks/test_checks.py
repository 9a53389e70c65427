"""Rules across fields: each code with a spec that breaks it, and where it points."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks import CHECKS
from infra.errors import SpecError
from infra.load import load

GOOD = """\
version: 1
name: good
domain: good.internal
sites:
  lab:
    kind: physical
    cidr: 10.200.0.0/24
    nodes:
      one: {address: 10.200.0.1, cpus: 8, memory: 16 GiB}
      two: {address: 10.200.0.2, cpus: 8, memory: 16 GiB}
  us-west-2: {kind: aws, primary: true, cidr: 10.1.0.0/16}
  us-east-1: {kind: aws, cidr: 10.2.0.0/16}
images:
  cpu: {}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {min: 0, max: 4}}}
"""

BAD = {
    "NET001": ("10.2.0.0/16", "10.1.128.0/20", "sites.us-east-1.cidr"),
    "NET002": (
        "cidr: 10.2.0.0/16",
        "cidr: 10.2.0.0/16, explicit_subnets: {us-east-1a: {public: 10.2.0.0/24, private: 10.2.0.0/20}}",
        "sites.us-east-1.explicit_subnets.us-east-1a.public",
    ),
    "NET003": (
        "cidr: 10.2.0.0/16",
        "cidr: 10.2.0.0/16, explicit_subnets: {us-east-1a: {private: 10.3.0.0/20}}",
        "sites.us-east-1.explicit_subnets.us-east-1a.private",
    ),
    "NET004": ("10.2.0.0/16", "10.2.0.0/29", "sites.us-east-1.cidr"),
    "NET005": ("address: 10.200.0.2", "address: 10.200.1.2", "sites.lab.nodes.two.address"),
    "NET006": ("address: 10.200.0.2", "address: 10.200.0.1", "sites.lab.nodes.two.address"),
    "POOL001": ("m6i.xlarge", "m6i.xxlarge", "pools.cpu.instance_types[0]"),
    "POOL002": ("min: 0", "min: 5", "pools.cpu.regions.us-west-2.min"),
    "POOL003": ("regions: {us-west-2", "regions: {us-west-1", "pools.cpu.regions.us-west-1"),
    "POOL004": ("image: cpu", "image: gpu", "pools.cpu.image"),
    "POOL005": ("m6i.xlarge", "m7g.xlarge", "pools.cpu.instance_types[0]"),
    "POOL006": ("m6i.xlarge", "g5.xlarge", "pools.cpu.image"),
    "SITE001": ("{kind: aws, cidr", "{kind: aws, primary: true, cidr", "sites.us-east-1.primary"),
    "SITE002": ("primary: true, ", "", "sites"),
    "SITE003": ("us-east-1:", "us-esat-1:", "sites.us-esat-1"),
    "SITE004": ("cidr: 10.2.0.0/16", "cidr: 10.2.0.0/16, zones: [us-east-1q]", "sites.us-east-1.zones[0]"),
}


def found(path: Path, text: str) -> list[tuple[str, str]]:
    path.write_text(text)
    try:
        problems = load(path).problems
    except SpecError as error:
        problems = tuple(error.problems)
    return [(problem.code, problem.path) for problem in problems]


def test_the_good_spec_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path / "x.yaml", GOOD) == []


def test_every_check_has_a_spec_that_breaks_it() -> None:
    assert set(BAD) == set(CHECKS)


@pytest.mark.parametrize("code", sorted(CHECKS))
def test_one_cause_one_finding(tmp_path: Path, code: str) -> None:
    old, new, path = BAD[code]
    assert old in GOOD
    assert found(tmp_path / "x.yaml", GOOD.replace(old, new, 1)) == [(code, path)]


def test_what_terraform_lets_through_is_all_named_before_anything_is_rendered(tmp_path: Path) -> None:
    text = GOOD.replace(
        "cidr: 10.2.0.0/16",
        "cidr: 10.2.0.0/16, zones: [us-east-1a, us-east-1z], explicit_subnets: {"
        "us-east-1a: {public: 10.2.0.0/24, private: 10.2.0.0/20}, us-east-1b: {public: 10.9.0.0/24},"
        " us-east-1c: {public: 10.2.255.0/29}}",
    )
    text = text.replace("m6i.xlarge", "p9.xlarge").replace("min: 0", "min: 9")
    assert sorted(found(tmp_path / "x.yaml", text)) == [
        ("NET002", "sites.us-east-1.explicit_subnets.us-east-1a.public"),
        ("NET003", "sites.us-east-1.explicit_subnets.us-east-1b.public"),
        ("NET004", "sites.us-east-1.explicit_subnets.us-east-1c.public"),
        ("POOL001", "pools.cpu.instance_types[0]"),
        ("POOL002", "pools.cpu.regions.us-west-2.min"),
        ("SITE004", "sites.us-east-1.zones[1]"),
    ]


def test_a_message_says_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace("m6i.xlarge", "p9.xlarge"))
    with pytest.raises(
        SpecError, match=r"x.yaml:16: pools.cpu.instance_types\[0\]: p9.xlarge is no EC2"
    ) as caught:
        load(path)
    assert caught.value.problems[0].hint == "did you mean p3.2xlarge?"


def test_a_waiver_keeps_the_finding_visible(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    waiver = "waivers: [{code: POOL002, path: pools.cpu, reason: the bounds are being moved}]\n"
    path.write_text(GOOD.replace("min: 0", "min: 5") + waiver)
    [problem] = load(path).problems
    assert problem.waived == "the bounds are being moved"
    assert not problem.fatal
