"""Parses public SSH keys as users paste them, without running a program."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import Final

_KEY: Final = re.compile(
    r"(?:^|\s)(?P<kind>ssh-ed25519|ssh-rsa|ssh-dss|ecdsa-sha2-nistp(?:256|384|521)"
    r"|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com)\s+(?P<body>\S+)(?:\s|$)"
)
"""A key in a line of ``authorized_keys``, which may start with options (sshd(8))."""
_ED25519_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A completely parsed key."""

    kind: str
    """``ssh-ed25519``."""
    body: bytes
    bits: int
    """The modulus for RSA and DSA; 0 for key types with a fixed size."""


def parse(line: str) -> PublicKey | str:
    """The key in a line of ``authorized_keys``, or why it is invalid (RFC 4253, 6.6)."""
    if "\n" in line.strip():
        return "a key is one line"
    found = _KEY.search(line)
    if found is None:
        return "it does not say a kind of key, such as ssh-ed25519, and the key after it"
    kind = found["kind"]
    try:
        body = b64decode(found["body"], validate=True)
    except (binascii.Error, ValueError):
        return "the key is not base64: was it cut off?"
    fields = _fields(body)
    if fields is None or len(fields) < 2:
        return "the key is cut off"
    if fields[0] != kind.encode():
        inside = fields[0].decode("ascii", "replace")[:40]
        return f"it says {kind}, and is {inside}"
    if kind == "ssh-ed25519" and (len(fields) != 2 or len(fields[1]) != _ED25519_BYTES):
        return "an ssh-ed25519 key has 32 bytes"
    modulus = {"ssh-rsa": 2, "ssh-dss": 1}.get(kind)
    if modulus is None:
        return PublicKey(kind, body, 0)
    if len(fields) <= modulus:
        return "the key is cut off"
    return PublicKey(kind, body, int.from_bytes(fields[modulus]).bit_length())


def _fields(body: bytes) -> list[bytes] | None:
    """The strings of a key, each after its length in four bytes; None if the lengths are inconsistent."""
    fields, at = [], 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4])
        if end > len(body):
            return None
        fields.append(body[at + 4 : end])
        at = end
    return fields
