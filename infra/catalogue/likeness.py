"""Suggests an instance type for a name that does not exist.

First for a typo (``P3-2xlarge``, ``mi6.large``, ``m6i.xlrge``), then by the form of the name: the same
family letters, then the closest size, generation and options. Pure and deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from math import log2
from typing import Final

from infra.nearest import nearest

_SHAPE = re.compile(r"(?P<letters>[a-z]+)-?(?P<generation>\d+)(?P<options>[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)")
_UNITS: Final = {"nano": 1 / 16, "micro": 1 / 8, "small": 1 / 4, "medium": 1 / 2, "large": 1.0, "xlarge": 2.0}
"""The named sizes in units of ``large``; ``<n>xlarge`` is n times ``xlarge``."""


def likely_type(name: str, known: Sequence[str], *, unlikely: Callable[[str], bool]) -> str:
    """The known type closest to ``name``; the empty string if none is close.

    ``unlikely`` returns whether a type is suggested only for names with its generation.
    """
    word = _tidy(name)
    if word in known:
        return word
    swapped = [one for one in known if len(one) == len(word) and sorted(one) == sorted(word)]
    if len(swapped) == 1:
        return swapped[0]
    wanted = _SHAPE.fullmatch(word)
    if wanted is None:
        return nearest(word, known)
    family, _, size = word.partition(".")
    alike = [one for one in known if one.startswith(f"{family}.")] or [
        one for one in known if (shape := _SHAPE.fullmatch(one)) and shape["letters"] == wanted["letters"]
    ]
    if _units(size) is None:  # the size is misspelt
        near = nearest(size, dict.fromkeys(one.partition(".")[2] for one in alike))
        alike = [one for one in alike if near and one.endswith(f".{near}")]
        wanted = _SHAPE.fullmatch(f"{family}.{near}") or wanted
    if not alike:
        return nearest(word, known)
    return min(alike, key=lambda one: (_distance(wanted, one, unlikely), -_alikeness(word, one), one))


def _tidy(name: str) -> str:
    """``P3_2xl`` → ``p3.2xlarge``."""
    word = re.sub(r"xl$", "xlarge", name.strip().lower().replace("_", ".").replace(" ", ""))
    return word if "." in word else re.sub(r"-(?=[^-]*$)", ".", word)


def _distance(wanted: re.Match[str], name: str, unlikely: Callable[[str], bool]) -> float:
    """The distance of a known type from the wanted form. One is a size twice as large, or two generations."""
    shape = _SHAPE.fullmatch(name)
    if shape is None:
        return 8.0
    units, asked = _units(shape["size"]), _units(wanted["size"])
    apart = 4.0  # bare metal has no position in the order of sizes
    if units and asked:
        apart = abs(log2(units / asked))
    elif shape["size"] == wanted["size"]:
        apart = 0.0
    # A generation that is far off says little about which one was meant.
    generations = abs(int(shape["generation"]) - int(wanted["generation"]))
    apart += 0.5 * min(generations, 2) + 0.01 * generations
    if shape["options"] != wanted["options"]:
        if wanted["options"]:
            apart += 0.6 + 0.2 * len({*shape["options"]} ^ {*wanted["options"]})
        else:  # no option usually means Intel, and never another architecture
            apart += 0.9 if "g" in shape["options"] else {"i": 0.2, "a": 0.3}.get(shape["options"], 0.4)
    if generations and unlikely(name):
        apart += 1.5
    return apart


def _alikeness(word: str, name: str) -> float:
    return SequenceMatcher(None, word, name).ratio()


def _units(size: str) -> float | None:
    """A size in units of ``large``, or None if it is not in the order of sizes."""
    if size in _UNITS:
        return _UNITS[size]
    times = re.fullmatch(r"(\d+)xlarge", size)
    return int(times[1]) * _UNITS["xlarge"] if times and int(times[1]) else None
