"""Settings common to all machines (MACH)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from infra.checks.facts import Facts
from infra.checks.images import PACKAGE
from infra.checks.registry import Finding, check
from infra.errors import Level, Path

_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
"""RFC 1123, section 2.1."""
_REGISTRY: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*(:\d{{1,5}})?|_default")
"""containerd, docs/hosts.md: a folder's name, with a port where the registry has one."""
_DOCKER: Final = frozenset(
    {"docker.com", "hub.docker.com", "index.docker.io", "registry-1.docker.io", "www.docker.io"}
)
"""Names that users mistake for Docker Hub's registry, ``docker.io``."""


def _is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        # Only digits and dots: a mistyped address (RFC 3696, section 2).
        return _HOST.fullmatch(text) is not None and not text.rpartition(".")[2].isdigit()
    return True


def _mirrors(facts: Facts) -> Iterator[tuple[Path, str]]:
    for registry, mirrors in facts.spec.machines.registry_mirrors.items():
        for index, mirror in enumerate(mirrors):
            yield ("machines", "registry_mirrors", registry, index), mirror


@check("MACH001", Level.ERROR, "A time server is neither a name nor an address.")
def time_servers(facts: Facts) -> Iterator[Finding]:
    for index, server in enumerate(facts.spec.machines.time_servers):
        if not _is_host(server):
            message = f"{server!r} is neither a name nor an address"
            yield Finding(
                ("machines", "time_servers", index), message, "as in ntp.lab.example, or 10.200.0.2"
            )


@check("MACH002", Level.ERROR, "A package's name is not valid in Debian.")
def packages(facts: Facts) -> Iterator[Finding]:
    for index, package in enumerate(facts.spec.machines.packages):
        if not PACKAGE.fullmatch(package):
            message = f"{package!r} is not the name of a Debian package"
            yield Finding(
                ("machines", "packages", index), message, "as apt-get takes it: htop, or htop=3.3.0-4"
            )


@check("MACH003", Level.ERROR, "The name of a mirrored registry is not a registry.")
def registries(facts: Facts) -> Iterator[Finding]:
    for registry in facts.spec.machines.registry_mirrors:
        path = ("machines", "registry_mirrors", registry)
        if registry.casefold() in _DOCKER:
            yield Finding(path, f"no image is named after {registry}", "did you mean docker.io?")
        elif not _REGISTRY.fullmatch(registry):
            yield Finding(
                path, f"{registry!r} is not a registry", "as images are named: docker.io, lab.example:5000"
            )


@check("MACH004", Level.ERROR, "A registry's mirror is not an address.")
def mirrors(facts: Facts) -> Iterator[Finding]:
    for path, mirror in _mirrors(facts):
        try:
            parts = urlsplit(mirror)
            sound = parts.scheme in ("https", "http") and _is_host(parts.hostname or "") and parts.port != 0
        except ValueError:
            sound = False
        if not sound or parts.query or parts.fragment or re.search(r"[\s\"\\]", mirror):
            yield Finding(
                path, f"{mirror!r} is not the address of a mirror", "as in https://mirror.lab.example"
            )
        elif parts.username is not None:
            message = "a mirror's address holds who asks, and everybody reads the spec"
            yield Finding(path, message, "have the mirror take anybody from the private network")


@check("MACH005", Level.WARNING, "A mirror of a registry is asked without TLS.")
def plain_mirrors(facts: Facts) -> Iterator[Finding]:
    for path, mirror in _mirrors(facts):
        if mirror.startswith("http://"):
            message = f"anyone between nodes and {mirror} decides what runs on every node"
            yield Finding(path, message, f"use https://{mirror.removeprefix('http://')}")
