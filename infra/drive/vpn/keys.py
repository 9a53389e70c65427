"""The pre-shared keys of a gateway's tunnels, as strongSwan reads them.

The text holds secrets: it goes to ``/etc/swanctl/conf.d/90-keys.conf`` with mode 0600, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from infra.drive.secrets.store import SecretsError
from infra.model.outputs import Outputs
from infra.model.tunnels import SiteGateway

KEYS_FILE: Final = "etc/swanctl/conf.d/90-keys.conf"
"""On the gateway, relative to ``/``."""

_PLAIN = re.compile(r"(?!0[xXsS])[ -~]+")
"""Printable ASCII; after ``0x`` strongSwan reads on as hex, after ``0s`` as base64 (swanctl.conf(5))."""


def keys(gateway: SiteGateway, outputs: Outputs, kept: Mapping[str, str]) -> str:
    """The ``secrets`` section with the key of every tunnel whose other end is known; ``kept`` is secret's
    name → key.

    ``SecretsError``, which never quotes a key, for one that is missing or that strongSwan would read as
    another.
    """
    entries = []
    for tunnel, remote in outputs.with_remote(gateway.tunnels):
        key = kept.get(tunnel.secret)
        if key is None:
            raise SecretsError(f"{tunnel.secret}: the tunnel {tunnel.name} of {gateway.site} has no key")
        if not _PLAIN.fullmatch(key):
            raise SecretsError(
                f"{tunnel.secret}: strongSwan would read this key as another one; it must be printable "
                "ASCII and must not begin with 0x or 0s: delete it and a good one is made"
            )
        entries.append(_entry(tunnel.name, str(remote), key))
    return "secrets {\n" + "".join(entries) + "}\n"


def _entry(name: str, remote: str, key: str) -> str:
    # The other end's identity alone, which no two tunnels share. strongSwan tries every key that has one of
    # both ends' identities: with ours in each, any tunnel's key would open all of them.
    return f"    ike-{name} {{\n        id = {remote}\n        secret = {_quoted(key)}\n    }}\n"


def _quoted(text: str) -> str:
    r"""A string of strongswan.conf(5): in double quotes, where ``\`` and ``"`` are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
