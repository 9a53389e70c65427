"""How wide text will be, near enough, without a font: layout has no browser to ask.

Widths are those of a wide system font (DejaVu Sans Condensed, DejaVu Sans Mono), so that text which fits here
fits everywhere.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

_MONO: Final = 0.605
_NARROW: Final = frozenset("iljIftr.,:;'|!()[]/ -·")
_BROAD: Final = frozenset("mwMW@%—…")

_LOOKS: Final = {
    "title": (22, False),
    "big": (18, False),
    "name": (13, False),
    "body": (12.5, False),
    "dim": (12, False),
    "small": (11, False),
    "cap": (10, False),
    "tag": (9, False),
    "mono": (12, True),
    "mono-big": (14, True),
    "mono-small": (11, True),
    "mono-tiny": (10, True),
}
"""The font size of each look, and whether all its letters are alike; as in ``diagram.css``."""


@cache
def _em(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if unicodedata.combining(letter):
        return 0
    if letter in _NARROW:
        return 0.36
    if letter in _BROAD:
        return 0.92
    if letter.isupper():
        return 0.68
    return 0.585


def width(text: str, look: str) -> float:
    """The room a line of text takes, in pixels."""
    size, mono = _LOOKS[look]
    if mono and text.isascii():
        return len(text) * _MONO * size
    return sum(max(_em(letter), _MONO if mono else 0) for letter in text) * size


def cut(text: str, look: str, room: float) -> str:
    """The text, with an ellipsis where it would not fit."""
    if width(text, look) <= room:
        return text
    room -= width("…", look)
    kept = ""
    for letter in text:
        room -= width(letter, look)
        if room < 0:
            break
        kept += letter
    return kept.rstrip() + "…"
