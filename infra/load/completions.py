"""Converts a spec with structural faults to the specs that it may become once they are fixed.

The faults leave some values unknown. Each completion fills them in differently: with the default, each
choice of an enumeration, each name that the spec uses. A rule's finding that holds for all completions does
not depend on the unknown values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import zip_longest
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from infra.errors import Path
from infra.load.source import Value
from infra.schema import Spec
from infra.schema.formatting import bare, choices, hints, item_of, kinds, models, part_of

MOST: Final = 16
"""Maximum number of completions."""

_NESTED: Final = 6
"""Maximum number of names, the most frequent ones, for entries of nested mappings."""

_NOT_WRITTEN: Final = object()
"""Marks a field that is left to its default."""

_SCALARS: Final = (
    "false", "true", "1", "2", "0", "16", "100", "1000", "4500", "64512", "0.5", "1.30", "0750", "02:30",
    "2027-03-31", "a", "a.internal", "@", "/a", "10m", "1h", "1d", "100 GiB", "1 TiB", "10.0.0.0/8",
    "10.0.0.0/16", "192.168.0.0/24", "10.0.0.10", "198.51.100.10", "02:00:00:00:00:01",
    "https://login.a.example/a", "arn:aws:kms:us-west-2:123456789012:key/a",
    "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
)  # fmt: skip
"""Values of every scalar type of the language."""

_TEXTS: Final = ("p5.48xlarge", "p2.xlarge", "g5.xlarge", "m6i.xlarge", "h100", "k80", "an explanation of it")
"""Texts that are keys of the catalogue."""


def _is_collection(annotation: Any) -> bool:
    item = item_of(annotation, dict)
    return item is not None and bool(models(item))


@dataclass(frozen=True)
class OfAnyName:
    """An entry of a mapping whose key is unknown."""

    entry: Any
    names: tuple[str, ...] = ()


def annotation_at(root: Value, path: Path) -> Any:
    """The type annotation of the field at ``path``; None if there is no such field."""
    annotation: Any = Spec
    for index, step in enumerate(path):
        if annotation is None:
            return None
        part = part_of(annotation, kind_of(root.at(path[:index])))
        if part is None:
            annotation = item_of(annotation, tuple if isinstance(step, int) else dict)
        else:
            annotation = hints(part).get(str(step))
    return annotation


def kind_of(value: Value) -> object:
    """The value of its ``kind``."""
    kind = value.child("kind")
    return kind and kind.content


def completions(root: Value, unknown: Mapping[Path, Sequence[Any]]) -> Iterator[Any]:
    """Plain data of specs with ``root``'s values except at the paths of ``unknown``.

    ``unknown``: path → possible values besides those that its type suggests. Yields nothing if all sites,
    pools or images are unknown, as nearly every rule depends on them.
    """
    if any(len(path) < 2 and _is_collection(annotation_at(root, path)) for path in unknown):
        return
    names = tuple(name for name, _ in Counter(_names(root, Spec)).most_common())
    values = {
        path: [_named(root, path, value, names) for value in (*known, *_fillers(root, path, names))]
        for path, known in unknown.items()
    }
    if not all(values.values()):
        return
    for index in range(min(MOST, max(map(len, values.values()), default=1))):
        data = root.plain()
        for path in sorted(values, key=len):
            _put(data, path, values[path][index % len(values[path])])
        yield data


def _named(root: Value, path: Path, value: Any, names: Iterable[str]) -> Any:
    if not isinstance(value, OfAnyName):
        return value
    mapping = next(choice for choice in choices(annotation_at(root, path[:-1])) if item_of(choice, dict))
    return replace(value, names=tuple(_fitting(get_args(bare(mapping)[0])[0], names)))


def _put(data: Any, path: Path, value: Any) -> None:
    """Set a value at the path if its parent exists: parts of an unknown value may not."""
    for step in path[:-1]:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return
    last = path[-1]
    if isinstance(data, list) and isinstance(last, int):
        data[last] = value
    elif isinstance(data, dict) and isinstance(value, OfAnyName):
        data |= {name: value.entry for name in value.names if name not in data}
    elif isinstance(data, dict):
        data.pop(last, None)
        if value is not _NOT_WRITTEN:
            data[last] = value


def _names(value: Value, annotation: Any) -> Iterator[str]:
    """The names that the spec defines, and its texts, which may refer to them."""
    part = part_of(annotation, kind_of(value))
    if isinstance(value.content, str):
        yield from (value.content, value.content.partition(".")[0])
    elif isinstance(value.content, dict):
        item = item_of(annotation, dict) if part is None else None
        if part is None:
            yield from value.content
        for key, child in value.content.items():
            yield from _names(child, hints(part).get(key) if part else item)
    elif isinstance(value.content, list):
        for child in value.content:
            yield from _names(child, item_of(annotation, tuple))


def _fillers(root: Value, path: Path, names: Iterable[str]) -> list[Any]:
    """Possible values for the type at a path, the default first; empty for the whole spec."""
    annotation = annotation_at(root, path) if path else None
    if annotation is None:
        return []
    part = part_of(annotation_at(root, path[:-1]), kind_of(root.at(path[:-1])))
    field = part.model_fields.get(str(path[-1])) if part else None
    default = [_NOT_WRITTEN] if field is not None and not field.is_required() else []
    return [*default, *_neighbours(root, path, annotation), *_values(annotation, tuple(names))]


def _neighbours(root: Value, path: Path, annotation: Any) -> list[str]:
    """In a list of texts: values that differ from the others in the last letter, as zones of a region do."""
    others = root.at(path[:-1]).content
    if not isinstance(others, list):
        return []
    texts = [other.content for other in others if isinstance(other.content, str)]
    return _fitting(annotation, (f"{text[:-1]}{letter}" for text in texts[:1] for letter in "abcdef"))


@cache
def _values(annotation: Any, names: tuple[str, ...]) -> list[Any]:
    """The minimum, then the maximum, then other values of a type."""
    by_choice = (_of_choice(choice, names) for choice in choices(annotation))
    found = [value for values in zip_longest(*by_choice, fillvalue=_NOT_WRITTEN) for value in values]
    return _fitting(annotation, (value for value in found if value is not _NOT_WRITTEN))


def _of_choice(annotation: Any, names: tuple[str, ...]) -> list[Any]:
    inner, word = bare(annotation)
    origin = get_origin(inner)
    if origin is Literal:
        return list(get_args(inner))
    if origin is tuple:
        items = _values(get_args(inner)[0], names)
        return [[], items[:MOST], *([item] for item in items)]
    if origin is dict:
        key, item = get_args(inner)
        return [{}, *_mappings(key, item, names)]
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return _parts(inner, names)
    if isinstance(inner, type) and issubclass(inner, Enum):
        return [member.value for member in inner]
    return [*_TEXTS, *names] if inner is str and not word else [*_SCALARS, *names]


def _mappings(key: Any, item: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All but the last have an entry for every name in the spec, so that references can be resolved."""
    entries = _values(item, tuple(names[:_NESTED]))
    if not entries:
        return
    known = _fitting(key, ("a", *names))
    for shift in range(min(len(entries), 4)):
        yield {name: entries[(shift + index) % len(entries)] for index, name in enumerate(known)}
    yield {known[0]: entries[0]}


