"""The password of MLflow's database."""

from __future__ import annotations

import re
import secrets
import string
from typing import Final

from infra.drive.secrets.store import SecretsError, Store, ensure

DATABASE: Final = "tracking/database"

_ALLOWED: Final = re.compile(r"[!-~]{8,128}")
_REFUSED: Final = "/'\"@"
"""RDS, CreateDBInstance, ``MasterUserPassword``, for PostgreSQL: 8 to 128 printable characters of ASCII other
than these and a space."""


def database_password(store: Store) -> str:
    """It is made and kept if there is none. ``SecretsError`` for one that RDS would refuse."""

    def fresh() -> str:
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))

    password = ensure(store, [DATABASE], fresh)[DATABASE]
    if not _ALLOWED.fullmatch(password) or any(letter in _REFUSED for letter in password):
        raise SecretsError(
            f"{store}: {DATABASE}: RDS takes 8 to 128 printable characters other than / ' \" @ and space; "
            "put such a password there, or delete it before the database exists and a good one is made"
        )
    return password
