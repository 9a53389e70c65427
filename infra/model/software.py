"""What is installed on machines from outside of their distribution, each in one version."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Pin(Struct, frozen=True):
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


class Client(Struct, frozen=True):
    """What runs cookbooks on machines."""

    name: str
    """``cinc`` or ``chef``: its package, its program is ``/opt/<name>/bin/<name>-client``."""
    version: str
    url: str
    """Of its package; ``%{arch}``, ``%{machine}`` and ``%{license}`` (a licence id) are left to who
    fetches it."""
    sha256: Mapping[str, str]
    """Of the package, by Debian's name of the architecture. What has none is not installed."""
    license: str | None
    """``chef_license`` of client.rb, where the user accepted it."""


class GpuFamily(Struct, frozen=True):
    """What machines with GPUs of one architecture have in common."""

    name: str
    """The architecture: ``pascal``."""
    driver: int
    """The NVIDIA driver branch that runs all of them that the cluster has."""
    open_kernel_modules: bool
