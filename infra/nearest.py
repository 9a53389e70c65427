"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to ``word``, or the empty string where none is near. Case aside."""
    from difflib import get_close_matches  # slow to import, and only needed for a mistake

    by_fold = {one.casefold(): one for one in known}
    return next((by_fold[one] for one in get_close_matches(word.casefold(), by_fold, n=1, cutoff=0.6)), "")
