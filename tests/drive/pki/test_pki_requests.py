"""Answers to signing requests, which openssl makes as people do."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from drive.pki.pki_lab import Clock

from infra.drive.pki import Pki, PkiError

P256 = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def asked(folder: Path, name: str, *options: str, file: str = "laptop") -> str:
    """A request, as in docs/vpn.md; its key is in ``<file>.key``."""
    key = folder / f"{file}.key"
    words = [*(options or P256), "-noenc", "-keyout", str(key), "-subj", f"/CN={name}"]
    done = subprocess.run(["openssl", "req", "-new", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "key",
    [P256, ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"), ("-newkey", "rsa:2048")],
    ids=["P-256", "P-384", "RSA"],
)
def test_an_answer_has_the_requests_key_and_nothing_else_of_it(
    pki: Pki, tmp_path: Path, key: tuple[str, ...]
) -> None:
    asks = ("-addext", "extendedKeyUsage=serverAuth", "-addext", "basicConstraints=critical,CA:TRUE")
    names = ("-addext", "subjectAltName=DNS:vpn.lab.internal")
    made = pki.request(asked(tmp_path, "ada@phone", *key, *asks, *names), "ada", "phone")
    own = pki.client("bob")
    answer, usual = (x509.load_pem_x509_certificate(each.certificate.encode()) for each in (made, own))
    mine = serialization.load_pem_private_key((tmp_path / "laptop.key").read_bytes(), None)
    assert answer.public_key() == mine.public_key()
    assert (made.key, made.kind, made.name, made.requested) == ("", "client", "ada@phone", True)
    assert made.tls_crypt
    assert [each.value for each in answer.subject] == ["ada@phone"]
    assert [each.oid for each in answer.extensions] == [each.oid for each in usual.extensions]
    usages = answer.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert usages == usual.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert not answer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_same_request_has_the_same_answer_and_so_has_a_profile(pki: Pki, tmp_path: Path) -> None:
    request = asked(tmp_path, "ada")
    made = pki.request(request, "ada")
    assert pki.request(request, "ada").id == made.id
    # Nobody gives ada another key because her profile is written again.
    assert pki.client("ada").id == made.id


def test_a_successor_has_the_same_key(pki: Pki, tmp_path: Path, clock: Clock) -> None:
    made = pki.request(asked(tmp_path, "ada"), "ada", days=100)
    clock.now += timedelta(days=80)
    after = pki.renew(made)
    assert (after.public, after.key, after.replaces) == (made.public, "", made.serial)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("bob", P256, "'bob'.* 'ada'"),
        ("ada@phone", P256, "'ada@phone'.* 'ada'"),
        ("ada", ("-newkey", "rsa:1024"), "RSA of 1024"),
        ("ada", ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-224"), "secp224r1"),
        ("ada", ("-newkey", "ed25519"), "Ed25519"),
    ],
)
def test_what_is_not_answered(
    pki: Pki, tmp_path: Path, name: str, options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(PkiError, match=said):
        pki.request(asked(tmp_path, name, *options), "ada")
    for text in ("", "no request", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"):
        with pytest.raises(PkiError, match="read"):
            pki.request(text, "ada")
    assert pki.certificates() == ()


def test_a_request_that_was_changed_is_refused(pki: Pki, tmp_path: Path) -> None:
    """Somebody who saw ada's request can't have it answered for themselves."""
    request = x509.load_pem_x509_csr(asked(tmp_path, "ada").encode())
    der = request.public_bytes(serialization.Encoding.DER)
    changed = x509.load_der_x509_csr(der.replace(b"ada", b"bob"))
    with pytest.raises(PkiError, match="signed"):
        pki.request(changed.public_bytes(serialization.Encoding.PEM).decode(), "bob")


def test_a_key_of_somebody_else_or_one_that_was_revoked_is_refused(pki: Pki, tmp_path: Path) -> None:
    pki.request(asked(tmp_path, "ada"), "ada")
    again = ["openssl", "req", "-new", "-key", str(tmp_path / "laptop.key"), "-subj"]
    theirs = subprocess.run([*again, "/CN=bob"], capture_output=True, text=True, check=True).stdout
    with pytest.raises(PkiError, match="ada's key"):
        pki.request(theirs, "bob")
    pki.revoke("ada", reason="keyCompromise")
    mine = subprocess.run([*again, "/CN=ada"], capture_output=True, text=True, check=True).stdout
    with pytest.raises(PkiError, match="revoked"):
        pki.request(mine, "ada")
