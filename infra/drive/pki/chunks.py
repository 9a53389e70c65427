"""Stores texts larger than a store's maximum value: in parts, and valid once the last piece is written.

The parts are named by the text's hash, so that those of two texts never mix; the value under the text's own
name is written last and refers to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from infra.drive.secrets.store import LARGEST, Store

_MARK: Final = "parts"


def pieces(name: str, text: str) -> tuple[dict[str, str], str]:
    """The parts to add first, by name, and the value to add after them under ``name``."""
    if len(text.encode()) <= LARGEST:
        return {}, text
    digest = hashlib.sha256(text.encode()).hexdigest()
    chunks = [text[start : start + LARGEST] for start in range(0, len(text), LARGEST)]
    parts = {f"{name}.{digest[:16]}.{number}": chunk for number, chunk in enumerate(chunks)}
    return parts, f"{_MARK} {len(chunks)} {digest}"


def add(store: Store, name: str, text: str) -> bool:
    """Store an ASCII text under ``name``; False if the name exists."""
    parts, value = pieces(name, text)
    if parts:
        store.add(parts)
    return bool(store.add({name: value}))


def whole(name: str, value: str, store: Store) -> str | None:
    """The text for ``value``, which was read from ``name``. None if its parts are damaged."""
    match value.split(" "):
        case [mark, count, digest] if mark == _MARK and count.isdecimal():
            names = [f"{name}.{digest[:16]}.{number}" for number in range(int(count))]
            found: Mapping[str, str] = store.read(names)
            text = "".join(found.get(each, "") for each in names)
            return text if hashlib.sha256(text.encode()).hexdigest() == digest else None
    return value


def is_part(name: str) -> bool:
    """Whether a name is the name of a part."""
    return "." in name.rpartition("/")[2]
