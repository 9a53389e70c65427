"""Secrets that are generated and stored: pre-shared keys of VPN tunnels, the password of MLflow's
database."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Collection, Iterable
from typing import Final

from infra.drive.secrets.store import SecretsError, Store, ensure
from infra.model.cluster import Cluster
from infra.model.tunnels import SiteGateway

LENGTH: Final = 64
"""The maximum length that AWS accepts; 379 bits of entropy."""

_ALLOWED = re.compile(r"[A-Za-z1-9._][A-Za-z0-9._]{7,63}")
"""AWS Site-to-Site VPN, "Tunnel options": 8 to 64 letters, digits, '.' and '_', no 0 at the start."""

_CHARACTERS: Final = string.ascii_letters + string.digits
"""Without dot and underscore, so that every tool treats a key as one word."""


def tunnel_key() -> str:
    """A new key.

    It never starts with ``0``: AWS refuses that, and strongSwan would decode the rest after ``0x`` as hex
    and after ``0s`` as base64.
    """
    first = secrets.choice(_CHARACTERS.replace("0", ""))
    return first + "".join(secrets.choice(_CHARACTERS) for _ in range(LENGTH - 1))


def tunnel_keys(cluster: Cluster, store: Store) -> dict[str, str]:
    """``Tunnel.secret`` → key, for both tunnels of every link; missing keys are generated and stored.

    Raises ``SecretsError`` for a stored value that AWS would refuse during an apply.
    """
    return _keys([tunnel.secret for link in cluster.network.links for tunnel in link.tunnels], store)


def gateway_keys(gateways: Iterable[SiteGateway], store: Store) -> dict[str, str]:
    """``SiteTunnel.secret`` → key, for all tunnels of physical sites' gateways, to AWS and to each other;
    missing keys are generated and stored."""
    return _keys(dict.fromkeys(tunnel.secret for each in gateways for tunnel in each.tunnels), store)


def _keys(names: Collection[str], store: Store) -> dict[str, str]:
    if not names:
        return {}
    keys = ensure(store, names, tunnel_key)
    if wrong := [name for name, key in keys.items() if not _ALLOWED.fullmatch(key)]:
        raise SecretsError(
            f"{store}: {', '.join(wrong)}: AWS takes a tunnel key of 8 to 64 letters, digits, '.' and '_' "
            "that does not start with 0; put one there, or delete it and a good one is made"
        )
    return keys


DATABASE: Final = "tracking/database"

_RDS_ALLOWED: Final = re.compile(r"[!-~]{8,128}")
_REFUSED: Final = "/'\"@"
"""RDS, CreateDBInstance, ``MasterUserPassword``, for PostgreSQL: 8 to 128 printable ASCII characters except
these and the space."""


def database_password(store: Store) -> str:
    """The password; generated and stored if missing. Raises ``SecretsError`` for one that RDS would
    refuse."""

    def fresh() -> str:
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))

    password = ensure(store, [DATABASE], fresh)[DATABASE]
    if not _RDS_ALLOWED.fullmatch(password) or any(letter in _REFUSED for letter in password):
        raise SecretsError(
            f"{store}: {DATABASE}: RDS takes 8 to 128 printable characters other than / ' \" @ and space; "
            "put such a password there, or delete it before the database exists and a good one is made"
        )
    return password
