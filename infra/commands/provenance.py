"""Each value of a spec and its origin: a file and line, or the default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.errors import Path, Position, dotted
from infra.load import Loaded
from infra.schema import Spec
from infra.schema.formatting import hints, item_of, part_of, plain, spelled


@dataclass(frozen=True, slots=True)
class Origin:
    """A value and its position; without position if it is a default."""

    path: Path
    value: str
    """As written; a default in the spec's notation: ``7d``, not 604800."""
    position: Position | None

    def to_json(self) -> dict[str, object]:
        """``{"path", "value", "file", "line"}``; file and line are null for a default."""
        return {
            "path": dotted(self.path),
            "value": self.value,
            "file": self.position.file if self.position else None,
            "line": self.position.line if self.position else None,
        }


def origins(loaded: Loaded) -> list[Origin]:
    """Every value of the spec after inheritance and defaults, by its path."""
    written = {path: Origin(path, value, position) for path, value, position in loaded.origins()}
    above = {path[:length] for path in written for length in range(len(path))}
    defaults = {
        path: Origin(path, value, None)
        for path, value in _leaves(Spec, plain(loaded.spec), ())
        # A shorthand (`market: spot`) sets the whole part below it.
        if path not in above and not any(path[:length] in written for length in range(1, len(path) + 1))
    }
    return [one for _, one in sorted({**defaults, **written}.items(), key=lambda item: _order(item[0]))]


def _leaves(annotation: Any, value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Mapping) and value:
        part = part_of(annotation, value.get("kind"))
        for key, below in value.items():
            inner = hints(part)[key] if part else item_of(annotation, dict)
            yield from _leaves(inner, below, (*path, key))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for index, below in enumerate(value):
            yield from _leaves(item_of(annotation, tuple), below, (*path, index))
    elif value is not None and value not in ({}, [], ()):
        yield path, spelled(annotation, value)


def _order(path: Path) -> list[tuple[int, int, str]]:
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in path]
