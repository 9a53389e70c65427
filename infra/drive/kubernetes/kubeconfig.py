"""People's way to the cluster: a kubeconfig with a short-lived certificate, or with a command that gets one.

Kubernetes knows no revocation list. Whoever holds a certificate is who it says until it ends; what can
be taken at once is what that user may do. So rights hang on users and never on the groups in a
certificate, certificates are short-lived, and the store remembers until when the last one holds.
"""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from infra.drive.kubernetes import access, certificates, secrets
from infra.drive.kubernetes.access import Endpoint
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.certificates import Pair
from infra.drive.secrets.store import Store
from infra.errors import DriveError

GROUP: Final = "causeway:"
"""Before each of a user's groups, in certificates."""

EXEC_LIFE: Final = timedelta(hours=1)

_BINDINGS: Final = (
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)


def issue(
    store: Store, authority: Pair, login: str, groups: Iterable[str], now: datetime, life: timedelta
) -> Pair:
    """A certificate for a user. Remembered before it is handed out. ``DriveError`` for one whose earlier
    certificates were revoked and still hold: a new one would be no different from them."""
    if until := secrets.locked_out(store, now).get(login):
        raise DriveError(
            f"{login}'s credentials were revoked, and hold until {until:%Y-%m-%d %H:%M} UTC: whoever has "
            f"them would have {login}'s rights again. There are new ones after that"
        )
    before = secrets.issued(store).get(login)
    if before is not None and before.revoked:
        secrets.readmit(store, login)
    pair = certificates.client(authority, login, [f"{GROUP}{each}" for each in groups], now, life)
    secrets.remember(store, login, pair.ends)
    return pair


def with_certificate(where: Endpoint, authority: str, cluster: str, login: str, pair: Pair) -> dict[str, Any]:
    """A kubeconfig that holds the certificate."""
    credentials = {
        "client-certificate-data": base64.b64encode(pair.certificate.encode()).decode(),
        "client-key-data": base64.b64encode(pair.key.encode()).decode(),
    }
    return access.kubeconfig(where, authority, cluster=cluster, user=login, credentials=credentials)


def with_command(
    where: Endpoint, authority: str, cluster: str, login: str, *, folder: Path, environment: str
) -> dict[str, Any]:
    """A kubeconfig whose credentials are fetched when they are needed, by whoever can open the store
    (client.authentication.k8s.io/v1). kubectl runs the command where it is itself, and often outside of our
    virtual environment: hence the folder, and the interpreter."""
    words = [sys.executable, "-m", "invoke", "kubeconfig.credential", "--env", environment, "--user", login]
    script = f"cd {shlex.quote(str(folder))} && exec {shlex.join(words)}"
    credentials = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script],
            "interactiveMode": "Never",
            "installHint": "Causeway gives these credentials, in its project's folder",
        }
    }
    return access.kubeconfig(where, authority, cluster=cluster, user=login, credentials=credentials)


def exec_credential(pair: Pair) -> dict[str, Any]:
    """What such a command prints."""
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            # Renewed a little before its end.
            "expirationTimestamp": f"{pair.ends - timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}",
            "clientCertificateData": pair.certificate,
            "clientKeyData": pair.key,
        },
    }


def strip(api: Api, login: str) -> list[str]:
    """Remove a user from all bindings, including manual ones. Returns the names of the changed bindings. That
    user then has only the rights that everybody has."""
    changed = []
    for path in _BINDINGS:
        for binding in api.list(path):
            subjects = binding.get("subjects") or []
            left = [each for each in subjects if (each.get("kind"), each.get("name")) != ("User", login)]
            if left == subjects:
                continue
            about = binding["metadata"]
            place = f"namespaces/{about['namespace']}/" if about.get("namespace") else ""
            folder, _, kind = path.rpartition("/")
            # With its version: a change that somebody makes at this moment is not undone.
            body = {"metadata": {"resourceVersion": about["resourceVersion"]}, "subjects": left}
            api.patch(f"{folder}/{place}{kind}/{about['name']}", body)
            changed.append("/".join(filter(None, (about.get("namespace"), about["name"]))))
    return changed


def tokens(api: Api, namespaces: Collection[str]) -> list[str]:
    """Secrets in these namespaces with a service account token. Such a token does not expire: a user who
    could read it may still have it."""
    kind = "type=kubernetes.io/service-account-token"
    return sorted(
        f"{namespace}/{each['metadata']['name']}"
        for namespace in namespaces
        for each in api.list(f"/api/v1/namespaces/{namespace}/secrets", fieldSelector=kind)
    )
