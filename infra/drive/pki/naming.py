"""Which names a certificate may have, so that all tools read them alike."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from infra.drive.pki.problems import PkiError

LONGEST: Final = 64
"""Characters of a common name: ub-common-name in RFC 5280, appendix A, and what OpenVPN takes."""

_WORD = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
"""OpenVPN replaces all characters but letters, digits and ``_-.@:/`` in a common name, and names files after
it."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_DNS = re.compile(rf"(?=.{{1,253}}$)(\*\.)?{_LABEL}(\.{_LABEL})*")


def fitting(common: str) -> str:
    """The common name unchanged. Raises ``PkiError`` if it is too long."""
    if len(common) > LONGEST:
        raise PkiError(f"{common[:80]!r} is too long for a certificate: {LONGEST} characters at most")
    return common


def client(user: str, device: str, servers: str) -> str:
    """``ada`` or ``ada@phone``. Raises ``PkiError`` for names that OpenVPN would change, or take for a
    server."""
    for word, what in ((user, "user"), (device, "device")):
        if not _WORD.fullmatch(word) and (word or what == "user"):
            raise PkiError(
                f"{word[:80]!r} can't be the name of a {what}: letters, digits, '_', '-' and '.' make it, "
                "and it begins with neither '.' nor '-' and does not end with '.'"
            )
    if user == servers:
        raise PkiError(f"{user!r} can't be the name of a user: it is the servers' own")
    return fitting(f"{user}@{device}" if device else user)


def alternatives(names: Iterable[str]) -> tuple[str, ...]:
    """A server's DNS names and addresses in canonical form, without duplicates."""
    found: list[str] = []
    for name in names:
        try:
            usual = str(ipaddress.ip_address(name))
        except ValueError:
            usual = name.lower()
            if not _DNS.fullmatch(usual):
                raise PkiError(f"{name[:80]!r} is neither a DNS name nor an address of a server") from None
        found.append(usual)
    return tuple(dict.fromkeys(found))
