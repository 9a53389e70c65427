"""Software that cookbooks install from outside of the distribution, in the tested versions.

Sources, and what replaces a missing checksum, are in ``sources.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from infra.catalogue.tables import table

Way: TypeAlias = Literal["archive", "signed", "client", "apt", "pip", "conda"]
"""The installation method: a download with a checksum; one with the vendor's signature; the Debian package
of the client that runs cookbooks, with a checksum, of which a machine has one; a signed APT repository;
PyPI; conda-forge."""

CLIENT: Final = "cinc"
"""The default client that runs cookbooks."""

ARCHITECTURES: Final = ("amd64", "arm64")
"""Debian's names, the keys of checksums."""


@dataclass(frozen=True, slots=True)
class Software:
    """A program."""

    name: str
    version: str | None
    """The tested version; None: the distribution's."""
    way: Way
    url: str | None
    """The URL of an ``archive`` or a ``client``, with the placeholders ``{version}``, ``%{arch}``,
    ``%{machine}`` and ``%{license}``."""
    sha256: Mapping[str, str]
    """Checksums of the tested version's archive, by architecture."""

    def url_of(self, version: str) -> str | None:
        """The URL of a version's archive; ``%{…}`` is replaced at download."""
        return self.url.replace("{version}", version) if self.url is not None else None


@cache
def find(name: str) -> Software | None:
    """The software with this name, or None."""
    row = table("software").get(name)
    if row is None:
        return None
    return Software(name, row.get("version"), row["way"], row.get("url"), row.get("sha256", {}))


def way_of(name: str) -> Way | None:
    """The installation method of the software; None if it is unknown."""
    found = find(name)
    return found.way if found else None


@cache
def names() -> Sequence[str]:
    """Every name, sorted."""
    return tuple(sorted(table("software")))
