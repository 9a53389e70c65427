"""Access to the API: its address, and credentials valid for an hour, issued by the cluster's CA.

They are files while a command runs, in a folder of mode 0700 below ``build/<env>/state``, as kubectl and
helm only read files.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from infra.drive import build_folders, clock, secret_files
from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.certificates import Pair
from infra.errors import UsageError
from infra.model import Cluster

ADDRESS: Final = "CAUSEWAY_API"
"""The environment variable with another address of the API, ``127.0.0.1:6443``: the end of an SSH tunnel.
The server's certificate must still be valid for its own name."""

LIFE: Final = timedelta(hours=1)
_RENEWED: Final = timedelta(minutes=20)
"""Credentials that expire sooner are renewed before use."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)

SUPER: Final = "system:masters"
"""The group that RBAC cannot restrict, so that a cluster with broken bindings can be repaired."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of the API."""

    name: str
    """The name in its certificate: ``api.research.internal``."""
    address: str
    """``host:port`` to connect to."""

    @property
    def url(self) -> str:
        return f"https://{self.address}"


def endpoint(cluster: Cluster) -> Endpoint:
    """The API of a cluster. Raises ``UsageError`` for a cluster without a control plane."""
    plane = cluster.control_plane
    if plane is None:
        raise UsageError(f"{cluster.environment} has no control plane: it has no AWS region")
    return Endpoint(plane.endpoint, os.environ.get(ADDRESS) or f"{plane.endpoint}:{plane.port}")


@dataclass(slots=True)
class Access:
    """Access to the API by files."""

    endpoint: Endpoint
    folder: Path
    authority: Pair = field(repr=False)
    ends: datetime = _NEVER
    made: int = 0
    """How often the credentials were written; cached connections are outdated if it changes."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file, with credentials that are not about to expire."""
        self.ensure()
        return self.folder / "kubeconfig"

    def ensure(self) -> None:
        """Write or renew the credentials if needed."""
        with self.lock:
            now = clock.now()
            if self.ends - now <= _RENEWED:
                self._make(now)

    def _make(self, now: datetime) -> None:
        pair = certificates.client(self.authority, who(), [SUPER], now, LIFE)
        for name, text in (
            ("ca.crt", self.authority.certificate),
            ("client.crt", pair.certificate),
            ("client.key", pair.key),
            ("kubeconfig", json.dumps(_by_file(self.endpoint), indent=1)),
        ):
            secret_files.write_file(self.folder / name, text)
        self.ends = pair.ends
        self.made += 1


@contextmanager
def opened(build: Path, where: Endpoint, authority: Pair) -> Iterator[Access]:
    """Administrator access to the API while the block runs."""
    state = build_folders.private(build / "state")
    _sweep(state)
    folder = Path(mkdtemp(prefix="kube-", dir=state)).absolute()
    try:
        yield Access(where, folder, authority)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def who() -> str:
    """The user name for the API server's audit log."""
    try:
        login = getpass.getuser()
    except (KeyError, OSError):
        login = str(os.getuid())
    return f"causeway:{login}@{socket.gethostname()}"[:64]


def kubeconfig(
    where: Endpoint, authority: str, *, cluster: str, user: str, credentials: dict[str, Any]
) -> dict[str, Any]:
    """A kubeconfig as a JSON object. ``credentials`` are the user's, ``authority`` is PEM."""
    import base64

    return _document(
        where,
        {"certificate-authority-data": base64.b64encode(authority.encode()).decode()},
        cluster=cluster,
        user=user,
        credentials=credentials,
    )


def _by_file(where: Endpoint) -> dict[str, Any]:
    return _document(
        where,
        {"certificate-authority": "ca.crt"},
        cluster="cluster",
        user="causeway",
        credentials={"client-certificate": "client.crt", "client-key": "client.key"},
    )


def _document(
    where: Endpoint, authority: dict[str, Any], *, cluster: str, user: str, credentials: dict[str, Any]
) -> dict[str, Any]:
    elsewhere = {} if where.address.rpartition(":")[0] == where.name else {"tls-server-name": where.name}
    context = f"{user}@{cluster}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": where.url, **elsewhere, **authority}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": context, "context": {"cluster": cluster, "user": user}}],
        "current-context": context,
    }


def _sweep(state: Path) -> None:
    """Delete the folders of runs that were killed."""
    for left in state.glob("kube-*"):
        if left.is_dir() and clock.now().timestamp() - left.stat().st_mtime > 4 * LIFE.total_seconds():
            shutil.rmtree(left, ignore_errors=True)
