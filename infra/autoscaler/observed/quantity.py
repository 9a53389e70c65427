"""Kubernetes quantities: ``500m``, ``1.5Gi``, ``1e3``, ``100n``. Exact, without floats.

The grammar, and the rounding of more than nine decimals (up, away from zero), are those of apimachinery's
``pkg/api/resource/quantity.go``. Values of 2^63 and more count as 2^63 - 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

Quantity: TypeAlias = str | int | float
"""A quantity in JSON: numbers are allowed where a schema says ``int-or-string``."""

NANO: Final = 10**9
_MILLI: Final = 10**6
_LARGEST: Final = (2**63 - 1) * NANO
_LONGEST: Final = 200
"""Maximum length: longer texts are refused before any arithmetic with large numbers."""

_GRAMMAR: Final = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?", re.ASCII
)
_DECIMAL: Final[Mapping[str, int]] = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final[Mapping[str, int]] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def whole(text: Quantity) -> Fraction:
    """The value of a quantity. Raises ValueError, which says what is wrong with it."""
    return Fraction(nano(text), NANO)


def asked(name: str, text: Quantity) -> int:
    """A pod's request, rounded up: ``cpu`` in millicores, all else in its own unit.

    Raises ValueError for a negative request.
    """
    if (amount := nano(text)) < 0:
        raise ValueError(f"{name}: {_shown(text)} is less than nothing")
    return up(name, amount)


def offered(name: str, text: Quantity) -> int:
    """A node's offer, rounded down, in the same units; at least 0."""
    return max(0, nano(text) // (_MILLI if name == "cpu" else NANO))


def up(name: str, amount: int) -> int:
    """An amount in billionths, rounded up to the unit of its resource."""
    return -(-amount // (_MILLI if name == "cpu" else NANO))


@lru_cache(maxsize=8192, typed=True)
def nano(text: Quantity) -> int:
    """A quantity in billionths, its maximum precision. Raises ValueError, which says what is wrong with
    it."""
    if isinstance(text, bool) or not isinstance(text, str):
        text = repr(text)
    found = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or not (found[2] or found[3]):
        raise ValueError(f"{_shown(text)} is not a quantity, like 500m, 2 or 1.5Gi")
    sign, before, after, suffix = found[1], found[2], found[3] or "", found[4] or ""
    digits = int(before + after)
    if digits == 0:
        return 0
    if suffix in _BINARY:
        amount = _scaled(digits << _BINARY[suffix], 9 - len(after))
    elif suffix in _DECIMAL:
        amount = _scaled(digits, 9 - len(after) + _DECIMAL[suffix])
    else:
        amount = _scaled(digits, 9 - len(after) + _exponent(suffix[1:]))
    amount = min(amount, _LARGEST)
    return -amount if sign == "-" else amount


def _scaled(digits: int, power: int) -> int:
    """``digits * 10**power``, rounded up to an integer. Both are limited by now."""
    if power >= 0:
        return digits * int(10**power)
    return -(-digits // int(10**-power))


def _exponent(text: str) -> int:
    """Outside of these bounds every number is the largest, or the smallest."""
    return max(-2 * _LONGEST, min(2 * _LONGEST, int(text)))


def _shown(text: Quantity) -> str:
    said = str(text)
    return repr(said if len(said) <= 40 else said[:40] + "…")
