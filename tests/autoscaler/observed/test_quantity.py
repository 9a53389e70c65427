"""Quantities are read exactly, in every form."""

from __future__ import annotations

from contextlib import suppress
from decimal import ROUND_UP, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from infra.autoscaler.observed import quantity

LARGEST = 2**63 - 1
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+1", 1),
        ("1E3", 1000),
        ("1e+3", 1000),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1e400", LARGEST),
        ("-1e400", -LARGEST),
        ("1e-400", Fraction(1, 10**9)),
        ("0e999999999999", 0),
        ("1e999999999999", LARGEST),
        (4, 4),
        (0.5, Fraction(1, 2)),
        (1e21, LARGEST),
    ],
)
def test_04_forms_beyond_those_of_the_property_are_read_exactly(text: str | float, value: Fraction) -> None:
    assert quantity.whole(text) == value


@pytest.mark.parametrize(
    "text",
    ["", ".", "-", "m", "Gi", "1 ", " 1", "1 Gi", "1gi", "1K", "1mi", "0.1am", "1i", "1.1.M", "1+1M", "1e",
     "1e1.5", "1e3Ki", "--1", "0x10", "1_000", "\u0661", "1\n", "NaN", "inf",
     "1" * 201, True, None, float("nan")],
)  # fmt: skip
def test_04_what_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="quantity") as caught:
        quantity.whole(text)
    assert len(str(caught.value)) < 120


@settings(deadline=None)
@given(
    some.from_regex(r"\A[+-]?(0|[1-9][0-9]{0,24})(\.[0-9]{0,24})?\Z"),
    some.sampled_from([*DECIMAL, *BINARY]) | some.integers(-40, 40).map(lambda n: f"e{n}"),
)
def test_04_forms_agree_with_decimal_arithmetic(number: str, suffix: str) -> None:
    with localcontext(prec=200):
        value = Decimal(number)
        if suffix in BINARY:
            value *= 2 ** BINARY[suffix]
        else:
            value = value.scaleb(DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:]))
        value = value.quantize(Decimal("1e-9"), rounding=ROUND_UP)
    value = max(Decimal(-LARGEST), min(Decimal(LARGEST), value))
    assert quantity.whole(number + suffix) == Fraction(value)


@settings(deadline=None)
@given(some.text(max_size=300))
def test_04_no_text_raises_anything_else(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(quantity.whole(text), Fraction)


@settings(deadline=None)
@given(
    some.integers(0, 10**15),
    some.sampled_from(["n", "u", "m", "", "Ki"]),
    some.sampled_from(["cpu", "memory"]),
)
def test_04_asking_rounds_up_and_offering_down(number: int, suffix: str, name: str) -> None:
    text = f"{number}{suffix}"
    exact = quantity.whole(text) * (1000 if name == "cpu" else 1)
    assert exact <= quantity.asked(name, text) < exact + 1
    assert exact - 1 < quantity.offered(name, text) <= exact


def test_04_units_are_millicores_for_cpu_alone() -> None:
    assert quantity.asked("cpu", "1") == 1000
    assert quantity.asked("cpu", "100n") == 1
    assert quantity.asked("nvidia.com/gpu", "1") == 1
    assert quantity.asked("memory", "128974848000m") == 128974848


def test_04_less_than_nothing_can_be_neither_asked_nor_offered() -> None:
    with pytest.raises(ValueError, match="-1"):
        quantity.asked("cpu", "-1")
    assert quantity.offered("cpu", "-1") == 0
