"""Selectors mean what Kubernetes means by them."""

from __future__ import annotations

import pytest

from infra.autoscaler.observed.selectors import holds, integer, matches, reaches, words
from infra.autoscaler.observed.snapshot import PodTerm, Requirement, Selector


@pytest.mark.parametrize(
    ("operator", "values", "found", "answer"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a", "b"), "c", False),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "", False),
        ("Gt", ("3",), "4", True),
        ("Gt", ("3",), "3", False),
        ("Gt", ("3",), None, False),
        ("Gt", ("3",), "four", False),
        ("Gt", ("x",), "4", False),
        ("Gt", ("3", "4"), "5", False),
        ("Lt", ("3",), "2", True),
        ("Lt", ("-3",), "-4", True),
        ("Lt", ("3",), "1" * 40, False),
        ("Like", ("a",), "a", False),
        ("", (), None, False),
    ],
)
def test_07_operators(operator: str, values: tuple[str, ...], found: str | None, answer: bool) -> None:
    requirement = Requirement("k", operator, values)
    assert holds(requirement, found) is answer
    assert words(requirement)


def test_07_none_selects_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, {"a": "b"})
    assert matches(Selector(), {})
    both = Selector((("a", "b"),), (Requirement("c", "Exists"),))
    assert matches(both, {"a": "b", "c": ""})
    assert not matches(both, {"a": "b"})
    assert not matches(both, {"c": ""})


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1_0", "0x1", "1.0", "9223372036854775808", "\u0661"])
def test_07_numbers_are_those_of_the_api(text: str) -> None:
    assert integer(text) is None


def test_07_the_largest_number() -> None:
    assert integer("9223372036854775807") == 2**63 - 1
    assert integer("-9223372036854775808") == -(2**63)
    assert integer("+7") == 7


def test_07_namespaces_of_a_term_by_name_and_by_label() -> None:
    labels = {"user-ada": {"team": "vision"}, "user-bob": {"team": "speech"}}
    assert reaches(PodTerm("t", None, ("user-ada",)), "user-ada", labels)
    assert not reaches(PodTerm("t", None, ("user-ada",)), "user-bob", labels)
    assert reaches(PodTerm("t", None, ("*",)), "anywhere", labels)
    vision = PodTerm("t", None, ("user-bob",), Selector((("team", "vision"),)))
    assert [each for each in [*labels, "new"] if reaches(vision, each, labels)] == ["user-ada", "user-bob"]
