"""Classes of work: which cards each is given, newest first, and which one is meant where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.load import load
from infra.model.kubernetes import PriorityClass
from infra.resolve.priorities import priority_classes

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites: {us-west-2: {kind: aws}}
"""


@pytest.fixture
def classes(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, PriorityClass]:
    path = tmp_path / "lab.yaml"
    path.write_text(SPEC + request.param)
    return {each.name: each for each in priority_classes(load(path).spec)}


@pytest.mark.parametrize("classes", [""], indirect=True)
def test_a_spec_without_classes_has_three(classes: dict[str, PriorityClass]) -> None:
    assert [*classes] == ["low", "normal", "high"]
    assert classes["low"].gpu_classes == ("old",)
    assert classes["normal"].gpu_classes == ("standard", "old")
    assert classes["high"].gpu_classes == ("new", "standard", "old")
    assert [each.name for each in classes.values() if each.default] == ["normal"]
    assert [each.name for each in classes.values() if each.yields] == ["low"]
    assert not classes["low"].preempts


STATED = """\
kubernetes:
  priority_classes:
    urgent: {value: 50, at_least: new}
    middle: {value: 10, at_least: standard, gpu_class: standard}
"""


@pytest.mark.parametrize("classes", [STATED], indirect=True)
def test_classes_of_the_spec_stand_alone_the_lowest_first(classes: dict[str, PriorityClass]) -> None:
    assert [*classes] == ["middle", "urgent"]
    assert classes["urgent"].gpu_classes == ("new",)
    assert classes["middle"].gpu_classes == ("standard",)
    # None has the value that Kubernetes gives work without a class.
    assert not any(each.default or each.yields for each in classes.values())


TIED = "kubernetes: {priority_classes: {b: {value: 0}, a: {value: 0}}}"


@pytest.mark.parametrize("classes", [TIED], indirect=True)
def test_kubernetes_takes_one_default(classes: dict[str, PriorityClass]) -> None:
    assert [each.name for each in classes.values() if each.default] == ["a"]
