"""What a picture is made of. Lengths are in CSS pixels at natural size, y downwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Anchor: TypeAlias = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; ``look`` is its CSS class."""

    x: int
    y: int
    w: int
    h: int
    look: str
    radius: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text on its baseline."""

    x: int
    y: int
    text: str
    look: str
    anchor: Anchor = "start"


@dataclass(frozen=True, slots=True)
class Badge:
    """The sign of a change: a glyph, and how many where it stands for several."""

    x: int
    y: int
    w: int
    action: str
    text: str

    @property
    def left(self) -> int:
        """Where the pill begins; ``x`` is its middle."""
        return self.x - self.w // 2

    @property
    def top(self) -> int:
        """Where the pill begins; ``y`` is its middle."""
        return self.y - 8


@dataclass(frozen=True, slots=True)
class Mark:
    """Something to point at: an element of the cluster with its shapes."""

    id: str
    look: str
    rects: tuple[Rect, ...] = ()
    texts: tuple[Text, ...] = ()
    badges: tuple[Badge, ...] = ()
    tab: int = -1
    """0 for what the Tab key stops at; the rest is reached by arrow keys."""
    label: str = ""
    """The element in one line, for screen readers and for the SVG's own hover."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A line between places."""

    id: str
    look: str
    d: str
    """An SVG path."""
    texts: tuple[Text, ...] = ()
    badges: tuple[Badge, ...] = ()
    label: str = ""
    tab: int = 0


@dataclass(frozen=True, slots=True)
class Sign:
    """A badge and its meaning."""

    badges: tuple[Badge, ...]
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, back to front: wires, marks, captions."""

    width: int
    top: int
    """Where the drawing proper begins, below the SVG's own title."""
    height: int
    title: tuple[Text, ...]
    wires: tuple[Wire, ...]
    marks: tuple[Mark, ...]
    captions: tuple[Text, ...]
    key: tuple[Sign, ...]
    """The legend's signs of change."""
    samples: tuple[Wire, ...]
    """The legend's kinds of lines."""

    @property
    def named(self) -> tuple[Wire, ...]:
        """Lines with words on them."""
        return tuple(wire for wire in self.wires if wire.texts)

    @property
    def body(self) -> int:
        """Height without the title."""
        return self.height - self.top


def route(points: Iterable[tuple[int, int]], radius: int = 7) -> str:
    """A path through corners, each rounded, for lines that run up, down and across only."""
    stops: list[tuple[int, int]] = []
    for point in points:
        if not stops or point != stops[-1]:
            stops.append(point)
    parts = [f"M{stops[0][0]} {stops[0][1]}"]
    for before, corner, after in zip(stops, stops[1:], stops[2:], strict=False):
        near, far = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{near[0]} {near[1]}Q{corner[0]} {corner[1]} {far[0]} {far[1]}")
    parts.append(f"L{stops[-1][0]} {stops[-1][1]}")
    return "".join(parts)


def _towards(start: tuple[int, int], end: tuple[int, int], most: int) -> tuple[int, int]:
    """A step from ``start`` to ``end``, no further than half-way."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    step = min(most, max(abs(dx), abs(dy)) // 2)
    return start[0] + step * _sign(dx), start[1] + step * _sign(dy)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
