"""What cookbooks install from outside of the distribution, each in the version that is tested.

Sources, and what takes the place of a checksum where there is none, are in ``sources.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from infra.catalogue.tables import table

Way: TypeAlias = Literal["archive", "signed", "client", "apt", "pip", "conda"]
"""How it arrives: a download with a checksum; one with a signature of its makers; a Debian package of
the client that runs cookbooks, with a checksum, of which a machine has one; a signed APT repository; PyPI;
conda-forge."""

CLIENT: Final = "cinc"
"""The client that runs cookbooks unless a spec chooses the other one."""

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
    """Of an ``archive`` or a ``client``, with ``{version}``, ``%{arch}``, ``%{machine}`` and ``%{license}``
    to be filled in."""
    sha256: Mapping[str, str]
    """Of the tested version's archive, by architecture."""

    def url_of(self, version: str) -> str | None:
        """Where a version's archive is; what ``%{…}`` stands for is filled in where it is fetched."""
        return self.url.replace("{version}", version) if self.url is not None else None


@cache
def find(name: str) -> Software | None:
    """The software of that name, or None."""
    row = table("software").get(name)
    if row is None:
        return None
    return Software(name, row.get("version"), row["way"], row.get("url"), row.get("sha256", {}))


def way_of(name: str) -> Way | None:
    """How the software of that name arrives; None for an unknown one."""
    found = find(name)
    return found.way if found else None


@cache
def names() -> Sequence[str]:
    """Every name, sorted."""
    return tuple(sorted(table("software")))
