"""Converts data from the Kubernetes API to the autoscaler's view.

A list is decoded as a whole, and item by item only if that fails: an invalid object is recorded as a fault
under its name, not raised. Nothing here makes requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from infra.autoscaler.observed.decoding import wire
from infra.autoscaler.observed.decoding.objects import Make, Reader, kinds
from infra.autoscaler.observed.decoding.snapshot_builder import snapshot

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|[^\s:,\[\]{}"]+', re.DOTALL)


def split(body: bytes) -> tuple[bytes, list[bytes]]:
    """(``metadata``, ``items``) of a list as raw JSON, without parsing the items: by counting brackets.
    Raises ValueError for anything but a list."""
    metadata = b"{}"
    items: list[bytes] | None = None
    depth = start = 0
    key, expects_key = b"", True
    for token in _TOKEN.finditer(body):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
            if (depth == 2 and key == b'"metadata"') or (depth == 3 and key == b'"items"' and text == b"{"):
                start = token.start()
            elif depth == 2 and key == b'"items"' and text == b"[":
                items = []
        elif text in (b"}", b"]"):
            depth -= 1
            if depth == 2 and key == b'"items"' and items is not None:
                items.append(body[start : token.end()])
            elif depth == 1:
                if key == b'"metadata"':
                    metadata = body[start : token.end()]
                expects_key = True
        elif depth == 1:
            if expects_key:
                key = text
            expects_key = not expects_key
    if items is None or depth or not body.lstrip().startswith(b"{"):
        raise ValueError("this is not a list")
    return metadata, items


_BAD: Final = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Errors caused by invalid input. UnicodeDecodeError is a ValueError."""
_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list."""

    version: str
    """The list's resource version, from which a watch continues."""
    next_token: str | None
    """The ``continue`` token of the next page; None for the last page."""
    objects: Mapping[str, Any] = field(default_factory=dict)
    """``namespace/name``, or ``name`` → object."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """The same keys → why the object was left out."""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a watch."""

    type: str
    """``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK`` or ``ERROR``."""
    key: str
    object: Any
    """None for a bookmark, an error, a deleted object and a fault."""
    version: str
    fault: str | None = None


class Decoder:
    """The decoder of all kinds, which shares equal shapes. Not thread-safe.

    Raises ``KeyError`` for an unknown kind.
    """

    def __init__(self) -> None:
        self._reader = Reader()
        self._kinds = {
            kind: _Kind(
                made,
                msgspec.json.Decoder(wire.Page[written]),  # type: ignore[valid-type] # known at run time
                msgspec.json.Decoder(written),
            )
            for kind, (written, made) in kinds(self._reader).items()
        }

    def list(self, kind: str, body: bytes) -> Listed:
        """A page of a list. Raises msgspec's errors if the body is not a list."""
        known = self._kinds[kind]
        try:
            page = known.page.decode(body)
        except _BAD:
            return self._one_by_one(kind, body)
        objects: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for each in page.items or ():
            key = _key(each.metadata)
            try:
                objects[key] = known.make(each)
            except _BAD as error:
                faults[key] = _words(error)
        if faults and kind in ("Pod", "Node"):
            self._stand_in(kind, body, objects, faults)
        return Listed(page.metadata.resource_version, page.metadata.next_token or None, objects, faults)

    def item(self, kind: str, raw: bytes) -> tuple[str, Any, str]:
        """(key, object, resource version) of one object. Raises ValueError or msgspec's errors if it is
        invalid; an invalid pod or node that matters is replaced by a stand-in."""
        try:
            return self._made(kind, raw)
        except _BAD as error:
            named = _named.decode(raw).metadata
            if (spare := self._spare(kind, raw, _words(error))) is None:
                raise
            return _key(named), spare, named.resource_version

    def event(self, kind: str, line: bytes) -> Event:
        """A line of a watch. Raises msgspec's errors if it is not an event."""
        change = _change.decode(line)
        raw = bytes(change.object)
        if change.type == "ERROR":
            return Event(change.type, "", None, "")
        named = _named.decode(raw).metadata
        if change.type in ("BOOKMARK", "DELETED"):
            return Event(change.type, _key(named), None, named.resource_version)
        try:
            key, found, version = self.item(kind, raw)
        except _BAD as error:
            return Event(change.type, _key(named), None, named.resource_version, _words(error))
        return Event(change.type, key, found, version)

    def _made(self, kind: str, raw: bytes) -> tuple[str, Any, str]:
        known = self._kinds[kind]
        found = known.one.decode(raw)
        return _key(found.metadata), known.make(found), found.metadata.resource_version

    def _one_by_one(self, kind: str, body: bytes) -> Listed:
        meta, items = _cut(body)
        objects: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for number, raw in enumerate(items):
            try:
                key, objects[key], _ = self._made(kind, raw)
            except _BAD as error:
                key = _name(raw) or f"#{number}"
                faults[key] = _words(error)
                if (spare := self._spare(kind, raw, faults[key])) is not None:
                    objects[key] = spare
        return Listed(meta.resource_version, meta.next_token or None, objects, faults)

    def _stand_in(self, kind: str, body: bytes, objects: dict[str, Any], faults: dict[str, str]) -> None:
        for raw in _cut(body)[1]:
            key = _name(raw)
            if key in faults and (spare := self._spare(kind, raw, faults[key])) is not None:
                objects[key] = spare

    def _spare(self, kind: str, raw: bytes, why: str) -> Any:
        """A stand-in for an invalid object whose absence would do harm: without its pod a node would seem
        empty, without its node a machine would seem dead."""
        try:
            if kind == "Pod":
                return self._reader.spare_pod(_spare_pod.decode(raw), why)
            if kind == "Node":
                return self._reader.spare_node(_spare_node.decode(raw))
        except _BAD:
            return None
        return None

    @property
    def shapes(self) -> int:
        """The number of shapes in use."""
        return len(self._reader.shapes)


@dataclass(frozen=True, slots=True)
class _Kind:
    make: Make
    page: msgspec.json.Decoder[Any]
    one: msgspec.json.Decoder[Any]


_raw_page: Final = msgspec.json.Decoder(wire.Page[Raw])
_list_meta: Final = msgspec.json.Decoder(wire.ListMeta)
_named: Final = msgspec.json.Decoder(wire.Named)
_spare_pod: Final = msgspec.json.Decoder(wire.SparePod)
_spare_node: Final = msgspec.json.Decoder(wire.SpareNode)
_change: Final = msgspec.json.Decoder(wire.Change)


_Meta: TypeAlias = wire.PlainMeta | wire.Meta | wire.BareMeta


def _key(meta: _Meta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _cut(body: bytes) -> tuple[wire.ListMeta, list[bytes]]:
    try:
        page = _raw_page.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        meta, items = split(body)
        return _list_meta.decode(meta), items
    return page.metadata, [bytes(each) for each in page.items or ()]


def _name(raw: bytes) -> str:
    try:
        return _key(_named.decode(raw).metadata)
    except _BAD:
        return ""


def _words(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= _WORDS else text[:_WORDS] + "…"


__all__ = ["Decoder", "Event", "Listed", "snapshot"]
