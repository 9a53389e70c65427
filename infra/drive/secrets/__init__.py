"""Tunnel keys and other secrets behind a small interface, and the store of each environment."""

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
    """The store of an environment. Nothing is read or created before the first secret is requested.

    ``folder`` is the folder of local stores: ``.secrets`` in the project. It is not below ``build``, which
    may be deleted at any time. ``env`` is the environment that Terraform gets: credentials,
    AWS_ENDPOINT_URL; for a local store also CAUSEWAY_SECRETS_KEY.
    """
    if secrets.store == "ssm":
        return SsmStore(secrets.prefix, secrets.region, environment, env)
    return LocalStore(environment, folder, env)
