"""The cluster's CAs, and short-lived certificates of users and programs. Functions without a store or a
clock.

Names are kubeadm's (Kubernetes, "PKI certificates and requirements"). The key that signs service account
tokens is RSA: RS256 is the only algorithm that all consumers of such tokens support.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from infra.drive import x509_builder
from infra.drive.x509_builder import Kind

AUTHORITY_DAYS: Final = 3652


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: str
    key: str = field(repr=False)

    def joined(self) -> str:
        """Both as one text, so that a store cannot end up with a certificate and a key of different
        authors."""
        return self.certificate + self.key

    @property
    def ends(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate.encode()).not_valid_after_utc


def split(text: str) -> Pair:
    """Parse the result of ``Pair.joined``. Raises ValueError for anything else."""
    certificate, begin, key = text.partition("-----BEGIN PRIVATE KEY-----")
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    public = serialization.load_pem_private_key((begin + key).encode(), None).public_key()
    if _spki(public) != _spki(loaded.public_key()):
        raise ValueError("the key is not the certificate's")
    return Pair(certificate, begin + key)


def authority(name: str, now: datetime) -> Pair:
    """A self-signed CA certificate, valid for ten years."""
    key = x509_builder.new_key()
    made = x509_builder.root(key, name, now, AUTHORITY_DAYS, path=None, signs=True)
    return Pair(x509_builder.pem(made), x509_builder.key_pem(key))


def client(issuer: Pair, name: str, organisations: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A client certificate for the API: user ``name`` in groups ``organisations``. It expires no later than
    its issuer (Kubernetes, "Authenticating", X509 client certificates)."""
    return _issued(issuer, "client", x509_builder.subject_of(name, organisations), (), now, life)


def server(issuer: Pair, name: str, names: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A server's certificate for DNS names."""
    return _issued(issuer, "server", x509_builder.subject_of(name), names, now, life)


def _issued(
    issuer: Pair, kind: Kind, subject: x509.Name, names: Iterable[str], now: datetime, life: timedelta
) -> Pair:
    parent = x509.load_pem_x509_certificate(issuer.certificate.encode())
    signer = x509_builder.signer(serialization.load_pem_private_key(issuer.key.encode(), None))
    key = x509_builder.new_key()
    made = x509_builder.end_entity(key.public_key(), kind, subject, names, parent, signer, now, life)
    return Pair(x509_builder.pem(made), x509_builder.key_pem(key))


def request(name: str, organisations: Iterable[str]) -> tuple[str, str]:
    """A certificate signing request (PKCS #10) for user ``name`` in groups ``organisations``, and its key."""
    key = x509_builder.new_key()
    made = x509.CertificateSigningRequestBuilder().subject_name(x509_builder.subject_of(name, organisations))
    signed = made.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), x509_builder.key_pem(key)


def account_key() -> str:
    """A new key for service account tokens, PEM."""
    return x509_builder.key_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def public_of(key: str) -> str:
    """The public key of a private key, PEM."""
    loaded = serialization.load_pem_private_key(key.encode(), None)
    return (
        loaded.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def key_id(key: str) -> str:
    """The ``kid`` of tokens signed with a private key: the SHA-256 of its public key (Kubernetes,
    pkg/serviceaccount/jwt.go, keyIDFromPublicKey)."""
    loaded = serialization.load_pem_private_key(key.encode(), None)
    digest = hashlib.sha256(_spki(loaded.public_key())).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def pin(certificate: str) -> str:
    """``sha256:…`` of a CA's public key, in kubeadm's format (RFC 7469; kubeadm join,
    ``--discovery-token-ca-cert-hash``)."""
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    return f"sha256:{hashlib.sha256(_spki(loaded.public_key())).hexdigest()}"


def _spki(key: object) -> bytes:
    return cast("ec.EllipticCurvePublicKey", key).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
