"""Values → Spec: what pydantic finds wrong, in the spec's own words and places."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from infra.errors import Path, Problem, dotted
from infra.load.source import Value
from infra.nearest import nearest
from infra.spec import Spec


def validate(root: Value) -> tuple[Spec | None, list[Problem]]:
    """The spec, and everything that is wrong with its structure.

    Where the only faults can be left out (an unknown key, a bad value of a field with a default), the
    spec without them comes back too, so that the checks can name the rest of what is wrong in one go.
    """
    try:
        return Spec.model_validate(root.plain()), []
    except ValidationError as error:
        faults = [_Fault(root, found) for found in error.errors(include_url=False)]
    problems = [fault.problem() for fault in faults]
    reduced = root.plain()
    for fault in faults:
        if not _drop(reduced, fault.path, fault.kind):
            return None, problems
    try:
        return Spec.model_validate(reduced), problems
    except ValidationError:
        return None, problems


def _drop(data: Any, path: Path, kind: str) -> bool:
    if kind == "missing" or not path or not isinstance(path[-1], str):
        return False
    for part in path[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(data, dict) and data.pop(path[-1], None) is not None


class _Fault:
    """One of pydantic's errors, put on its place in the file."""

    def __init__(self, root: Value, error: Any) -> None:
        self.kind: str = error["type"]
        self.input = error.get("input")
        self.context: dict[str, Any] = error.get("ctx", {})
        self.text: str = error["msg"]
        self.path = _path(root, error["loc"], self.kind)
        self.position = root.at(self.path).position

    def problem(self) -> Problem:
        code, message, hint = self._words()
        return Problem(code, dotted(self.path), message, position=self.position, hint=hint)

    def _words(self) -> tuple[str, str, str]:
        """Code, message and hint."""
        match self.kind:
            case "extra_forbidden":
                known = sorted(_keys_at(self.path[:-1]))
                near = nearest(str(self.path[-1]), known)
                hint = f"did you mean {near}?" if near else f"known here: {', '.join(known)}"
                return "SPEC002", "unknown key", hint
            case "missing":
                return "SPEC004", "missing; it must be given", ""
            case "union_tag_not_found":
                return "SPEC004", "says nothing of its kind", "add 'kind: aws' or 'kind: physical'"
            case "union_tag_invalid":
                expected = [tag.strip(" '") for tag in self.context["expected_tags"].split(",")]
                return self._choice(self.context["tag"], expected)
            case "literal_error" | "enum":
                return self._choice(str(self.input), _choices(self.context["expected"]))
            case "greater_than_equal":
                return "SPEC003", f"{self.input} is too small; the least is {self.context['ge']}", ""
            case "greater_than":
                return "SPEC003", f"{self.input} is too small; it must be above {self.context['gt']}", ""
            case "less_than_equal":
                return "SPEC003", f"{self.input} is too large; the most is {self.context['le']}", ""
            case "dict_type" | "model_type" | "model_attributes_type":
                return "SPEC003", f"{_shown(self.input)} stands where a mapping of keys is expected", ""
            case "tuple_type" | "list_type":
                return "SPEC003", f"{_shown(self.input)} stands where a list is expected", ""
            case "string_type":
                return "SPEC003", f"{_shown(self.input)} stands where one value is expected", ""
            case "too_short":
                return "SPEC003", f"needs at least {_entries(self.context['min_length'])}", ""
            case "too_long":
                return "SPEC003", f"may have at most {_entries(self.context['max_length'])}", ""
            case "string_too_short":
                return "SPEC003", f"needs at least {self.context['min_length']} characters", ""
            case "string_too_long":
                return "SPEC003", f"may have at most {self.context['max_length']} characters", ""
            case "date_from_datetime_parsing" | "date_parsing" | "date_type":
                return "SPEC003", f"{self.input!r} is not a date such as 2027-03-31", ""
            case _:
                return "SPEC003", self.text, ""

    def _choice(self, value: str, expected: Sequence[str]) -> tuple[str, str, str]:
        near = nearest(value, expected)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(expected)}"
        return "SPEC003", f"{value!r} is not known here", hint


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count} entries"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return repr(value)


def _choices(expected: str) -> list[str]:
    return [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]


def _path(root: Value, location: tuple[str | int, ...], kind: str) -> Path:
    """Pydantic's location as a path in the file: without the tags of unions and the marks of keys."""
    path: list[str | int] = []
    value = root
    for index, part in enumerate(location):
        child = value.child(part)
        if child is not None:
            path.append(part)
            value = child
        elif index == len(location) - 1 and kind == "missing":
            path.append(part)
    if kind == "union_tag_invalid":
        path.append("kind")
    return tuple(path)


def _keys_at(path: Path) -> set[str]:
    """The keys that the language knows at a path."""
    found: list[Any] = [Spec]
    for part in path:
        found = [child for annotation in found for child in _step(annotation, part)]
    return {key for annotation in found for model in _models(annotation) for key in model.model_fields}


def _bare(annotation: Any) -> Iterator[Any]:
    """The annotation without Annotated, aliases and unions around it."""
    if get_origin(annotation) is Annotated:
        yield from _bare(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            yield from _bare(choice)
    else:
        yield annotation


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    for bare in _bare(annotation):
        if isinstance(bare, type) and issubclass(bare, BaseModel):
            yield bare


def _step(annotation: Any, part: str | int) -> Iterator[Any]:
    for bare in _bare(annotation):
        origin, arguments = get_origin(bare), get_args(bare)
        if origin is dict:
            yield arguments[1]
        elif origin in (tuple, list):
            yield arguments[0]
        elif isinstance(bare, type) and issubclass(bare, BaseModel) and part in bare.model_fields:
            yield bare.model_fields[str(part)].annotation
