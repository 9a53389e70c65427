"""Versions of software from outside of the distribution (SOFT)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from infra.catalogue import software
from infra.catalogue.software import ARCHITECTURES, Software
from infra.checks.facts import Facts
from infra.checks.phrases import listed, meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level, Path
from infra.schema.machines import Pin

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~_-]*")
"""Debian Policy 5.6.12, and PEP 440, which allows fewer characters."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PLACEHOLDER: Final = re.compile(r"%\{([^}]*)\}")
_FILLED: Final = ("arch", "machine")
"""Placeholders in a URL."""
_FETCHED: Final = ("archive", "signed", "client")
"""Installation methods with a URL."""


def _known(facts: Facts) -> Iterator[tuple[Path, Pin, Software]]:
    for name, pin in facts.spec.software.items():
        found = software.find(name)
        if found is not None:
            yield ("software", name), pin, found


@check("SOFT001", Level.ERROR, "Software that no cookbook installs.")
def known_name(facts: Facts) -> Iterator[Finding]:
    for name in facts.spec.software:
        if software.find(name) is None:
            hint = meant_one_of(name, software.names())
            yield Finding(("software", name), f"no cookbook installs {name}", hint)


@check("SOFT002", Level.ERROR, "The version of software is invalid.")
def version_form(facts: Facts) -> Iterator[Finding]:
    for path, pin, found in _known(facts):
        if not _VERSION.fullmatch(pin.version):
            hint = f"as in {found.version or '1.7.24-0ubuntu1~24.04.2'}"
            yield Finding((*path, "version"), f"{pin.version!r} is not a version", hint)


@check("SOFT003", Level.ERROR, "A checksum of software is invalid, or for an unsupported architecture.")
def checksum_form(facts: Facts) -> Iterator[Finding]:
    for path, pin, _ in _known(facts):
        for architecture, digest in pin.sha256.items():
            at = (*path, "sha256", architecture)
            if architecture not in ARCHITECTURES:
                message = f"{architecture} is not an architecture of machines"
                yield Finding(at, message, meant_one_of(architecture, ARCHITECTURES))
            elif not _SHA256.fullmatch(digest):
                message = "a SHA-256 has 64 hexadecimal digits in lower case"
                yield Finding(at, message, "as sha256sum prints it")


@check("SOFT004", Level.ERROR, "The download location of software is not a URL.")
def url_form(facts: Facts) -> Iterator[Finding]:
    for path, pin, _ in _known(facts):
        if pin.url is None:
            continue
        parts = urlsplit(pin.url)
        filled = (*_FILLED, "license") if path[-1] == "chef" else _FILLED
        unknown = [each for each in _PLACEHOLDER.findall(pin.url) if each not in filled]
        if parts.scheme not in ("https", "http") or not parts.netloc:
            yield Finding((*path, "url"), f"{pin.url!r} is not a download address", "as in https://…")
        elif unknown:
            message = f"nothing is known to put in for %{{{unknown[0]}}}"
            yield Finding(
                (*path, "url"), message, f"available: {listed([f'%{{{each}}}' for each in filled])}"
            )


@check(
    "SOFT005",
    Level.ERROR,
    "A download that nothing can check: another version than ours, without a checksum.",
)
def unchecked(facts: Facts) -> Iterator[Finding]:
    for path, pin, found in _known(facts):
        # A mirror serves the vendor's files, so the catalogue's checksums of its own version apply.
        if found.way not in ("archive", "client") or pin.sha256:
            continue
        if pin.version != found.version or not found.sha256:
            known = f"the sums we have are of {found.version}, not of {pin.version}"
            message = known if found.sha256 else f"no checksum is known for {found.name} {pin.version}"
            yield Finding(path, message, f"add 'sha256:' with {listed(ARCHITECTURES)}")


@check("SOFT006", Level.WARNING, "A download location for software that is installed by a package manager.")
def url_unused(facts: Facts) -> Iterator[Finding]:
    for path, pin, found in _known(facts):
        for field, stated in (("url", pin.url), ("sha256", pin.sha256)):
            if stated and found.way not in _FETCHED:
                message = f"{found.name} comes by {found.way}: this has no effect"
                yield Finding((*path, field), message, "take it out")


@check("SOFT007", Level.ERROR, "Chef Infra Client without the user's acceptance of its licence.")
def chef_unlicensed(facts: Facts) -> Iterator[Finding]:
    chosen = facts.spec.software.get("chef")
    if chosen is not None and chosen.license is None:
        message = "Chef Infra Client may be used under the licence of its makers alone"
        hint = "read it and add 'license: accept', or take 'chef:' out: CINC runs the same cookbooks"
        yield Finding(("software", "chef"), message, hint)


@check("SOFT008", Level.ERROR, "Two clients, where machines have one.")
def two_clients(facts: Facts) -> Iterator[Finding]:
    clients = [name for name in facts.spec.software if software.way_of(name) == "client"]
    if len(clients) > 1:
        message = f"{listed(clients)} are both named, and cookbooks are run by one of them"
        yield Finding(("software", clients[1]), message, "take one out")


@check("SOFT009", Level.WARNING, "A licence of software that needs none.")
def license_unused(facts: Facts) -> Iterator[Finding]:
    for path, pin, found in _known(facts):
        if pin.license is not None and found.name != "chef":
            yield Finding((*path, "license"), f"{found.name} needs none: this has no effect", "take it out")
