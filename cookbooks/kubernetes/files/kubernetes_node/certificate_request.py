"""A kubelet's certificate request (PKCS #10, RFC 2986), in exactly the form that a kubelet sends.

The subject is O=system:nodes, CN=system:node:<name>. A request for a client certificate has no attributes;
one for a serving certificate has subject alternative names (RFC 5280, 4.2.1.6), of hosts and addresses. The
request is compared with the only encoding of what was read, so that this program and the one that signs
cannot read it differently. The API server has checked its signature (Kubernetes, ``validateCSR``).
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

_PEM = re.compile(
    r"-----BEGIN CERTIFICATE REQUEST-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE REQUEST-----\n?"
)
_NAME = re.compile(rb"system:node:([a-z0-9.-]{1,63})")

_SEQUENCE, _SET, _OBJECT_IDENTIFIER, _PRINTABLE_STRING, _OCTET_STRING = 0x30, 0x31, 0x06, 0x13, 0x04
_ORGANIZATION, _COMMON_NAME = b"\x55\x04\x0a", b"\x55\x04\x03"
_EXTENSION_REQUEST, _ALTERNATIVE_NAME = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x0e", b"\x55\x1d\x11"
_VERSION, _ATTRIBUTES = (0x02, b"\x00"), 0xA0
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87


@dataclass(frozen=True)
class Request:
    """What a kubelet requests a certificate for."""

    node: str
    hosts: tuple[str, ...] = ()
    addresses: tuple[IPv4Address | IPv6Address, ...] = ()


def read(pem: bytes) -> Request | None:
    """None if a kubelet would not have made this request."""
    found = _PEM.fullmatch(pem.decode("ascii", errors="replace"))
    if found is None:
        return None
    text = found[1].replace("\n", "")
    try:
        data = base64.b64decode(text, validate=True)
        [(_, request)] = _elements(data)
        (_, about), _algorithm, _signature = _elements(request)
        version, (_, subject), _key, (tag, attributes) = _elements(about)
        name = _NAME.search(subject)
        if name is None or base64.b64encode(data).decode("ascii") != text:
            return None
        names = _alternative_names(attributes)
        hosts = tuple(value.decode("ascii") for kind, value in names if kind == _DNS_NAME)
        addresses = tuple(ip_address(value) for kind, value in names if kind == _IP_ADDRESS)
    except (ValueError, IndexError, binascii.Error):
        return None
    same = (version, subject, tag) == (_VERSION, _subject(name[0]), _ATTRIBUTES)
    exact = same and attributes == _attributes(hosts, addresses)
    return Request(name[1].decode("ascii"), hosts, addresses) if exact else None


def _alternative_names(attributes: bytes) -> list[tuple[int, bytes]]:
    """Those of the one extension that is requested, each as its kind and its value."""
    if not attributes:
        return []
    content = attributes
    # Attribute and its values, extensions, extension and its value, which is an encoding itself, names.
    for position in (0, 1, 0, 0, 1, 0):
        content = _elements(content)[position][1]
    return _elements(content)


def _attributes(hosts: tuple[str, ...], addresses: tuple[IPv4Address | IPv6Address, ...]) -> bytes:
    if not hosts and not addresses:
        return b""
    names = [_encoded(_DNS_NAME, each.encode("ascii")) for each in hosts]
    names += [_encoded(_IP_ADDRESS, each.packed) for each in addresses]
    value = _encoded(_OCTET_STRING, _encoded(_SEQUENCE, b"".join(names)))
    extension = _encoded(_SEQUENCE, _encoded(_OBJECT_IDENTIFIER, _ALTERNATIVE_NAME) + value)
    values = _encoded(_SET, _encoded(_SEQUENCE, extension))
    return _encoded(_SEQUENCE, _encoded(_OBJECT_IDENTIFIER, _EXTENSION_REQUEST) + values)


def _subject(common_name: bytes) -> bytes:
    return _relative(_ORGANIZATION, b"system:nodes") + _relative(_COMMON_NAME, common_name)


def _relative(kind: bytes, value: bytes) -> bytes:
    pair = _encoded(_OBJECT_IDENTIFIER, kind) + _encoded(_PRINTABLE_STRING, value)
    return _encoded(_SET, _encoded(_SEQUENCE, pair))


def _encoded(tag: int, content: bytes) -> bytes:
    """An element of DER (X.690)."""
    length = len(content)
    if length < 128:
        return bytes((tag, length)) + content
    count = (length.bit_length() + 7) // 8
    return bytes((tag, 128 + count)) + length.to_bytes(count, "big") + content


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
