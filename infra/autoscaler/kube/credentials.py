"""Address of the API and credentials, read with the ``kubernetes`` package's loaders.

The loaders support kubeconfigs with client certificates, tokens and exec plugins, and the service account of
a pod. They read files once; here they are read again, as files change while a controller runs for months:
the kubelet replaces a pod's token each hour, certificates are renewed, a CA is replaced.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from infra.errors import UsageError

_FRESH: Final = 60.0
"""Seconds for which files are assumed to be unchanged."""
_AGAIN: Final = 5.0
"""Seconds after which credentials that could not be read, or were refused, are read again."""
_CONNECTIONS: Final = 64
"""Connections to the API kept open: one watch per kind, and some for writers."""

# TCP keepalive detects a dead peer within half a minute, also on an idle watch.
_KEEPALIVE: Final = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, option), value)
        for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, option)
    ),
]


@dataclass(frozen=True, slots=True)
class Way:
    """The connection settings of a request."""

    pool: Any
    """urllib3's PoolManager."""
    url: str
    headers: Mapping[str, str]


class Credentials:
    """The current context of a kubeconfig, or with None the service account of this pod."""

    def __init__(
        self, kubeconfig: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._lock = threading.Lock()
        self._made: Any = None
        self._pool: Any = None
        self._seal = b""
        self._read = 0.0
        self._lasts = 0.0

    def way(self) -> Way:
        """The current settings. Raises ``UsageError`` if there never were any; if files cannot be read
        again, the previous ones are used."""
        with self._lock:
            now = self._clock()
            if self._made is None or now >= self._lasts:
                self._load(now)
            setting = self._made.auth_settings().get("BearerToken") or {}
            token = str(setting.get("value") or "").strip()
            headers = {"authorization": token} if token else {}
            return Way(self._pool, str(self._made.host), headers)

    def refused(self) -> None:
        """The API refused the credentials (401): they are read again, at most every few seconds."""
        with self._lock:
            self._lasts = min(self._lasts, self._read + _AGAIN)

    def _load(self, now: float) -> None:
        from kubernetes import config
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

        self._read = now
        made = Configuration()
        try:
            if self._kubeconfig is None:
                config.load_incluster_config(client_configuration=made)
            else:
                config.load_kube_config(
                    config_file=str(self._kubeconfig), client_configuration=made, persist_config=False
                )
            made.retries = False
            made.socket_options = _KEEPALIVE
            made.connection_pool_maxsize = _CONNECTIONS
            seal = _seal(made)
            if seal != self._seal:
                pool = RESTClientObject(made).pool_manager
        except (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as problem:
            self._lasts = now + _AGAIN
            if self._made is not None:
                return
            raise self._unusable(problem) from problem
        if seal != self._seal:
            if self._pool is not None:
                self._pool.clear()  # connections in use are closed by their users
            self._pool, self._seal = pool, seal
        self._made = made
        self._lasts = float("inf") if self._runs_a_command() else now + _FRESH

    def _runs_a_command(self) -> bool:
        # The loader itself runs the exec plugin again when its token expires.
        if self._kubeconfig is None:
            return False
        try:
            users = (yaml.safe_load(self._kubeconfig.read_text()) or {}).get("users") or []
        except (OSError, yaml.YAMLError, AttributeError):
            return False
        return any("exec" in (each.get("user") or {}) for each in users)

    def _unusable(self, problem: Exception) -> UsageError:
        if self._kubeconfig is None:
            return UsageError(
                f"no way to the Kubernetes API: {problem} This is not a pod with a service account; "
                "name a kubeconfig with --kubeconfig"
            )
        return UsageError(f"{self._kubeconfig}: no way to the Kubernetes API in it: {problem}")


def _seal(made: Any) -> bytes:
    """A key that is equal for settings that can share a connection pool."""
    digest = hashlib.sha256()
    for each in (made.host, made.verify_ssl, made.tls_server_name, made.proxy, made.no_proxy):
        digest.update(repr(each).encode())
    for path in (made.ssl_ca_cert, made.cert_file, made.key_file):
        digest.update(b"\0" + (Path(path).read_bytes() if path else b""))
    return digest.digest()
