"""Converts values to a Spec, and pydantic's errors to problems with paths and positions in the spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from infra.errors import Path, Problem, dotted, newer
from infra.load.completions import OfAnyName, annotation_at, completions, kind_of, likely_fields, likely_kind
from infra.load.source import Value, replaced
from infra.nearest import nearest
from infra.schema import Spec
from infra.schema.formatting import kinds, models, part_of, spelled

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
"""Pydantic's error type → what is expected. For all others it is a single value."""


_MOVED: Final = {"autoscaler.notices": "kubernetes.alerts"}
"""Key of an earlier version → where it is now."""

_ROUNDS: Final = 8
"""Correcting a kind or a key reveals errors in its contents: no spec needs more rounds than this."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The result of validating a spec's structure."""

    root: Value
    """The values, with misspelt keys and kinds corrected as far as they can be guessed, and without unknown
    keys."""
    spec: Spec | None
    """None if there are errors."""
    problems: tuple[Problem, ...]
    """All errors."""
    unknown: Mapping[Path, Sequence[Any]]
    """Paths in ``root`` whose values are unknown because of the errors, each with possible values."""

    def completions(self) -> Iterator[Spec]:
        """Specs that it may become once the errors are fixed; empty if too much is unknown."""
        for data in completions(self.root, self.unknown):
            try:
                yield Spec.model_validate(data)
            except ValidationError:
                continue


def validate(root: Value, unknown: Mapping[Path, Sequence[Any]] = MappingProxyType({})) -> Structure:
    """The spec, or all errors of its structure.

    ``unknown`` are paths whose values were unknown before, and possible values of each.
    """
    places = dict(unknown)
    problems: dict[tuple[str, str], Problem] = {}
    for _ in range(_ROUNDS):
        data = root.plain() if not places else next(completions(root, places), None)
        if data is None:
            break
        try:
            spec = Spec.model_validate(data)
        except ValidationError as error:
            faults = [_Fault(root, found) for found in error.errors(include_url=False)]
        else:
            return Structure(root, None if problems or places else spec, tuple(problems.values()), places)
        causes = _causes(faults)
        problems |= {(found.code, found.path): found for found in (fault.problem() for fault in causes)}
        for fault in sorted(causes, key=lambda one: one.kind != "extra_forbidden"):
            root = _corrected(root, fault, places)
    return Structure(root, None, tuple(problems.values()), {(): ()})


def _corrected(root: Value, fault: _Fault, unknown: dict[Path, Sequence[Any]]) -> Value:
    """The values with the error corrected; what cannot be guessed becomes ``unknown``."""
    path, value = fault.path, fault.value
    if fault.kind == "extra_forbidden":
        without = replaced(root, path, None)
        meant = (*path[:-1], fault.near)
        if not fault.near and not fault.elsewhere:
            for field in likely_fields(root, path[:-1], value.plain()):
                unknown.setdefault(field, (value.plain(),))
        return replaced(without, meant, value) if fault.near and not _holds(root, meant) else without
    if fault.of_key:
        without, meant = replaced(root, path, None), (*path[:-1], _name(str(path[-1])))
        if _holds(root, meant):
            return without
        unknown.setdefault(meant, (value.plain(), OfAnyName(value.plain())))
        return replaced(without, meant, value)
    if fault.kind in ("union_tag_invalid", "union_tag_not_found"):
        thing = path[:-1] if fault.kind == "union_tag_invalid" else path
        kinds = _choices(fault.context.get("expected_tags", "").replace(",", " or"))
        kind = nearest(fault.context.get("tag", ""), kinds) or likely_kind(root, thing)
        if kind:
            return replaced(root, (*thing, "kind"), Value(kind, value.position))
        path = thing
    unknown.setdefault(path, ())
    return root


