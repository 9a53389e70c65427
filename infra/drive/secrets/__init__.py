"""Tunnel keys and other secrets behind one small interface, and where each environment keeps them."""

from infra.drive.secrets.opening import open_store
from infra.drive.secrets.store import SecretsError, Store, ensure
from infra.drive.secrets.tunnels import gateway_keys, tunnel_key, tunnel_keys

__all__ = ["SecretsError", "Store", "ensure", "gateway_keys", "open_store", "tunnel_key", "tunnel_keys"]
