"""A spec as written → a Spec, or every problem with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import SpecError
from infra.load import ENVIRONMENT_LENGTH, load

GOOD = """\
version: 1
name: good
domain: good.internal
sites:
  us-west-2: {kind: aws}
"""


def problems(path: Path, text: str) -> list[tuple[str, str, int]]:
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load(path)
    return [
        (problem.code, problem.path, problem.position.line if problem.position else 0)
        for problem in caught.value.problems
    ]


def test_scalars_arrive_as_written(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        GOOD + 'tags: {country: no, code: 022, version: 1.20, odd: "${a} %{b} \\"q\\" ü\\n2"}\n'
        "waivers: [{code: NAME005, reason: only what is read is tested here}]\n",
        encoding="utf-8",
    )
    assert load(path).spec.tags == {
        "country": "no",
        "code": "022",
        "version": "1.20",
        "odd": '${a} %{b} "q" ü\n2',
    }


def test_every_structural_problem_is_named_at_once(tmp_path: Path) -> None:
    text = """\
version: 1
name: Bad Name
domain: x.internal
sites:
  us-west-2:
    kind: aws
    primry: true
    cidr: 10.0.0.1/16
  foo: {kind: azure}
pools:
  gpu:
    regions: {us-west-2: {min: 022, max: no}}
    instance_types: p9.xlarge
    imag: x
"""
    assert problems(tmp_path / "x.yaml", text) == [
        ("SPEC003", "name", 2),
        ("SPEC002", "sites.us-west-2.primry", 7),
        ("SPEC003", "sites.us-west-2.cidr", 8),
        ("SPEC003", "sites.foo.kind", 9),
        ("SPEC003", "pools.gpu.regions.us-west-2.min", 12),
        ("SPEC003", "pools.gpu.regions.us-west-2.max", 12),
        ("SPEC003", "pools.gpu.instance_types", 13),
        ("POOL004", "pools.gpu.image", 14),
        ("SPEC002", "pools.gpu.imag", 14),
    ]


def test_structure_and_rules_in_one_go(tmp_path: Path) -> None:
    text = GOOD.replace("{kind: aws}", "{kind: aws, zones: [us-west-2z], nta: one}")
    assert problems(tmp_path / "x.yaml", text) == [
        ("SITE004", "sites.us-west-2.zones[0]", 5),
        ("SPEC002", "sites.us-west-2.nta", 5),
    ]


def test_a_key_that_is_written_twice_hides_nothing(tmp_path: Path) -> None:
    sites = "sites:\n  us-west-2: {cidr: 10.0.0.0/33}\n  us-east-9: {kind: aws}\n"
    assert problems(tmp_path / "x.yaml", GOOD + sites) == [
        ("SITE002", "sites", 4),
        ("SPEC005", "sites", 6),
        ("SPEC005", "sites.us-west-2", 7),
        ("SPEC003", "sites.us-west-2.cidr", 7),
        ("SITE003", "sites.us-east-9", 8),
    ]


def test_extends_merges_mappings_and_replaces_the_rest(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        GOOD + "owner: base\ntags: {a: base, b: base, c: base}\nautoscaler: {idle: 20m}\n"
    )
    path = tmp_path / "x.yaml"
    path.write_text("extends: base.yaml\nname: over\ntags: {b: over, c: null}\nautoscaler: null\n")
    loaded = load(path)
    assert loaded.spec.name == "over"
    assert loaded.spec.owner == "base"
    assert loaded.spec.tags == {"a": "base", "b": "over"}
    assert loaded.spec.autoscaler.idle == 600
    assert loaded.position(("tags", "a")).file.endswith("base.yaml")
    assert loaded.position(("tags", "b")).line == 3


def test_problems_in_a_base_point_at_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD + "supernet: 10.0.0.0/33\n")
    path = tmp_path / "x.yaml"
    path.write_text("extends: base.yaml\n")
    with pytest.raises(SpecError) as caught:
        load(path)
    [problem] = caught.value.problems
    assert problem.position is not None
    assert problem.position.file.endswith("base.yaml")
    assert problem.position.line == 6


@pytest.mark.parametrize(
    "name",
    [
        "Lab", "my_lab", "2lab", "lab-", "a--b", "internal", "internal-lab", "sg", "sg-lab", "sthree",
        "sthree-lab", "amzn-s3-demo", "e" * (ENVIRONMENT_LENGTH + 1),
    ],
)  # fmt: skip
def test_an_environment_is_named_as_aws_takes_it(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path / f"{name}.yaml", GOOD + "owner: [x]\n") == [
        ("NAME009", "", 1),
        ("SPEC003", "owner", 6),
    ]


def test_a_base_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "Our_Base.yaml").write_text(GOOD)
    child = tmp_path / "lab.yaml"
    child.write_text("extends: Our_Base.yaml\nname: lab\n")
    assert load(child).spec.name == "lab"