def _name(text: str) -> str:
    """The name that was probably meant: ``Big GPUs`` → ``big-gpus``."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())) or "a"


def _holds(root: Value, path: Path) -> bool:
    return root.at(path[:-1]).child(path[-1]) is not None


def _causes(faults: Sequence[_Fault]) -> list[_Fault]:
    """The errors without those that follow from others.

    A list with an invalid entry is not also too short, and a misspelt key is not also missing.
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
    """One of pydantic's errors, with its path in the file."""

    def __init__(self, root: Value, error: Any) -> None:
        self.kind: str = error["type"]
        self.input = error.get("input")
        self.context: dict[str, Any] = error.get("ctx", {})
        self.text: str = error["msg"]
        self.path = _path(root, error["loc"], self.kind)
        self.of_key = error["loc"][-1:] == ("[key]",)
        """Whether a mapping's key is invalid, not its value."""
        self.value = root.at(self.path)
        self.annotation = annotation_at(root, self.path[:-1] if self.kind == "extra_forbidden" else self.path)
        self.keys: Sequence[str] = ()
        """For an unknown key: the keys that are allowed there."""
        self.elsewhere = ""
        """For an unknown key: the kind that has it."""
        self.near = ""
        """For an unknown key: the one that was probably meant."""
        if self.kind == "extra_forbidden":
            key = str(self.path[-1])
            part = part_of(self.annotation, kind_of(root.at(self.path[:-1])))
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
                return "SPEC004", "missing; it is required", ""
            case "union_tag_not_found":
                return "SPEC004", "does not state its kind", "add 'kind: aws' or 'kind: physical'"
            case "union_tag_invalid" if self.value.content is None:
                return "SPEC004", "does not state its kind", "write aws or physical"
            case "union_tag_invalid":
                tags = self.context["expected_tags"].replace(",", " or")
                return self._choice(self.context["tag"], _choices(tags))
            case "literal_error" if self.path == ("version",) and str(self.input).isdigit():
                return "SPEC003", newer(int(str(self.input)), 1), "or write 1"
            case "literal_error" | "enum":
                return self._choice(str(self.input), _choices(self.context["expected"]))
        return "SPEC003", *self._form()

    def _form(self) -> tuple[str, str]:
        """Message and hint for a value of the wrong type."""
        expected = _EXPECTED.get(self.kind, "one value")
        if self.input is None:
            return "has no value", self._instead_of_null()
        if self.kind in _BOUNDS:
            bound, words = _BOUNDS[self.kind]
            limit = self.context[bound]
            return f"{self.input} is too {words} {spelled(self.annotation, limit)}", ""
        if self.kind in _LENGTHS:
            bound, words = _LENGTHS[self.kind]
            return f"{words} {_counted(self.context[bound], self.kind)}", ""
        if self.kind in _EXPECTED or self.kind == "string_type" or not isinstance(self.input, str):
            return f"{_shown(self.input)} is not valid here: {expected} is expected", self._several()
        return self.text, ""

    def _several(self) -> str:
        """The hint where one value was written, and several belong."""
        if _EXPECTED.get(self.kind) == "a list":
            plain = isinstance(self.input, str) and re.fullmatch(r"[\w./@-]{1,40}", self.input)
            return f"write [{self.input}]" if plain else "put it in brackets: […]"
        return self._instead_of_null() if self.kind in _EXPECTED and models(self.annotation) else ""

    def _instead_of_null(self) -> str:
        found = models(self.annotation)
        if len(found) > 1:
            return "add 'kind: aws' or 'kind: physical'"
        if found:
            required = [name for name, field in found[0].model_fields.items() if field.is_required()]
            return f"it needs {', '.join(required)}" if required else "write {} to have it with its defaults"
        return "take it out" if isinstance(self.path[-1], int) else "give one, or remove it"

    def _other_key(self) -> str:
        if moved := _MOVED.get(dotted(self.path)):
            return f"it is {moved} now"
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
    """Pydantic's location as a path in the file: without union tags and key markers."""
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
