"""The cluster's authorities, and short-lived certificates of people and programs. No store and no clock in
here.

Names are kubeadm's (Kubernetes, "PKI certificates and requirements"). Authorities have P-256 keys, which
every part of Kubernetes reads. The key that signs service accounts' tokens is RSA: RS256 is the one
algorithm that every reader of such tokens knows.
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
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.drive.key_usage import key_usage

AUTHORITY_DAYS: Final = 3652

BACKDATE: Final = timedelta(minutes=5)
"""Clocks of laptops and masters differ."""


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
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _key_pem(key))


def client(issuer: Pair, name: str, organisations: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A certificate by which somebody comes to the API: user ``name`` in groups ``organisations``. It ends
    with its issuer at the latest (Kubernetes, "Authenticating", X509 client certificates)."""
    signer, parent = _signer(issuer)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, organisations)
    certificate = _leaf(key.public_key(), subject, parent, now, life, ExtendedKeyUsageOID.CLIENT_AUTH)
    return Pair(_pem(certificate.sign(signer, hashes.SHA256())), _key_pem(key))


def request(name: str, organisations: Iterable[str]) -> tuple[str, str]:
    """A request (PKCS #10) for a certificate of user ``name`` in groups ``organisations``, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(_subject(name, organisations))
    signed = made.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), _key_pem(key)


def server(issuer: Pair, name: str, names: Iterable[str], now: datetime, life: timedelta) -> Pair:
    """A server's certificate for DNS names."""
    signer, parent = _signer(issuer)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _leaf(key.public_key(), subject, parent, now, life, ExtendedKeyUsageOID.SERVER_AUTH)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False
    )
    return Pair(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(key))


def account_key() -> str:
    """The key of service accounts' tokens, PEM."""
    return _key_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))


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


def _subject(name: str, organisations: Iterable[str]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _leaf(
    key: ec.EllipticCurvePublicKey,
    subject: x509.Name,
    parent: x509.Certificate,
    now: datetime,
    life: timedelta,
    purpose: x509.ObjectIdentifier,
) -> x509.CertificateBuilder:
    known = parent.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(parent.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(min(now + life, parent.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False)
    )


def _signer(issuer: Pair) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = serialization.load_pem_private_key(issuer.key.encode(), None)
    return cast("ec.EllipticCurvePrivateKey", key), x509.load_pem_x509_certificate(
        issuer.certificate.encode()
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _spki(key: object) -> bytes:
    return cast("ec.EllipticCurvePublicKey", key).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
