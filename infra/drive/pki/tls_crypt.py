"""OpenVPN's ``tls-crypt-v2`` keys: one server key for all servers, a key of its own for every client.

The format is that of OpenVPN's ``doc/tls-crypt-v2.txt``. A client's key ``Kc`` goes into its profile together
with ``WKc``: the same key and some metadata, wrapped for the servers, who keep nothing about clients::

    T   = HMAC-SHA256(Ka, len || Kc || metadata)
    WKc = T || AES-256-CTR(Ke, IV = first 128 bits of T, Kc || metadata) || len

where ``len`` is the length of WKc, 16 bits, network byte order. The server key is two times 512 bits: Ke is
the first 256 bits of the first, Ka the first 256 bits of the second.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SERVER: Final = "OpenVPN tls-crypt-v2 server key"
CLIENT: Final = "OpenVPN tls-crypt-v2 client key"

_SERVER_BYTES: Final = 128
_CLIENT_BYTES: Final = 256
_TAG: Final = 32
_LENGTH: Final = 2
_LARGEST_WRAPPED: Final = 1024
"""Bytes of a WKc (TLS_CRYPT_V2_MAX_WKC_LEN)."""

_USER: Final = b"\x00"
"""The metadata type: our own, not a time stamp (TLS_CRYPT_METADATA_TYPE_USER)."""


def server_key() -> str:
    """A new server key, as ``openvpn --genkey tls-crypt-v2-server`` writes it."""
    return _pem(SERVER, os.urandom(_SERVER_BYTES))


def client_key(server: str, metadata: str) -> str:
    """A new client key, wrapped for the servers that hold ``server``.

    The servers pass ``metadata`` to ``--tls-crypt-v2-verify`` scripts before TLS begins. Raises
    ``ValueError`` for an invalid server key, and for metadata of more than 733 bytes.
    """
    encryption, authentication = _keys(server)
    key = os.urandom(_CLIENT_BYTES)
    plain = key + _USER + metadata.encode()
    size = _TAG + len(plain) + _LENGTH
    if size > _LARGEST_WRAPPED:
        raise ValueError("the metadata of a tls-crypt-v2 key are too long")
    length = size.to_bytes(_LENGTH, "big")
    tag = hmac.digest(authentication, length + plain, "sha256")
    return _pem(CLIENT, key + tag + _ctr(encryption, tag, plain) + length)


def metadata(server: str, client: str) -> str:
    """The metadata in a client's key. Raises ``ValueError`` if it was not wrapped with this server key."""
    encryption, authentication = _keys(server)
    content = _content(CLIENT, client)
    key, wrapped = content[:_CLIENT_BYTES], content[_CLIENT_BYTES:]
    tag, length = wrapped[:_TAG], wrapped[-_LENGTH:]
    plain = _ctr(encryption, tag, wrapped[_TAG:-_LENGTH]) if len(tag) == _TAG else b""
    if (
        int.from_bytes(length, "big") != len(wrapped)
        or not hmac.compare_digest(tag, hmac.digest(authentication, length + plain, "sha256"))
        or not plain.startswith(key + _USER)
    ):
        raise ValueError("not a tls-crypt-v2 client key of this server key")
    return plain[_CLIENT_BYTES + 1 :].decode()


def check_server_key(server: str) -> None:
    """Raise ``ValueError`` if the text is not a server key."""
    _keys(server)


def _keys(server: str) -> tuple[bytes, bytes]:
    """Ke and Ka."""
    content = _content(SERVER, server)
    if len(content) != _SERVER_BYTES:
        raise ValueError("a tls-crypt-v2 server key has another length")
    return content[:32], content[64:96]


def _ctr(key: bytes, tag: bytes, data: bytes) -> bytes:
    cipher = Cipher(algorithms.AES256(key), modes.CTR(tag[:16])).encryptor()
    return cipher.update(data) + cipher.finalize()


def _pem(name: str, content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""])


def _content(name: str, pem: str) -> bytes:
    found = re.search(f"-----BEGIN {name}-----\\s(.*?)-----END {name}-----", pem, re.DOTALL)
    if not found:
        raise ValueError(f"not an {name}")
    try:
        return base64.b64decode("".join(found[1].split()), validate=True)
    except binascii.Error:
        raise ValueError(f"not an {name}") from None
