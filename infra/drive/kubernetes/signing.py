"""Certificates of users from the CertificateSigningRequest API (certificates.k8s.io/v1).

The key is generated on this computer and never sent. A master submits the request, approves it and prints
the certificate; kube-controller-manager signs it. This needs root access to a master. The master acts as
``KUBECONFIGS``, which may do only that (``render/kubernetes/access.py``).
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from infra.catalogue.identities import CLIENT_SIGNER, KUBECONFIGS
from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.certificates import Pair
from infra.drive.ssh import Machine, UnreachedError
from infra.errors import DriveError

_SCRIPT: Final = """\
set -eu
as() { command kubectl --kubeconfig /etc/kubernetes/admin.conf --as "$user" --request-timeout 30s "$@"; }
user=$1 request=$2
trap 'as delete csr "$request" --ignore-not-found >&2' EXIT
as create --filename - >&2
as certificate approve "$request" >&2
as wait csr "$request" --for 'jsonpath={.status.certificate}' --timeout 60s >&2
as get csr "$request" --output 'jsonpath={.status.certificate}' | base64 --decode
cat /etc/kubernetes/pki/ca.crt
"""
"""Prints the certificate, then that of the cluster's CA."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate with its key, and the CA certificate that verifies the API server."""

    pair: Pair
    authority: str


def sign(masters: Sequence[Machine], login: str, groups: Iterable[str], life: timedelta) -> Signed:
    """A new certificate of a user, from the first master that can be reached.

    Raises:
        UnreachedError: No master can be reached.
        RemoteError: The API refused, or nothing was signed.
    """
    asked, key = certificates.request(login, groups)
    # Random, so that no other request can have this name and be approved instead.
    name = f"{login}-{secrets.token_hex(8)}"
    words = ("sh", "-c", _SCRIPT, "causeway", KUBECONFIGS, name)
    manifest = _manifest(name, asked, life).encode()
    said, master = _first(masters, lambda each: each.run(*words, stdin=manifest, timeout=180, shown=name))
    certificate, authority = _both(said, master)
    try:
        pair = certificates.split(certificate + key)
    except ValueError as problem:
        raise DriveError(f"{master.name}: the certificate for {login} cannot be used: {problem}") from None
    return Signed(pair, authority)


def authority(masters: Sequence[Machine]) -> str:
    """The cluster's CA certificate, from the first master that can be reached. Raises ``UnreachedError`` if
    none can."""
    return _first(masters, lambda each: each.run("cat", "/etc/kubernetes/pki/ca.crt", timeout=60))[0]


def _first(masters: Sequence[Machine], ask: Callable[[Machine], str]) -> tuple[str, Machine]:
    """The answer of the first master that can be reached, and which it was."""
    problems = []
    for master in masters:
        try:
            return ask(master), master
        except UnreachedError as problem:
            problems.append(str(problem))
    raise UnreachedError("\n".join(problems))


def _manifest(name: str, request: str, life: timedelta) -> str:
    return json.dumps(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(request.encode()).decode(),
                "signerName": CLIENT_SIGNER,
                "expirationSeconds": int(life.total_seconds()),
                "usages": ["digital signature", "client auth"],
            },
        }
    )


def _both(said: str, master: Machine) -> tuple[str, str]:
    end = "-----END CERTIFICATE-----\n"
    found = [f"{each}{end}" for each in said.split(end)[:-1]]
    if len(found) != 2:
        raise DriveError(
            f"{master.name}: printed {len(found)} certificates instead of the user's and the CA's"
        )
    return found[0], found[1]
