"""The YAML of job files: that of YAML 1.2, with the line of each value, and text as it is written.

PyYAML reads YAML 1.1, in which ``on`` is true, ``0123`` is 83 and ``12:00:00`` is 43200. Here booleans are
``true`` and ``false`` alone, integers are decimal, and nothing is a date (YAML 1.2.2, 10.3: the core schema).
Of that not even ``1.50`` is a number where a field is text: a tag of an image, the value of a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

Keys: TypeAlias = tuple[str, ...]
"""Location of a value: ``("gpus", "model")``, ``("run", "0")``."""

NULL, BOOL, _INT, _FLOAT, _TEXT, _MERGE, _MAP, _SEQ = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge", "map", "seq")
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012  the library's own; those of YAML 1.1 would be inherited


for _tag, _pattern, _first in (
    (NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (BOOL, r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    (_INT, r"[-+]?[0-9]+", [*"-+0123456789"]),
    (_FLOAT, r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    (_FLOAT, r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", [*"-+."]),
    (_MERGE, r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


@dataclass(frozen=True)
class Fault:
    """Something that YAML allows, but a job file does not."""

    keys: Keys
    line: int
    what: str
    hint: str = ""


@dataclass
class Values:
    """The values of a text, and all problems with their syntax."""

    value: Any = None
    lines: dict[Keys, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


IsText: TypeAlias = Callable[[Keys, str], bool]
"""Whether the value at these keys, with this tag, is kept as text."""


def parse(text: str, is_text: IsText, keys: Keys = ()) -> Values:
    """Parse a text. ``keys``: where it belongs in a job. Raises YAMLError if it is not YAML."""
    found = Values()
    try:
        root = compose(text)
        if root is not None:
            found.value = _Reader(found, is_text).value(root, keys, frozenset())
    except RecursionError:
        raise yaml.YAMLError("values are nested too deeply") from None
    return found


def compose(text: str) -> yaml.Node | None:
    """Compose the nodes of a text; None if it is empty. Raises YAMLError."""
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node


class _Reader:
    def __init__(self, found: Values, is_text: IsText) -> None:
        self._found = found
        self._is_text = is_text

    def value(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> Any:
        """``around``: the nodes that contain this one."""
        if id(node) in around:
            return self._fault(node, keys, "contains itself")
        around |= {id(node)}
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, keys)
        if node.tag not in (_MAP, _SEQ):
            return self._fault(node, keys, f"{node.tag} is not supported here")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys, around)
        return [self._entry(each, (*keys, str(at)), around) for at, each in enumerate(node.value)]

    def _entry(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> Any:
        self._found.lines[keys] = node.start_mark.line + 1
        return self.value(node, keys, around)

    def _mapping(self, node: yaml.MappingNode, keys: Keys, around: frozenset[int]) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                for each in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                    found = self.value(each, keys, around)
                    if isinstance(found, dict):
                        inherited |= found
                    else:
                        self._fault(each, keys, "<< takes a mapping of fields")
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in self._pairs(node, keys):
            line = key.start_mark.line + 1
            if key.value in own:
                hint = f"it is set in line {lines[key.value]}, too"
                self._found.faults.append(Fault((*keys, key.value), line, "set twice", hint))
            lines[key.value] = self._found.lines[(*keys, key.value)] = line
            own[key.value] = self.value(value, (*keys, key.value), around)
        return {**inherited, **own}

    def _pairs(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, keys, "the name of a field is not text")
            elif key.tag != _MERGE:
                yield key, value

    def _scalar(self, node: yaml.ScalarNode, keys: Keys) -> Any:
        text: str = node.value
        if node.tag not in (NULL, BOOL, _INT, _FLOAT, _TEXT, _MERGE):
            return self._fault(node, keys, f"{node.tag} is not supported here")
        if node.tag in (_TEXT, _MERGE) or self._is_text(keys, node.tag):
            return text
        try:
            if node.tag == _INT:
                return int(text)
            if node.tag == _FLOAT:
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return text  # validation of the field reports that it is not a number
        return None if node.tag == NULL else text.lower() == "true"

    def _fault(self, node: yaml.Node, keys: Keys, what: str) -> None:
        self._found.faults.append(Fault(keys, node.start_mark.line + 1, what))
