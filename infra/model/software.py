"""What is installed on machines from outside of their distribution, each in one version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """One piece of software and where it comes from."""

    name: str
    version: str | None
    """None takes the distribution's."""
    url: str | None
    """Where an archive is downloaded; ``%{arch}`` (``amd64``) and ``%{machine}`` (``x86_64``) stand for the
    machine's architecture, as Ruby's ``format`` fills them in. None for what a package manager fetches."""
    sha256: Mapping[str, str]
    """Of the download, by Debian's name of the architecture. Without one, the cookbook rests on the package
    manager's signatures, or refuses an archive."""


@dataclass(frozen=True, slots=True)
class GpuFamily:
    """Cards of one architecture: what their machines have in common."""

    name: str
    """The architecture: ``pascal``."""
    driver: int
    """The NVIDIA driver branch that runs all of them that the cluster has."""
    open_kernel_modules: bool
