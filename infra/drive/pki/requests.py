"""Signing requests (PKCS #10, RFC 2986) of users who generate their own key. Only the public key is used,
whose private key signed the request; name, purpose and validity of the certificate are set by us."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from infra.drive.pki.problems import PkiError
from infra.drive.x509_builder import PublicKey

_CURVES: Final = ("secp256r1", "secp384r1")
_RSA_BITS: Final = range(2048, 8193)
"""Smaller keys are refused by OpenVPN's ``tls-cert-profile preferred``; OpenSSL takes too long to verify
larger ones."""

_MAKE: Final = (
    "make one: openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout {name}.key"
)


def public_key(text: str, common: str) -> PublicKey:
    """The public key of a request for the certificate ``common``: ``ada``, ``ada@phone``.

    Raises:
        PkiError: Not a request, not signed by its own key, for another name, or with a key type that clients
            and servers do not all support.
    """
    again = f"{_MAKE.format(name=common)} -subj /CN={common} -out {common}.csr"
    try:
        request = x509.load_pem_x509_csr(text.encode())
        names = [each.value for each in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        key = request.public_key()
        signed = request.is_signature_valid
    except Exception as problem:
        # For untrusted data, cryptography raises ValueError, UnsupportedAlgorithm and more.
        raise PkiError(f"the signing request can't be read ({problem}); {again}") from None
    if not signed:
        raise PkiError(f"the signing request is not signed by its own key; {again}")
    if names != [common]:
        named = ", ".join(map(repr, names)) or "nobody"
        raise PkiError(f"the signing request is for {named}, not for {common!r}; {again}")
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size in _RSA_BITS:
        return key
    raise PkiError(
        f"the signing request has a key of {_kind(key)}: P-256, P-384 or RSA of 2048 to 8192 bits; {again}"
    )


def _kind(key: object) -> str:
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA of {key.key_size} bits"
    return type(key).__name__.removesuffix("PublicKey").strip("_")
