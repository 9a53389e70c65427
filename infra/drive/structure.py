"""Compares structured texts: IAM policies, user data. Pure.

JSON, YAML after ``#cloud-config``, and base64 of either are parsed, also when nested, and compared value by
value: two policies of 4,000 characters that differ by a region look the same in their first 60.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_IDENTITIES: Final = ("Sid", "Id", "ID", "sid", "id", "path", "Name", "name", "key")
"""Keys that identify an object in a list; the first that all objects have is used."""
_WORD: Final = re.compile(r"[^\s\"'\\:/,\[\]{}()=*]+")
_CLOUD_CONFIG: Final = "#cloud-config"


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two structures."""

    lines: tuple[str, ...]
    """One line per value: ``Statement[LookUp].Condition.StringEquals.aws:RequestedRegion: +
    "eu-central-1"``."""
    added: tuple[str, ...]
    """Words that only the second has, in order: ``eu-central-1``."""
    removed: tuple[str, ...]
    """Words that only the first has."""

    @property
    def names(self) -> str:
        """``also names eu-central-1``; empty if no words, or too many, were added or removed."""
        if not 0 < len(self.added) + len(self.removed) <= 4:
            return ""
        said = [f"also names {', '.join(self.added)}"] if self.added else []
        said += [f"no longer names {', '.join(self.removed)}"] if self.removed else []
        return "; ".join(said)


def difference(before: object, after: object) -> Difference | None:
    """The difference between two values of an attribute; None unless both are lists, or texts with a
    structure."""
    if isinstance(before, list) and isinstance(after, list):
        return Difference(tuple(_lists("", before, after)), (), ())
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    first, second = read(before), read(after)
    if isinstance(first, str) or isinstance(second, str):
        return None
    old, new = _words(first), _words(second)
    return Difference(
        tuple(_compared("", first, second)),
        tuple(word for word in new if word not in old),
        tuple(word for word in old if word not in new),
    )


def read(value: object) -> Any:
    """The structure in a text, with nested texts parsed too; other values unchanged."""
    if isinstance(value, dict):
        return {str(key): read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [read(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _decoded(value)
    if text.startswith(_CLOUD_CONFIG):
        import yaml

        try:
            return read(yaml.safe_load(text))
        except yaml.YAMLError:
            return value
    if not text.lstrip().startswith(("{", "[")):
        return value
    try:
        return read(json.loads(text))
    except ValueError:
        return value


def _decoded(value: str) -> str:
    """The decoded text if it is base64, else the text itself."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return value


def _compared(path: str, before: object, after: object) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            below = f"{path}.{key}" if path else key
            yield from _keyed(below, key, before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(path, before, after)
    elif isinstance(before, list) or isinstance(after, list):
        # A policy may have a single value instead of a list of one.
        yield from _lists(path, _listed(before), _listed(after))
    else:
        yield f"{path}: {_shown(before)} → {_shown(after)}"


def _keyed(path: str, key: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    if key not in after:
        yield f"{path}: - {_shown(before[key])}"
    elif key not in before:
        yield f"{path}: + {_shown(after[key])}"
    else:
        yield from _compared(path, before[key], after[key])


def _lists(path: str, before: list[Any], after: list[Any]) -> Iterator[str]:
    identity = _identity([*before, *after])
    if identity:
        first = {str(each[identity]): each for each in before}
        second = {str(each[identity]): each for each in after}
        for key in dict.fromkeys((*first, *second)):
            yield from _keyed(f"{path}[{key}]", key, first, second)
        return
    if any(isinstance(each, dict | list) for each in (*before, *after)) and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _compared(f"{path}[{place}]", old, new)
        return
    gone = [each for each in before if each not in after]
    new = [each for each in after if each not in before]
    if len(gone) == len(new) == 1:
        yield f"{path}: {_shown(gone[0])} → {_shown(new[0])}"
        return
    for each in gone:
        yield f"{path}: - {_shown(each)}"
    for each in new:
        yield f"{path}: + {_shown(each)}"
    if not gone and not new:
        yield f"{path}: in another order"


def _identity(objects: list[Any]) -> str:
    """The key that identifies all of these objects within each list; empty if there is none."""
    if not objects or not all(isinstance(each, dict) for each in objects):
        return ""
    return next((key for key in _IDENTITIES if all(isinstance(each.get(key), str) for each in objects)), "")


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _words(value: object) -> dict[str, None]:
    """Every word in the values of a structure, in order."""
    if isinstance(value, dict):
        return {word: None for item in value.values() for word in _words(item)}
    if isinstance(value, list):
        return {word: None for item in value for word in _words(item)}
    return dict.fromkeys(_WORD.findall(value if isinstance(value, str) else json.dumps(value)))
