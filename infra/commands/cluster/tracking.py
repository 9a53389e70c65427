"""What MLflow needs that no rendered file has: its database's password, and who signs its certificate."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from infra.errors import DriveError

if TYPE_CHECKING:
    from infra.drive.kubernetes.api import Api
    from infra.drive.secrets import Store
    from infra.model.tracking import ManagedDatabase

PART: Final = "tracking"
"""The part whose servers wait for it; its namespace comes with an earlier one."""


def bring_access(
    api: Api, store: Store, managed: ManagedDatabase | None, fetch: Callable[[str], str] | None = None
) -> str:
    """The Secret has the password that the store has, which is made where it has none, and for a database at
    RDS the authorities of its region: what was done. Authorities that can't be fetched stay as they are."""
    from infra.drive import database_authorities
    from infra.drive.kubernetes import secret_objects
    from infra.drive.secrets import database_password
    from infra.render.kubernetes.tracking_database import AUTHORITIES, SECRET
    from infra.render.kubernetes.tracking_service import NAMESPACE

    values, note = {"password": database_password(store)}, ""
    if managed is not None:
        try:
            values[AUTHORITIES] = (fetch or database_authorities.fetch)(managed.region)
        except DriveError as problem:
            found = api.find(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}") or {}
            had = (found.get("data") or {}).get(AUTHORITIES)
            if had is None:
                raise DriveError(f"who signs the certificate of MLflow's database: {problem}") from None
            values[AUTHORITIES] = base64.b64decode(had).decode()
            note = f"; authorities as before: {problem}"
    return secret_objects.put(api, NAMESPACE, SECRET, values) + note
