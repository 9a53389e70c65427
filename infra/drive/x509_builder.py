"""Builds certificates and revocation lists: RFC 5280 as OpenVPN and Kubernetes need it. Functions without a
store or a clock.

The VPN's root, valid for ten years, has a P-384 key, all others have P-256: every OpenVPN client supports
both, whether with OpenSSL or Mbed TLS, which lacks Ed25519, and so does every component of Kubernetes.

The VPN's certificates have no name constraints. The root is trusted by OpenVPN only, for this VPN only;
servers may have public names outside of the cluster's domain, and OpenSSL checks the common name of a
certificate without a subjectAltName as if it were a DNS name, which would refuse ``ada``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Kind: TypeAlias = Literal["client", "server"]

Signer: TypeAlias = (
    ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
)
"""The key of a CA. Ours are ECDSA; an imported one may be any that easy-rsa creates."""

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
"""The key of a server or a laptop. Those that we generate are ECDSA."""

BACKDATE: Final = timedelta(minutes=5)
"""Tolerates differences between the clocks of laptops, masters and servers."""

REASONS: Final = {
    "unspecified": x509.ReasonFlags.unspecified,
    "keyCompromise": x509.ReasonFlags.key_compromise,
    "cACompromise": x509.ReasonFlags.ca_compromise,
    "affiliationChanged": x509.ReasonFlags.affiliation_changed,
    "superseded": x509.ReasonFlags.superseded,
    "cessationOfOperation": x509.ReasonFlags.cessation_of_operation,
    "privilegeWithdrawn": x509.ReasonFlags.privilege_withdrawn,
}
"""Reasons of a revocation (RFC 5280, 5.3.1), without those that can be undone."""

_EKU: Final = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a revocation list."""

    serial: int
    when: datetime
    reason: str


def root_key() -> ec.EllipticCurvePrivateKey:
    """A new key for a root."""
    return ec.generate_private_key(ec.SECP384R1())


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new key for any other certificate."""
    return ec.generate_private_key(ec.SECP256R1())


def root(
    key: Signer, name: str, now: datetime, days: int, *, path: int | None, signs: bool = False
) -> x509.Certificate:
    """A self-signed CA certificate.

    Args:
        path: How many CAs may be below it in a chain; None for any number.
        signs: Whether its key also signs handshakes and the like, as those of kubeadm do.
    """
    subject = subject_of(name)
    builder = _builder(subject, subject, key.public_key(), now - BACKDATE, now + timedelta(days=days))
    return _authority(builder, key, path=path, signs=signs).sign(key, _hash(key))


def intermediate(
    key: Signer, name: str, issuer: x509.Certificate, issuer_key: Signer, now: datetime, days: int
) -> x509.Certificate:
    """An intermediate CA certificate for servers and clients only. It expires no later than its issuer."""
    end = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    builder = _builder(subject_of(name), issuer.subject, key.public_key(), now - BACKDATE, end)
    builder = _authority(builder, key, path=0).add_extension(_issuer_id(issuer), critical=False)
    return builder.sign(issuer_key, _hash(issuer_key))


def subject_of(name: str, organisations: Iterable[str] = ()) -> x509.Name:
    """A subject with its common name."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def end_entity(
    key: PublicKey,
    kind: Kind,
    subject: x509.Name,
    names: Iterable[str],
    issuer: x509.Certificate,
    issuer_key: Signer,
    now: datetime,
    life: timedelta,
) -> x509.Certificate:
    """A server's or client's certificate. ``names`` are its DNS names and IP addresses. It expires no later
    than its issuer."""
    end = min(now + life, issuer.not_valid_after_utc)
    builder = (
        _builder(subject, issuer.subject, key, now - BACKDATE, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_EKU[kind]]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_issuer_id(issuer), critical=False)
    )
    if alternatives := [_alternative(each) for each in names]:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer_key, _hash(issuer_key))


