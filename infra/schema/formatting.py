"""Types and values of the spec in its own notation: ``500 GiB``, not 512000."""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import date
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator
from pydantic_core import to_jsonable_python

from infra.schema import types as scalars

_MARKED: Final = {
    get_args(alias)[1]: word
    for alias, word in (
        (scalars.Size, "size"),
        (scalars.Duration, "duration"),
        (scalars.Mac, "MAC address"),
        (scalars.Name, "name"),
        (scalars.UserName, "Unix name"),
        (scalars.Domain, "domain"),
        (scalars.HostName, "record name"),
        (scalars.Path, "path"),
        (scalars.Version, "version"),
        (scalars.Octal, "file mode"),
        (scalars.ClockTime, "time of day"),
        (scalars.LabelKey, "label key"),
        (scalars.LabelValue, "label value"),
    )
}
"""The validator of a scalar type → the type's name."""

_PLAIN: Final = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    date: "date",
    IPv4Network: "block",
    IPv4Address: "address",
}


@cache
def hints(part: type[BaseModel]) -> dict[str, Any]:
    """Field → annotation, with its metadata."""
    return get_type_hints(part, include_extras=True)


def bare(annotation: Any) -> tuple[Any, str]:
    """The annotation without ``Annotated``, and the name of its scalar type, if any."""
    word = ""
    while get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        # The last annotation is the outermost; Python flattens nested ones.
        word = word or next(
            (_MARKED[mark] for mark in marks if isinstance(mark, BeforeValidator) and mark in _MARKED), ""
        )
    return annotation, word


def choices(annotation: Any) -> tuple[Any, ...]:
    """The members of a union without None, each with its metadata; else the annotation itself."""
    inner, _ = bare(annotation)
    if get_origin(inner) in (Union, types.UnionType):
        found = [choices(member) for member in get_args(inner) if member is not type(None)]
        return tuple(member for members in found for member in members)
    return (annotation,)


def models(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The parts that are allowed here, several for a union."""
    found = (bare(choice)[0] for choice in choices(annotation))
    return tuple(one for one in found if isinstance(one, type) and issubclass(one, BaseModel))


def part_of(annotation: Any, kind: object) -> type[BaseModel] | None:
    """The part that is allowed here; if there are several, the one with this ``kind``."""
    found = models(annotation)
    if len(found) < 2:
        return found[0] if found else None
    return next((one for one in found if str(kind) in kinds(one)), None)


def kinds(part: type[BaseModel]) -> tuple[str, ...]:
    """The values of ``kind`` for one of several parts: ``("aws",)``."""
    return tuple(map(str, get_args(part.model_fields["kind"].annotation)))


def item_of(annotation: Any, container: type) -> Any | None:
    """The annotation of a list's items (``tuple``) or of a mapping's values (``dict``); else None."""
    for choice in choices(annotation):
        inner, _ = bare(choice)
        if get_origin(inner) is container:
            return get_args(inner)[1 if container is dict else 0]
    return None


def type_words(annotation: Any) -> str:
    """What may be written, in Markdown: ``block``, ``list of name``, ``\\`on-demand\\`, \\`spot\\```."""
    return " or ".join(dict.fromkeys(_type_words(choice) for choice in choices(annotation)))


def _type_words(annotation: Any) -> str:
    inner, word = bare(annotation)
    if word:
        return word
    origin, arguments = get_origin(inner), get_args(inner)
    if origin is dict:
        return f"mapping of {type_words(arguments[0])} to {type_words(arguments[1])}"
    if origin is tuple:
        return f"list of {type_words(arguments[0])}"
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if issubclass(inner, BaseModel):
        return f"[{inner.__name__}](#{inner.__name__.lower()})"
    if issubclass(inner, Enum):
        return ", ".join(f"`{member.value}`" for member in inner)
    return _PLAIN[inner]


def plain(value: Any) -> Any:
    """A value of the spec as JSON values."""
    return to_jsonable_python(value)


def spelled(annotation: Any, value: Any) -> str:
    """A JSON value in the notation of the spec."""
    word = next((word for choice in choices(annotation) if (word := bare(choice)[1])), "")
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() if word == "size":
            return _counted(value, scalars.MIB, " ")
        case int() if word == "duration":
            return _counted(value, scalars.SECONDS, "")
        case list() | tuple():
            item = item_of(annotation, tuple) or str
            return f"[{', '.join(spelled(item, one) for one in value)}]"
        case Mapping():
            return "{" + ", ".join(f"{key}: {_leaf(one)}" for key, one in value.items()) + "}"
        case "":
            return '""'
        case _:
            return str(value)


def _leaf(value: Any) -> str:
    return "…" if isinstance(value, (Mapping, list)) else spelled(str, value)


def _counted(value: int, units: Mapping[str, int], space: str) -> str:
    """In the largest unit in which it is an integer; zero in the smallest."""
    sizes = sorted(units.items(), key=lambda one: one[1], reverse=value != 0)
    unit, size = next((unit, size) for unit, size in sizes if value % size == 0)
    return f"{value // size}{space}{unit}"
