"""A kubelet's certificate request (PKCS #10, RFC 2986), in exactly the form that a kubelet sends.

The subject is O=system:nodes, CN=system:node:<name>. There are no attributes, and so no subject alternative
names. The request is compared with the only encoding of that, so that this program and the one that signs
cannot read it differently. The API server has checked its signature (Kubernetes, ``validateCSR``).
"""

from __future__ import annotations

import base64
import binascii
import re

_PEM = re.compile(
    r"-----BEGIN CERTIFICATE REQUEST-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE REQUEST-----\n?"
)
_NAME = re.compile(rb"system:node:([a-z0-9.-]{1,63})")

_SEQUENCE, _SET, _OBJECT_IDENTIFIER, _PRINTABLE_STRING = 0x30, 0x31, 0x06, 0x13
_ORGANIZATION, _COMMON_NAME = b"\x55\x04\x0a", b"\x55\x04\x03"
_VERSION, _NO_ATTRIBUTES = (0x02, b"\x00"), (0xA0, b"")


def node_name(pem: bytes) -> str | None:
    """The node that a certificate is requested for; None if the request has any other form."""
    found = _PEM.fullmatch(pem.decode("ascii", errors="replace"))
    if found is None:
        return None
    text = found[1].replace("\n", "")
    try:
        data = base64.b64decode(text, validate=True)
        [(_, request)] = _elements(data)
        (_, about), _algorithm, _signature = _elements(request)
        version, (_, subject), _key, attributes = _elements(about)
    except (ValueError, IndexError, binascii.Error):
        return None
    name = _NAME.search(subject)
    if name is None or base64.b64encode(data).decode("ascii") != text:
        return None
    exact = (version, subject, attributes) == (_VERSION, _subject(name[0]), _NO_ATTRIBUTES)
    return name[1].decode("ascii") if exact else None


def _subject(common_name: bytes) -> bytes:
    return _attribute(_ORGANIZATION, b"system:nodes") + _attribute(_COMMON_NAME, common_name)


def _attribute(kind: bytes, value: bytes) -> bytes:
    pair = _encoded(_OBJECT_IDENTIFIER, kind) + _encoded(_PRINTABLE_STRING, value)
    return _encoded(_SET, _encoded(_SEQUENCE, pair))


def _encoded(tag: int, content: bytes) -> bytes:
    """An element of DER (X.690) of less than 128 bytes."""
    return bytes((tag, len(content))) + content


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """The elements of DER one after another, each as its tag and its content."""
    found = []
    while data:
        start, length = 2, data[1]
        if length >= 128:
            start = 2 + length - 128
            length = int.from_bytes(data[2:start], "big")
        if len(data) < start + length:
            raise ValueError("an element ends too early")
        found.append((data[0], data[start : start + length]))
        data = data[start + length :]
    return found
