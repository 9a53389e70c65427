"""Tunnel keys and other secrets behind one small interface, and where each environment keeps them."""

from infra.drive.secrets.database import DATABASE, database_password
from infra.drive.secrets.open_store import open_store
from infra.drive.secrets.store import SecretsError, Store, ensure
from infra.drive.secrets.tunnels import gateway_keys, tunnel_key, tunnel_keys

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
