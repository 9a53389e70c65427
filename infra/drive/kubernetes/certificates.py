"""The cluster's authorities, and short-lived certificates of people and programs. No store and no clock in
here.

Names are kubeadm's (Kubernetes, "PKI certificates and requirements"). The key that signs service accounts'
tokens is RSA: RS256 is the one algorithm that every reader of such tokens knows.
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
        """As one text: who keeps them apart may have them of two different makers."""
        return self.certificate + self.key

    @property
    def ends(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate.encode()).not_valid_after_utc


def split(text: str) -> Pair:
    """What ``Pair.joined`` made. ValueError for anything else."""
    certificate, begin, key = text.partition("-----BEGIN PRIVATE KEY-----")
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    public = serialization.load_pem_private_key((begin + key).encode(), None).public_key()
    if _spki(public) != _spki(loaded.public_key()):
        raise ValueError("the key is not the certificate's")
    return Pair(certificate, begin + key)


def authority(name: str, now: datetime) -> Pair:
    """A self-signed authority for ten years."""
    key = x509_builder.new_key()
    made = x509_builder.root(key, name, now, AUTHORITY_DAYS, path=None, signs=True)
    return Pair(x509_builder.pem(made), x509_builder.key_pem(key))


def client(issuer: Pair, name: str, organisations: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A certificate by which somebody comes to the API: user ``name`` in groups ``organisations``. It ends
    with its issuer at the latest (Kubernetes, "Authenticating", X509 client certificates)."""
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
    """A request (PKCS #10) for a certificate of user ``name`` in groups ``organisations``, and its key."""
    key = x509_builder.new_key()
    made = x509.CertificateSigningRequestBuilder().subject_name(x509_builder.subject_of(name, organisations))
    signed = made.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), x509_builder.key_pem(key)


def account_key() -> str:
    """The key of service accounts' tokens, PEM."""
    return x509_builder.key_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def public_of(key: str) -> str:
    """The public half of a private key, PEM."""
    loaded = serialization.load_pem_private_key(key.encode(), None)
    return (
        loaded.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def key_id(key: str) -> str:
    """What tokens that were signed with a private key name it by, in ``kid``: the SHA-256 of its public half
    (Kubernetes, pkg/serviceaccount/jwt.go, keyIDFromPublicKey)."""
    loaded = serialization.load_pem_private_key(key.encode(), None)
    digest = hashlib.sha256(_spki(loaded.public_key())).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def pin(certificate: str) -> str:
    """``sha256:…`` of an authority's public key, as kubeadm pins it (RFC 7469; kubeadm join,
    ``--discovery-token-ca-cert-hash``)."""
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    return f"sha256:{hashlib.sha256(_spki(loaded.public_key())).hexdigest()}"


def _spki(key: object) -> bytes:
    return cast("ec.EllipticCurvePublicKey", key).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
