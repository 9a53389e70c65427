"""Software from outside of the distribution, each in one version."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Pin(Struct, frozen=True):
    """A program, its version and its source."""

    name: str
    version: str | None
    """None: the distribution's version."""
    url: str | None
    """The URL of an archive; ``%{arch}`` (``amd64``) and ``%{machine}`` (``x86_64``) are replaced by the
    machine's architecture, as by Ruby's ``format``. None for packages of a package manager."""
    sha256: Mapping[str, str]
    """Checksums of the download, by Debian's name of the architecture. Without one, the cookbook relies on
    the package manager's signatures, or refuses an archive."""


class Client(Struct, frozen=True):
    """The client that runs cookbooks on machines."""

    name: str
    """``cinc`` or ``chef``: the name of its package; its program is ``/opt/<name>/bin/<name>-client``."""
    version: str
    url: str
    """The URL of its package; ``%{arch}``, ``%{machine}`` and ``%{license}`` (a license id) are replaced at
    download."""
    sha256: Mapping[str, str]
    """Checksums of the package, by Debian's name of the architecture. A package without one is not
    installed."""
    license: str | None
    """``chef_license`` of client.rb, if the user accepted it."""


class GpuFamily(Struct, frozen=True):
    """Settings common to machines with GPUs of one architecture."""

    name: str
    """The architecture: ``pascal``."""
    driver: int
    """The NVIDIA driver branch that supports all of them in the cluster."""
    open_kernel_modules: bool