def _fitting(annotation: Any, values: Iterable[Any]) -> list[Any]:
    """The values that a type accepts."""
    adapter = TypeAdapter[Any](annotation)
    return [value for value in values if _fits(adapter, value)]


def _parts(part: type[BaseModel], names: tuple[str, ...]) -> list[dict[str, Any]]:
    values = {name: _values(hints(part)[name], names) for name in part.model_fields}
    required = {name: values[name] for name, field in part.model_fields.items() if field.is_required()}
    if not all(required.values()):
        return []
    least = {name: found[0] for name, found in required.items()}
    others = [
        {
            # Each field cycles through its values at a different pace, which varies the combinations.
            name: found[(1 + index * (2 * place + 1)) % len(found)]
            for place, (name, found) in enumerate(values.items())
            if found
        }
        for index in range(MOST)
    ]
    return [least, *others]


def _fits(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def likely_fields(root: Value, path: Path, value: Any) -> Iterator[Path]:
    """The fields that are missing in the part at ``path`` and may have this plain value."""
    part = part_of(annotation_at(root, path), kind_of(root.at(path)))
    for field in part.model_fields if part else ():
        if root.at(path).child(field) is None and _fitting(hints(part)[field], (value,)):
            yield (*path, field)


def likely_kind(root: Value, path: Path) -> str:
    """The only kind that has all the fields at the path; empty if several or none do."""
    value, parts = root.at(path), models(annotation_at(root, path))
    written = set(value.content) - {"kind"} if isinstance(value.content, dict) else set()
    found = [part for part in parts if written and written <= part.model_fields.keys()]
    return kinds(found[0])[0] if len(found) == 1 else ""
