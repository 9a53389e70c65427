"""Marks with their signs of change: what the cards and the wires are drawn with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.render.topology.items import ACTIONS, Item
from infra.render.topology.measure import cut, width
from infra.render.topology.shapes import Anchor, Badge, Mark, Rect, Text


@dataclass(frozen=True, slots=True)
class Pen:
    """Knows every element and what happens to it."""

    items: Mapping[str, Item]
    changes: Mapping[str, str]

    def mark(
        self,
        name: str,
        look: str,
        rect: Rect,
        texts: Iterable[Text] = (),
        more: Iterable[Rect] = (),
        *,
        tab: int = -1,
        badges: tuple[Badge, ...] | None = None,
    ) -> Mark:
        """An element on its rectangle. A change shows as an outline and a badge on its left edge."""
        action = self.changes.get(name, "")
        if badges is None:
            badges = self.badge(name, rect.x, rect.y + rect.h // 2)
        return Mark(
            name,
            f"{look} {action}".strip(),
            (rect, *more),
            tuple(each for each in texts if each.text),
            badges,
            tab,
            self.label(name),
        )

    def badge(self, name: str, x: int, y: int) -> tuple[Badge, ...]:
        """The sign of what happens to the element itself."""
        action = self.changes.get(name)
        return (Badge(x, y, 16, action, ACTIONS[action][0]),) if action else ()

    def tally(self, name: str, right: int, y: int) -> tuple[Badge, ...]:
        """Signs of all that happens in a place, for a box that shows no more of it."""
        prefix = f"{name}/"
        numbers = Counter(
            action for key, action in self.changes.items() if key == name or key.startswith(prefix)
        )
        found = []
        for action in reversed(tuple(ACTIONS)):
            if numbers[action]:
                text = f"{ACTIONS[action][0]}{numbers[action]}"
                wide = 12 + round(width(text, "small"))
                found.append(Badge(right - wide // 2, y, wide, action, text))
                right -= wide + 3
        return tuple(found)

    def label(self, name: str) -> str:
        """The element in one line."""
        item = self.items.get(name)
        if item is None:
            return name
        action = self.changes.get(name)
        note = f", {item.note}" if item.note else ""
        end = f", to be {ACTIONS[action][1]}" if action else ""
        return f"{item.kind} {item.title}{note}{end}"


def text(x: int, y: int, words: str, look: str, room: float, anchor: Anchor = "start") -> Text:
    """A line of text, cut to its room."""
    return Text(x, y, cut(words, look.split(" ")[0], room), look, anchor)
