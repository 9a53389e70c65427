"""Kubeconfigs of users, with a short-lived certificate, or with a command that gets one.

Kubernetes has no certificate revocation: a certificate is valid until it expires, but the user's rights can
be removed immediately. So rights are bound to users and never to the groups in a certificate, certificates
are short-lived, and the store records when the last one expires.
"""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from infra.drive import build_folders, secret_files
from infra.drive.kubernetes import access, certificates, secrets, signing
from infra.drive.kubernetes.access import Endpoint
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.certificates import Pair
from infra.drive.kubernetes.signing import Signed
from infra.drive.secrets.store import Store
from infra.drive.ssh import Machine
from infra.errors import DriveError
from infra.model.platform import Oidc

GROUP: Final = "causeway:"
"""The prefix of a user's groups in certificates."""

EXEC_LIFE: Final = timedelta(hours=1)
_EARLY: Final = timedelta(minutes=5)
"""kubectl requests a new certificate this long before the current one expires."""

_BINDINGS: Final = (
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)


def issue(
    store: Store,
    masters: Sequence[Machine],
    login: str,
    groups: Iterable[str],
    now: datetime,
    life: timedelta,
) -> Signed:
    """A certificate for a user. It is recorded before it is returned.

    Raises:
        DriveError: An earlier certificate was revoked and has not expired. Issuing a new one would restore
            the rights of that one too.
    """
    require_admitted(store, login, now)
    before = secrets.issued(store).get(login)
    if before is not None and before.revoked:
        secrets.readmit(store, login)
    signed = signing.sign(masters, login, [f"{GROUP}{each}" for each in groups], life)
    secrets.remember(store, login, signed.pair.ends)
    return signed


def require_admitted(store: Store, login: str, now: datetime) -> None:
    """Raise ``DriveError`` if the user's certificates were revoked and have not expired."""
    if until := secrets.locked_out(store, now).get(login):
        raise DriveError(
            f"{login}'s credentials were revoked, and hold until {until:%Y-%m-%d %H:%M} UTC: whoever has "
            f"them would have {login}'s rights again. There are new ones after that"
        )


def with_certificate(where: Endpoint, authority: str, cluster: str, login: str, pair: Pair) -> dict[str, Any]:
    """A kubeconfig with the certificate."""
    credentials = {
        "client-certificate-data": base64.b64encode(pair.certificate.encode()).decode(),
        "client-key-data": base64.b64encode(pair.key.encode()).decode(),
    }
    return access.kubeconfig(where, authority, cluster=cluster, user=login, credentials=credentials)


def with_command(
    where: Endpoint, authority: str, cluster: str, login: str, *, folder: Path, environment: str
) -> dict[str, Any]:
    """A kubeconfig with an exec plugin that fetches credentials, for engineers with root access to a master
    (client.authentication.k8s.io/v1). kubectl runs the command in its own working folder, and often
    outside of our virtual environment: hence the folder, and the interpreter."""
    words = [sys.executable, "-m", "invoke", "kubeconfig.credential", "--env", environment, "--user", login]
    script = f"cd {shlex.quote(str(folder))} && exec {shlex.join(words)}"
    credentials = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script],
            "interactiveMode": "Never",
            "installHint": "Causeway issues these credentials; run it in its project's folder",
        }
    }
    return access.kubeconfig(where, authority, cluster=cluster, user=login, credentials=credentials)


def with_single_sign_on(
    where: Endpoint, authority: str, cluster: str, login: str, oidc: Oidc
) -> dict[str, Any]:
    """A kubeconfig without secrets: kubelogin (int128/kubelogin, a kubectl plugin) opens the issuer's login
    page and caches the token (client.authentication.k8s.io/v1)."""
    scope = {"email": ["email"], "sub": []}.get(oidc.claim, ["profile"])
    trusted = [f"--certificate-authority-data={_base64(oidc.authority)}"] if oidc.authority else []
    credentials = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "kubectl",
            "args": [
                *("oidc-login", "get-token"),
                f"--oidc-issuer-url={oidc.issuer}",
                f"--oidc-client-id={oidc.client}",
                *(f"--oidc-extra-scope={each}" for each in scope),
                *trusted,
            ],
            "interactiveMode": "IfAvailable",
            "provideClusterInfo": False,
            "installHint": "it is in kubelogin: kubectl krew install oidc-login, or brew install kubelogin",
        }
    }
    return access.kubeconfig(where, authority, cluster=cluster, user=login, credentials=credentials)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def exec_credential(pair: Pair) -> dict[str, Any]:
    """The output of the exec plugin."""
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "expirationTimestamp": f"{pair.ends - _EARLY:%Y-%m-%dT%H:%M:%SZ}",
            "clientCertificateData": pair.certificate,
            "clientKeyData": pair.key,
        },
    }


def keep(build: Path, login: str, pair: Pair) -> None:
    """Save a user's certificate for the next ``kubectl``."""
    build_folders.private(build / "state")
    secret_files.write_file(_file(build, login), pair.joined())


def kept(build: Path, login: str, now: datetime) -> Pair | None:
    """The saved certificate; None if there is none, or it is about to expire."""
    try:
        pair = certificates.split(_file(build, login).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
    return pair if pair.ends - now > 2 * _EARLY else None


def _file(build: Path, login: str) -> Path:
    return build / "state" / "credentials" / f"{login}.pem"


def strip(api: Api, login: str) -> list[str]:
    """Remove a user from all bindings, including manual ones. Returns the names of the changed bindings. The
    user then has only the rights of every authenticated user."""
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
            # With its resourceVersion, so that a concurrent change is not overwritten.
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
