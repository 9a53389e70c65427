"""Values → Spec: what pydantic finds wrong, in the spec's own words and places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from infra.errors import Path, Problem, dotted
from infra.load.source import Value
from infra.nearest import nearest
from infra.spec import Spec
from infra.spec.words import hints, item_of, kinds, models, part_of, spelled

_BOUNDS: Final = {
    "greater_than_equal": ("ge", "small; the least is"),
    "greater_than": ("gt", "small; it must be above"),
    "less_than_equal": ("le", "large; the most is"),
}
_LENGTHS: Final = {
    "too_short": ("min_length", "needs at least"),
    "too_long": ("max_length", "may have at most"),
    "string_too_short": ("min_length", "needs at least"),
    "string_too_long": ("max_length", "may have at most"),
}
_EXPECTED: Final = {
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "tuple_type": "a list",
    "list_type": "a list",
}
"""Pydantic's kinds of error → what should stand there. For all others it is one value."""


def validate(root: Value) -> tuple[Spec | None, list[Problem], tuple[Path, ...]]:
    """The spec, everything that is wrong with its structure, and the paths that the spec lacks for it.

    Where the only faults can be left out (an unknown key, a bad value of a field with a default), the
    spec without them comes back too, so that the checks can name the rest of what is wrong in one go.
    """
    data = root.plain()
    try:
        return Spec.model_validate(data), [], ()
    except ValidationError as error:
        faults = [_Fault(root, found) for found in error.errors(include_url=False)]
    causes = _causes(faults)
    problems = [fault.problem() for fault in causes]
    for fault in causes:
        if not _drop(data, fault):
            return None, problems, ()
    try:
        return Spec.model_validate(data), problems, tuple(fault.path for fault in causes)
    except ValidationError:
        return None, problems, ()


def _drop(data: Any, fault: _Fault) -> bool:
    path = fault.path
    if fault.kind == "missing" or not path or not isinstance(path[-1], str):
        return False
    for part in path[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return False
    if not isinstance(data, dict) or path[-1] not in data:
        return False
    del data[path[-1]]
    return True


def _causes(faults: Sequence[_Fault]) -> list[_Fault]:
    """The faults without those that others bring along.

    A list whose entry is bad is not also too short, and a key that is misspelt is not also missing.
    """
    paths = [fault.path for fault in faults]
    misspelt = {(*fault.path[:-1], fault.near) for fault in faults if fault.near}

    def follows(fault: _Fault) -> bool:
        if fault.kind == "missing":
            return fault.path in misspelt
        below = any(path[: len(fault.path)] == fault.path and path != fault.path for path in paths)
        return fault.kind == "too_short" and below

    return [fault for fault in faults if not follows(fault)]


class _Fault:
    """One of pydantic's errors, put on its place in the file."""

    def __init__(self, root: Value, error: Any) -> None:
        self.kind: str = error["type"]
        self.input = error.get("input")
        self.context: dict[str, Any] = error.get("ctx", {})
        self.text: str = error["msg"]
        self.path = _path(root, error["loc"], self.kind)
        self.value = root.at(self.path)
        self.annotation = _annotation(root, self.path[:-1] if self.kind == "extra_forbidden" else self.path)
        self.keys: Sequence[str] = ()
        """For an unknown key: the ones that are known there."""
        self.elsewhere = ""
        """For an unknown key: the kind of thing that has it."""
        self.near = ""
        """For an unknown key: the one that was probably meant."""
        if self.kind == "extra_forbidden":
            key = str(self.path[-1])
            part = part_of(self.annotation, _kind(root.at(self.path[:-1])))
            self.keys = sorted(part.model_fields) if part else ()
            others = (other for other in models(self.annotation) if key in other.model_fields)
            self.elsewhere = next((kind for other in others for kind in kinds(other)), "")
            self.near = "" if self.elsewhere else nearest(key, self.keys)

    def problem(self) -> Problem:
        code, message, hint = self._words()
        return Problem(code, dotted(self.path), message, position=self.value.position, hint=hint)

    def _words(self) -> tuple[str, str, str]:
        """Code, message and hint."""
        match self.kind:
            case "extra_forbidden":
                return "SPEC002", "unknown key", self._other_key()
            case "missing":
                return "SPEC004", "missing; it must be given", ""
            case "union_tag_not_found":
                return "SPEC004", "says nothing of its kind", "add 'kind: aws' or 'kind: physical'"
            case "union_tag_invalid" if self.value.content is None:
                return "SPEC004", "says nothing of its kind", "write aws or physical"
            case "union_tag_invalid":
                tags = self.context["expected_tags"].replace(",", " or")
                return self._choice(self.context["tag"], _choices(tags))
            case "literal_error" | "enum":
                return self._choice(str(self.input), _choices(self.context["expected"]))
        return "SPEC003", *self._form()

    def _form(self) -> tuple[str, str]:
        """Message and hint for a value of the wrong form."""
        expected = _EXPECTED.get(self.kind, "one value")
        if self.input is None:
            return "says nothing", self._instead_of_null()
        if self.kind in _BOUNDS:
            bound, words = _BOUNDS[self.kind]
            limit = self.context[bound]
            return f"{self.input} is too {words} {spelled(self.annotation, limit)}", ""
        if self.kind in _LENGTHS:
            bound, words = _LENGTHS[self.kind]
            return f"{words} {_counted(self.context[bound], self.kind)}", ""
        if self.kind in _EXPECTED or self.kind == "string_type" or not isinstance(self.input, str):
            return f"{_shown(self.input)} stands where {expected} is expected", ""
        return self.text, ""

    def _instead_of_null(self) -> str:
        found = models(self.annotation)
        if len(found) > 1:
            return "add 'kind: aws' or 'kind: physical'"
        if found:
            required = [name for name, field in found[0].model_fields.items() if field.is_required()]
            return f"it needs {', '.join(required)}" if required else "write {} to have it with its defaults"
        return "take it out" if isinstance(self.path[-1], int) else "write what it is, or take it out"

    def _other_key(self) -> str:
        if self.elsewhere:
            return f"it belongs to 'kind: {self.elsewhere}'"
        if self.value.content is None and " " in str(self.path[-1]):  # {reason: first half, second half}
            return "put a text with a comma in quotes"
        return f"did you mean {self.near}?" if self.near else f"known here: {', '.join(self.keys)}"

    def _choice(self, value: str, expected: Sequence[str]) -> tuple[str, str, str]:
        near = nearest(value, expected)
        others = f"one of {', '.join(expected)}" if len(expected) > 1 else f"it can only be {expected[0]}"
        return "SPEC003", f"{value!r} is not known here", f"did you mean {near}?" if near else others


def _counted(count: int, kind: str) -> str:
    one, many = ("character", "characters") if kind.startswith("string") else ("entry", "entries")
    return f"one {one}" if count == 1 else f"{count} {many}"


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


def _kind(value: Value) -> object:
    kind = value.child("kind")
    return kind and kind.content


def _annotation(root: Value, path: Path) -> Any:
    """What the language says of the place at ``path``; None where it knows no such place."""
    annotation: Any = Spec
    for index, step in enumerate(path):
        if annotation is None:
            return None
        part: type[BaseModel] | None = part_of(annotation, _kind(root.at(path[:index])))
        if part is None:
            annotation = item_of(annotation, tuple if isinstance(step, int) else dict)
        else:
            annotation = hints(part).get(str(step))
    return annotation
