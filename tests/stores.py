"""Stores of secrets on this machine, without the developer's own keys."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from infra.drive.kubernetes import secrets
from infra.drive.kubernetes.secrets import Keys
from infra.drive.secrets.local import LocalStore


def local_store(folder: Path, environment: str = "test") -> LocalStore:
    """Secrets in ``folder``, encrypted with a key in ``folder``."""
    return LocalStore(environment, folder / ".secrets", {"XDG_CONFIG_HOME": str(folder / "config")})


def cluster_keys(folder: Path) -> Keys:
    """The keys of a new cluster."""
    return secrets.made(local_store(folder), datetime.now(UTC))
