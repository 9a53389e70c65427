"""What cookbooks install from outside of the distribution, each in the version that is tested.

Sources, and what takes the place of a checksum where there is none, are in ``sources.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from infra.catalogue.tables import table

Way: TypeAlias = Literal["archive", "signed", "package", "apt", "pip", "conda"]
"""How it arrives: a download with a checksum; one with a signature of its makers; a signed APT repository, or
a package by address with a checksum; a signed APT repository alone; PyPI; conda-forge."""

ARCHITECTURES: Final = ("amd64", "arm64")
"""Debian's names, by which checksums go."""


@dataclass(frozen=True, slots=True)
class Software:
    """One piece of software."""

    name: str
    version: str | None
    """The tested one; None takes the distribution's."""
    way: Way
    url: str | None
    """Of an ``archive``, with ``{version}``, ``%{arch}`` and ``%{machine}`` to be filled in."""
    sha256: Mapping[str, str]
    """Of the tested version's archive, by architecture."""

    def url_of(self, version: str) -> str | None:
        """Where a version's archive is; ``%{arch}`` and ``%{machine}`` are left to the machine."""
        return self.url.replace("{version}", version) if self.url is not None else None


@cache
def find(name: str) -> Software | None:
    """The software of that name, or None."""
    row = table("software").get(name)
    if row is None:
        return None
    return Software(name, row.get("version"), row["way"], row.get("url"), row.get("sha256", {}))


@cache
def names() -> Sequence[str]:
    """Every name, sorted."""
    return tuple(sorted(table("software")))
