"""Converts YAML text to values with their positions.

Scalars remain text; the spec's types interpret them (so YAML 1.1's ``no`` and ``022`` are not converted),
except null: an empty value, ``~`` and ``null`` have no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml

from infra.errors import Path, Position, Problem, dotted
from infra.load import grammar

TWICE: Final = "SPEC005"
"""A duplicate key: the only error here after which the rest of the file can be used."""

MOST_VALUES = 2_000_000
"""Maximum number of values including those repeated by aliases; a file above it is refused as a mistake or
an attack."""

_TAGS = {
    yaml.ScalarNode: "tag:yaml.org,2002:str",
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}
_Base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _Loader(_Base):  # type: ignore[misc]
    """PyYAML's base loader, without resolving the tag of each value, as every scalar is text."""

    def resolve(self, kind: type[yaml.Node], _value: object, _implicit: object) -> str:
        return _TAGS[kind]

    def descend_resolver(self, *_: object) -> None:
        """Tags are not resolved."""

    def ascend_resolver(self) -> None:
        """Tags are not resolved."""


_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))

Content: TypeAlias = "dict[str, Value] | list[Value] | str | None"


@dataclass(slots=True)
class Value:
    """A value and its position: the key's in a mapping, the item's in a list."""

    content: Content
    position: Position

    def at(self, path: Path) -> Value:
        """The value at ``path``, or the nearest one above it."""
        value = self
        for part in path:
            child = value.child(part)
            if child is None:
                break
            value = child
        return value

    def child(self, part: str | int) -> Value | None:
        """The value under a key or an index, if there is one."""
        if isinstance(self.content, dict) and isinstance(part, str):
            return self.content.get(part)
        if isinstance(self.content, list) and isinstance(part, int) and part < len(self.content):
            return self.content[part]
        return None

    def plain(self) -> Any:
        """The value without positions: dicts, lists, text and None."""
        content = self.content
        if isinstance(content, dict):
            return {key: value.plain() for key, value in content.items()}
        if isinstance(content, list):
            return [value.plain() for value in content]
        return content

    def leaves(self, path: Path = ()) -> Iterator[tuple[Path, Value]]:
        """Every scalar and every empty collection with its path, in the order of the file."""
        if isinstance(self.content, dict) and self.content:
            for key, value in self.content.items():
                yield from value.leaves((*path, key))
        elif isinstance(self.content, list) and self.content:
            for index, value in enumerate(self.content):
                yield from value.leaves((*path, index))
        else:
            yield path, self


def replaced(root: Value, path: Path, value: Value | None) -> Value:
    """A copy with ``value`` at ``path``, or without it if None; unchanged if the path does not exist."""
    if not path:
        return value or root
    content, step = root.content, path[0]
    child = root.child(step)
    if child is None and len(path) > 1:
        return root
    inner = value if len(path) == 1 else replaced(child or root, path[1:], value)
    if isinstance(content, dict) and isinstance(step, str):
        others = {key: one for key, one in content.items() if key != step}
        if inner is None:
            return Value(others, root.position)
        return Value({**content, step: inner} if step in content else {**others, step: inner}, root.position)
    if isinstance(content, list) and isinstance(step, int) and child is not None:
        kept = [] if inner is None else [inner]
        return Value([*content[:step], *kept, *content[step + 1 :]], root.position)
    return root


@dataclass(slots=True)
class _Reader:
    """Converts the nodes of one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    open_nodes: set[int] = field(default_factory=set)

    def place(self, mark: yaml.Mark) -> Position:
        return Position(self.file, mark.line + 1, mark.column + 1)

    def wrong(self, code: str, path: Path, message: str, mark: yaml.Mark, hint: str = "") -> None:
        self.problems.append(Problem(code, dotted(path), message, position=self.place(mark), hint=hint))

    def read(self, node: yaml.Node, path: Path, mark: yaml.Mark) -> Value:
        position = self.place(mark)
        self.count += 1
        if id(node) in self.open_nodes:
            self.wrong("SPEC001", path, "an alias that holds itself", mark)
            return Value(None, position)
        if self.count > MOST_VALUES:
            if self.count == MOST_VALUES + 1:
                self.wrong(
                    "SPEC001", path, f"more than {MOST_VALUES:,} values, aliases counted in full", mark
                )
            return Value(None, position)
        if node.tag not in _PLAIN_TAGS:
            self.wrong("SPEC001", path, f"the tag {node.tag} has no meaning here", mark)
        if isinstance(node, yaml.ScalarNode):
            if not node.style and node.value in _NULLS:
                return Value(None, position)
            return Value(node.value, position)
        self.open_nodes.add(id(node))
        content: Content
        if isinstance(node, yaml.SequenceNode):
            content = [
                self.read(item, (*path, index), item.start_mark) for index, item in enumerate(node.value)
            ]
        else:
            content = self.mapping(node, path)
        self.open_nodes.discard(id(node))
        return Value(content, position)

    def mapping(self, node: yaml.Node, path: Path) -> dict[str, Value]:
        content: dict[str, Value] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.wrong("SPEC001", path, "a key must be a plain word", key.start_mark)
                continue
            name = key.value
            if name == "<<" and not key.style:
                self.wrong(
                    "SPEC001", path, "merge keys (<<) are not part of YAML 1.2", key.start_mark,
                    "use 'extends', or an alias for a whole value",
                )  # fmt: skip
            elif name in content:
                again = self.read(item, (*path, name), key.start_mark)
                content[name] = self.both((*path, name), content[name], again)
            else:
                content[name] = self.read(item, (*path, name), key.start_mark)
        return content

    def both(self, path: Path, first: Value, again: Value) -> Value:
        """The value of a duplicate key: mappings are merged, anything else is unknown."""
        message = f"duplicate key; first in line {first.position.line}"
        self.problems.append(Problem(TWICE, dotted(path), message, position=again.position))
        if not isinstance(first.content, dict) or not isinstance(again.content, dict):
            return first
        content = {**again.content, **first.content}
        for key in first.content.keys() & again.content.keys():
            content[key] = self.both((*path, key), first.content[key], again.content[key])
        return Value(content, first.position)


def parse(text: str, file: str) -> tuple[Value, list[Problem]]:
    """The values of a YAML file, and problems of its format (SPEC001, SPEC005).

    ``file`` is the name used in positions. A file without content is an empty mapping.
    """
    start = Position(file, 1)
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        return Value({}, start), [grammar.problem(error, text, file)]
    if node is None:
        return Value({}, start), []
    reader = _Reader(file)
    try:
        root = reader.read(node, (), node.start_mark)
    except RecursionError:
        return Value({}, start), [Problem("SPEC001", "", "nested too deeply", position=start)]
    if root.content is None:
        root = Value({}, start)
    if not isinstance(root.content, dict) and not reader.problems:
        reader.problems.append(
            Problem("SPEC001", "", "a spec is a mapping of keys to values", position=root.position)
        )
    return root, reader.problems
