"""Tunnel keys and other secrets behind one small interface, and where each environment keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.drive.secrets.generated import DATABASE, database_password, gateway_keys, tunnel_key, tunnel_keys
from infra.drive.secrets.local import LocalStore
from infra.drive.secrets.ssm import SsmStore
from infra.drive.secrets.store import SecretsError, Store, ensure
from infra.model.cluster import Secrets

__all__ = [
    "DATABASE",
    "SecretsError",
    "Store",
    "database_password",
    "ensure",
    "gateway_keys",
    "open_store",
    "tunnel_key",
    "tunnel_keys",
]


def open_store(secrets: Secrets, environment: str, folder: Path, env: Mapping[str, str]) -> Store:
    """The store of an environment. Nothing is read or made before the first secret is asked for.

    ``folder`` is where local stores are: ``.secrets`` in the project's folder. It is not below ``build``,
    which anybody may delete at any time. ``env`` is as Terraform sees it: credentials, AWS_ENDPOINT_URL; for
    a local store CAUSEWAY_SECRETS_KEY.
    """
    if secrets.store == "ssm":
        return SsmStore(secrets.prefix, secrets.region, environment, env)
    return LocalStore(environment, folder, env)
