"""Turns of phrase that messages share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from infra.nearest import nearest


def meant(word: str) -> str:
    """``did you mean p3.2xlarge?``, or nothing where no word is near."""
    return f"did you mean {word}?" if word else ""


def meant_one_of(word: str, known: Collection[str]) -> str:
    """The nearest of the known words, else what words there are."""
    near = nearest(word, known)
    if near:
        return meant(near)
    return f"there are {listed(sorted(known), most=8)}" if known else "there are none"


def listed(words: Iterable[str], most: int = 5) -> str:
    """``a, b and c``; of more than ``most`` only the first, and how many more there are."""
    every = list(words)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    if len(every) < 2:
        return "".join(every)
    return f"{', '.join(every[:-1])} and {every[-1]}"


def count(number: int, thing: str) -> str:
    """``1 node``, ``1,200 nodes``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def addresses(number: int) -> str:
    """``1 address``, ``1,200 addresses``."""
    return f"{number:,} address{'' if number == 1 else 'es'}"


def repeated(words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each word that stood in the list before, with its index."""
    seen: set[str] = set()
    for index, word in enumerate(words):
        if word in seen:
            yield index, word
        seen.add(word)
