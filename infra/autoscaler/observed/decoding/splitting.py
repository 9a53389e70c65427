"""A list cut into its items without a look at what is in them: depth is a matter of counting."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|[^\s:,\[\]{}"]+', re.DOTALL)


def split(body: bytes) -> tuple[bytes, list[bytes]]:
    """(``metadata``, ``items``) of a list as raw JSON. ValueError for what is not a list."""
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
