"""Public SSH keys, read to their end."""

from __future__ import annotations

import struct
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.checks.keys import PublicKey, parse

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp"


def line(kind: str, *fields: bytes) -> str:
    """A key of that kind, as OpenSSH writes it (RFC 4253, 6.6)."""
    body = b"".join(struct.pack(">I", len(field)) + field for field in (kind.encode(), *fields))
    return f"{kind} {b64encode(body).decode()}"


@pytest.mark.parametrize(
    "text",
    [
        ED25519,
        f"{ED25519} ada@lab.example",
        f'from="10.0.0.0/8",no-pty {ED25519} ada lovelace',
        line("ecdsa-sha2-nistp256", b"nistp256", b"\4" + bytes(64)),
        line("sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:"),
    ],
)
def test_keys_as_people_paste_them(text: str) -> None:
    key = parse(text)
    assert isinstance(key, PublicKey)
    assert key.kind in text


@pytest.mark.parametrize("bits", [1024, 2048, 3072, 4096])
def test_the_length_of_an_rsa_key(bits: int) -> None:
    modulus = (1 << (bits - 1)) | 1
    key = parse(line("ssh-rsa", b"\1\0\1", b"\0" + modulus.to_bytes(bits // 8)))
    assert isinstance(key, PublicKey)
    assert key.bits == bits


@given(st.integers(1, len(ED25519.split()[1]) - 1))
def test_a_key_that_was_cut_off_is_none(length: int) -> None:
    kind, body = ED25519.split()
    assert isinstance(parse(f"{kind} {body[:length]}"), str)


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    assert isinstance(parse(text), str | PublicKey)


@given(st.binary())
def test_any_bytes_are_answered(body: bytes) -> None:
    parse(f"ssh-rsa {b64encode(body).decode()}")
