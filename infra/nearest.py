"""Suggests known words for unknown ones, in messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to ``word``, ignoring case; the empty string if none is close."""
    from difflib import get_close_matches  # slow to import, and only needed for errors

    by_fold = {one.casefold(): one for one in known}
    return next((by_fold[one] for one in get_close_matches(word.casefold(), by_fold, n=1, cutoff=0.6)), "")


def meant(word: str) -> str:
    """``did you mean p3.2xlarge?``; empty if no word is close."""
    return f"did you mean {word}?" if word else ""


def meant_one_of(word: str, known: Collection[str]) -> str:
    """The closest known word, else a list of the known words."""
    if near := nearest(word, known):
        return meant(near)
    return f"available: {listed(sorted(known), most=8)}" if known else "none are defined"


def listed(words: Iterable[str], most: int = 5) -> str:
    """``a, b and c``; of more than ``most`` only the first, and the number of others."""
    every = list(words)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    if len(every) < 2:
        return "".join(every)
    return f"{', '.join(every[:-1])} and {every[-1]}"
