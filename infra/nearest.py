"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to ``word``, or the empty string where none is near."""
    from difflib import get_close_matches  # slow to import, and only needed for a mistake

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.6)), "")
