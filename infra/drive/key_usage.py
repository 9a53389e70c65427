"""What a certificate's key is for (RFC 5280, 4.2.1.3), where keys only sign."""

from __future__ import annotations

from cryptography import x509


def key_usage(*, signs: bool = True, authority: bool = False) -> x509.KeyUsage:
    """ECDSA only signs: no encipherment and, TLS being ephemeral, no agreement.

    Args:
        signs: Handshakes and the like.
        authority: Certificates and revocation lists.
    """
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
