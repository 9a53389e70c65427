"""Phrases that several messages use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.nearest import listed, meant, meant_one_of

__all__ = ["addresses", "count", "listed", "meant", "meant_one_of", "repeated"]


def count(number: int, thing: str) -> str:
    """``1 node``, ``1,200 nodes``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def addresses(number: int) -> str:
    """``1 address``, ``1,200 addresses``."""
    return f"{number:,} address{'' if number == 1 else 'es'}"


def repeated(words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each repeated word, with its index."""
    seen: set[str] = set()
    for index, word in enumerate(words):
        if word in seen:
            yield index, word
        seen.add(word)