def revocation_list(
    issuer: x509.Certificate,
    issuer_key: Signer,
    entries: Iterable[Entry],
    number: int,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateRevocationList:
    """A signed CRL. The same arguments give the same bytes (RFC 6979), except with an RSA-PSS key."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(begins)
        .next_update(ends)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_issuer_id(issuer), critical=False)
    )
    for entry in sorted(entries, key=lambda each: each.serial):
        row = x509.RevokedCertificateBuilder().serial_number(entry.serial).revocation_date(entry.when)
        if entry.reason != "unspecified":  # RFC 5280, 5.3.1: then the extension should be absent
            row = row.add_extension(x509.CRLReason(REASONS[entry.reason]), critical=False)
        builder = builder.add_revoked_certificate(row.build())
    deterministic = True if isinstance(issuer_key, ec.EllipticCurvePrivateKey) else None
    return builder.sign(issuer_key, _hash(issuer_key), ecdsa_deterministic=deterministic)


def entries_of(crl: x509.CertificateRevocationList) -> tuple[Entry, ...]:
    """The entries of a CRL."""
    words = {flag: word for word, flag in REASONS.items()}
    found = []
    for row in crl:
        try:
            flag = row.extensions.get_extension_for_class(x509.CRLReason).value.reason
        except x509.ExtensionNotFound:
            flag = x509.ReasonFlags.unspecified
        found.append(Entry(row.serial_number, row.revocation_date_utc, words.get(flag, "unspecified")))
    return tuple(found)


def number_of(crl: x509.CertificateRevocationList) -> int:
    """The number of a CRL; 0 if it has none."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def common_name(certificate: x509.Certificate) -> str:
    """The common name of the subject, or the whole subject if it has none."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else certificate.subject.rfc4514_string()


def kind_of(certificate: x509.Certificate) -> Kind | None:
    """Whether the certificate is a server's or a client's; None if it is not for TLS.

    A certificate for both counts as a client's: servers accept it, so it must be attributed to a user, and
    be revoked with that user.
    """
    try:
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return None
    if _EKU["client"] in usages:
        return "client"
    return "server" if _EKU["server"] in usages else None


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names and addresses of a certificate, in order."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(each.value) for each in names if isinstance(each, x509.DNSName | x509.IPAddress))


def may_have_authorities_below(certificate: x509.Certificate) -> bool:
    """Whether a root's path length allows an intermediate."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    return basic.ca and (basic.path_length is None or basic.path_length >= 1)


def public_key_of(certificate: x509.Certificate) -> PublicKey:
    """The public key of a server's or client's certificate."""
    return cast("PublicKey", certificate.public_key())


def pem(made: x509.Certificate | x509.CertificateRevocationList) -> str:
    return made.public_bytes(serialization.Encoding.PEM).decode()


def key_der(key: Signer) -> bytes:
    """Unencrypted PKCS#8 in DER, to be encrypted by the caller."""
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def key_pem(key: Signer) -> str:
    """Unencrypted PKCS#8 in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def signer(key: object) -> Signer:
    """Return the key. Raises ``ValueError`` if it cannot sign certificates."""
    if not isinstance(key, Signer):
        raise ValueError("a key of this type signs no certificates")  # noqa: TRY004 - the data are wrong
    return key


def fits(key: Signer, certificate: x509.Certificate) -> bool:
    """Whether this is the private key of the certificate."""
    return bool(key.public_key() == certificate.public_key())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _authority(
    builder: x509.CertificateBuilder, key: Signer, *, path: int | None, signs: bool = False
) -> x509.CertificateBuilder:
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=path), critical=True)
        .add_extension(_key_usage(signs=signs, authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _issuer_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(
            cast("ec.EllipticCurvePublicKey", issuer.public_key())
        )
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _hash(key: Signer) -> hashes.SHA256 | hashes.SHA384 | None:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return hashes.SHA384() if key.key_size > 256 else hashes.SHA256()
    return hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey) else None


def _key_usage(*, signs: bool = True, authority: bool = False) -> x509.KeyUsage:
    """The key usage (RFC 5280, 4.2.1.3): ECDSA only signs. No encipherment and, as TLS uses ephemeral keys,
    no key agreement."""
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
