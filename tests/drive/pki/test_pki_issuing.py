"""Issuing, renewing, revoking, and what comes out, read by `cryptography` and by OpenSSL."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from drive.pki.pki_lab import PASSPHRASE, START, Clock, Memory, crls, revoked_serials
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from infra.drive.pki import Certificate, Pki, PkiError, crl_ends
from infra.drive.secrets.local import LocalStore

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="needs the package openssl")


def load(certificate: Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.certificate.encode())


def number(crl: x509.CertificateRevocationList) -> int:
    return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def test_there_is_one_once_it_is_made_and_never_a_second(store: LocalStore, clock: Clock) -> None:
    pki = Pki(store, domain="lab.internal", clock=clock)
    assert not pki.exists()
    for ask in (pki.certificates, pki.crl, pki.authorities, pki.due, pki.tls_crypt_server_key):
        with pytest.raises(PkiError):
            ask()
    pki.create(PASSPHRASE, "lab")
    assert Pki(store, domain="lab.internal", clock=clock).exists()
    assert pki.certificates() == ()
    before = pki.authorities()
    with pytest.raises(PkiError):
        pki.create(PASSPHRASE, "lab")
    assert pki.authorities() == before


def test_the_authorities_are_what_rfc_5280_wants(pki: Pki) -> None:
    root, issuing = x509.load_pem_x509_certificates(pki.authorities().encode())
    for certificate, path, years, curve in ((root, 1, 10, "secp384r1"), (issuing, 0, 3, "secp256r1")):
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, path)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert (usage.value.key_cert_sign, usage.value.crl_sign) == (True, True)
        assert not usage.value.digital_signature
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == curve
        life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert abs(life - timedelta(days=365.25 * years)) < timedelta(days=1)
        assert certificate.not_valid_before_utc == START - timedelta(minutes=5)
    issuing.verify_directly_issued_by(root)
    above = issuing.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    below = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert above.key_identifier == below.digest
    assert root.subject == issuing.issuer


def test_a_client_s_certificate(pki: Pki) -> None:
    made = pki.client("ada")
    assert (made.kind, made.name, made.user, made.device, made.site) == ("client", "ada", "ada", "", "")
    assert made.revoked is None
    assert made.valid(START)
    assert made.not_before == START - timedelta(minutes=5)
    assert made.not_after == START + timedelta(days=365)
    certificate = load(made)
    assert certificate.subject.rfc4514_string() == "CN=ada"
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (True, True, False)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert 100 < certificate.serial_number.bit_length() <= 159
    assert made.id == f"{certificate.serial_number:X}".rjust(len(made.id), "0")


def test_a_server_s_certificate(pki: Pki) -> None:
    made = pki.server("us-west-2", ["VPN.us-west-2.example.org", "203.0.113.7", "2001:DB8::1"])
    assert (made.kind, made.name, made.site, made.user) == ("server", "vpn.lab.internal", "us-west-2", "")
    assert made.names == ("vpn.lab.internal", "vpn.us-west-2.example.org", "203.0.113.7", "2001:db8::1")
    names = load(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["vpn.lab.internal", "vpn.us-west-2.example.org"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["203.0.113.7", "2001:db8::1"]
    usages = load(made).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert made.tls_crypt == ""
    other = pki.server("b", ["vpn.us-west-2.example.org"])
    assert other.name == made.name
    assert other.key != made.key


def test_the_same_is_given_until_it_ends_soon(pki: Pki, clock: Clock) -> None:
    first, server = pki.client("ada"), pki.server("lab", ["a.example.org", "b.example.org"])
    clock.turn(days=334)
    assert pki.client("ada") == first
    assert pki.server("lab", ["b.example.org", "a.example.org"]) == server
    assert pki.server("lab", ["b.example.org"]) != server
    clock.turn(days=2)
    second = pki.client("ada")
    assert second.serial != first.serial
    assert pki.client("ada") == second
    clock.turn(days=32)
    assert pki.server("lab", ["a.example.org", "b.example.org"]) != server


def test_devices_have_certificates_of_their_own(pki: Pki) -> None:
    phone, laptop = pki.clients([("ada", "phone"), ("ada", "")])
    assert (phone.name, laptop.name) == ("ada@phone", "ada")
    assert phone.tls_crypt != laptop.tls_crypt
    assert pki.clients([("ada", ""), ("grace", ""), ("ada", "")])[::2] == (laptop, laptop)
    assert [one.serial for one in pki.revoke("ada", "phone")] == [phone.serial]
    assert pki.client("ada") == laptop
    assert pki.client("ada", "phone").serial != phone.serial


def test_nothing_outlives_its_issuer(pki: Pki, clock: Clock) -> None:
    issuing = x509.load_pem_x509_certificates(pki.authorities().encode())[1]
    clock.turn(days=1000)
    assert pki.client("ada").not_after == issuing.not_valid_after_utc
    clock.turn(days=80)
    with pytest.raises(PkiError):
        pki.client("grace")
    pki.renew_intermediate(PASSPHRASE)
    assert pki.client("grace").not_after == clock.now + timedelta(days=365)


def test_renewing_the_intermediate_keeps_what_it_issued(pki: Pki, clock: Clock) -> None:
    old = pki.client("ada")
    clock.turn(days=1)
    pki.renew_intermediate(PASSPHRASE)
    new = pki.client("grace")
    assert old.issuer != new.issuer
    _, *issuing = x509.load_pem_x509_certificates(pki.authorities().encode())
    assert [one.serial_number for one in issuing] == [new.issuer, old.issuer]
    assert issuing[0].subject != issuing[1].subject
    assert len(crls(pki.crl())) == 3
    pki.revoke("ada")
    assert revoked_serials(pki.crl()) == {old.serial}
    clock.turn(days=1095.5)
    assert len(crls(pki.crl())) == 2
    assert len(x509.load_pem_x509_certificates(pki.authorities().encode())) == 2


def test_renewing_leaves_the_old_one_or_takes_it_back(pki: Pki, clock: Clock) -> None:
    old = pki.client("ada")
    clock.turn(days=10)
    new = pki.renew(old)
    assert new.replaces == old.serial
    assert pki.renew(old) == new, "asked for again, nothing more is made"
    assert pki.client("ada") == new
    first, second = pki.certificates()
    assert first.replaced_by == second.serial
    assert first.valid(clock.now)
    assert pki.renew(old, revoke=True) == new
    assert pki.certificates()[0].reason == "superseded"
    assert revoked_serials(pki.crl()) == {old.serial}
    server = pki.server("lab", ["a.example.org"])
    assert pki.renew(server).names == server.names


def test_revoking_is_for_good(pki: Pki, clock: Clock) -> None:
    made = pki.client("ada")
    assert revoked_serials(pki.crl()) == set()
    clock.turn(hours=1)
    (revoked,) = pki.revoke("ada", reason="keyCompromise")
    assert (revoked.serial, revoked.revoked, revoked.reason) == (made.serial, clock.now, "keyCompromise")
    assert pki.revoke("ada") == ()
    assert revoked_serials(pki.crl()) == {made.serial}
    assert pki.client("ada").serial != made.serial
    row = crls(pki.crl())[1].get_revoked_certificate_by_serial_number(made.serial)
    assert row is not None
    assert row.extensions.get_extension_for_class(x509.CRLReason).value.reason.name == "key_compromise"


def test_a_revocation_list_changes_only_when_it_must(pki: Pki, clock: Clock) -> None:
    pki.client("ada")
    first = pki.crl()
    ends = crl_ends(first)
    assert ends == START - timedelta(minutes=5) + timedelta(days=90)
    clock.turn(days=29)
    assert pki.crl() == first
    clock.turn(days=1)
    second = pki.crl()
    assert second != first
    assert crl_ends(second) == ends + timedelta(days=30)
    pki.revoke("ada")
    third = pki.crl()
    assert pki.crl() == third
    numbers = [number(crls(each)[1]) for each in (first, second, third)]
    assert numbers == sorted(set(numbers))
    assert all(each.last_update_utc <= clock.now - timedelta(minutes=5) for each in crls(third))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.timedeltas(timedelta(), timedelta(days=100)),
    pushes=st.lists(
        st.tuples(st.timedeltas(timedelta(), timedelta(days=30)), st.booleans()), min_size=1, max_size=6
    ),
)
@example(first=timedelta(days=30, minutes=-5, microseconds=-1), pushes=[(timedelta(days=30), False)] * 3)
def test_a_push_every_30_days_leaves_each_server_30_days(
    first: timedelta, pushes: list[tuple[timedelta, bool]]
) -> None:
    """Whenever the first is, and whatever is revoked in between."""
    clock = Clock()
    pki = Pki(Memory(), domain="lab.internal", clock=clock)
    pki.create(PASSPHRASE, "lab")
    clock.now += first
    for pause, revokes in pushes:
        ends = crl_ends(pki.crl())
        clock.now += pause / 2
        if revokes:
            pki.client("ada")
            pki.revoke("ada")
        clock.now += pause / 2
        assert ends - clock.now >= timedelta(days=30)


def test_the_ended_leave_the_list_one_list_later(pki: Pki, clock: Clock) -> None:
    made = pki.client("ada", days=70)
    pki.revoke("ada")
    clock.turn(days=80)
    assert revoked_serials(pki.crl()) == {made.serial}, "the list of the window in which it ended"
    before = number(crls(pki.crl())[1])
    clock.turn(days=30)
    assert revoked_serials(pki.crl()) == set()
    assert number(crls(pki.crl())[1]) > before
    assert pki.certificates()[0].revoked


def test_what_ends_soon_is_told(pki: Pki, clock: Clock) -> None:
    assert pki.due() == ()
    client, server = pki.client("ada"), pki.server("lab", [])
    pki.client("gone")
    pki.revoke("gone")
    clock.turn(days=340)
    assert [(each.kind, each.name, each.ends) for each in pki.due()] == [("client", "ada", client.not_after)]
    clock.turn(days=40)
    assert [each.kind for each in pki.due()] == ["client", "server"], "one has ended already"
    pki.client("ada")
    assert [each.id for each in pki.due()] == [server.id]
    clock.turn(days=330)
    assert "intermediate" in {each.kind for each in pki.due()}
    pki.renew_intermediate(PASSPHRASE)
    assert "intermediate" not in {each.kind for each in pki.due()}
    clock.turn(days=365 * 7.5)
    assert "root" in {each.kind for each in pki.due()}


def test_what_can_not_be_issued(pki: Pki, store: LocalStore, clock: Clock) -> None:
    bent = ["", "a b", "../x", "a/b", "ä", ".a", "-a", "a@b@c", "a\n"]
    for name in (*bent, f"{'a' * 60}@phone", "vpn.lab.internal"):
        user, _, device = name.partition("@")
        with pytest.raises(PkiError):
            pki.client(user, device)
    for name in ("a b", "-a", "a..b", "10.0.0.0/8", ""):
        with pytest.raises(PkiError):
            pki.server("lab", [name])
    for days in (0, -1, 826):
        with pytest.raises(PkiError):
            pki.client("ada", days=days)
    assert pki.certificates() == ()
    with pytest.raises(PkiError):
        Pki(store, domain="d" * 61, clock=clock)
    with pytest.raises(ValueError, match="list"):
        crl_ends("nothing")


def test_revoking_what_never_was(pki: Pki) -> None:
    pki.client("ada")
    for user, device in (("grace", None), ("ada", "phone")):
        with pytest.raises(PkiError):
            pki.revoke(user, device)
    with pytest.raises(PkiError):
        pki.revoke("ada", reason="dislike")
    assert revoked_serials(pki.crl()) == set()


NOT_YET_VALID, EXPIRED, LIST_EXPIRED, REVOKED, WRONG_PURPOSE = 9, 10, 12, 23, 26
"""Of openssl-verification-options(1): the numbers of ``X509_V_ERR_…``."""


def verify(folder: Path, certificate: Certificate, when: datetime, purpose: str = "sslclient") -> set[int]:
    """The errors of `openssl verify` as OpenVPN does it: with lists of the whole chain, and a purpose."""
    (folder / "end.pem").write_text(certificate.certificate)
    done = subprocess.run(
        [
            *("openssl", "verify", "-x509_strict", "-crl_check_all", "-CAfile", "ca.pem"),
            *("-CRLfile", "crl.pem", "-purpose", purpose, "-attime", str(int(when.timestamp())), "end.pem"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = {int(number) for number in re.findall(r"error (\d+) at", done.stderr)}
    assert bool(errors) == bool(done.returncode), done.stderr
    return errors


@needs_openssl
def test_openssl_agrees(pki: Pki, clock: Clock, tmp_path: Path) -> None:
    def publish() -> None:
        (tmp_path / "ca.pem").write_text(pki.authorities())
        (tmp_path / "crl.pem").write_text(pki.crl())

    client, server, other = pki.client("ada"), pki.server("lab", ["203.0.113.7"]), pki.client("grace")
    pki.revoke("grace")
    publish()
    assert not verify(tmp_path, client, clock.now)
    assert not verify(tmp_path, server, clock.now, "sslserver")
    assert WRONG_PURPOSE in verify(tmp_path, client, clock.now, "sslserver")
    assert WRONG_PURPOSE in verify(tmp_path, server, clock.now)
    assert REVOKED in verify(tmp_path, other, clock.now)
    assert NOT_YET_VALID in verify(tmp_path, client, START - timedelta(hours=1))
    clock.turn(days=200)
    assert LIST_EXPIRED in verify(tmp_path, client, clock.now)
    publish()
    assert not verify(tmp_path, client, clock.now)
    pki.renew_intermediate(PASSPHRASE)
    late = pki.client("late")
    publish()
    assert verify(tmp_path, client, clock.now) | verify(tmp_path, late, clock.now) == set()
    assert REVOKED in verify(tmp_path, other, clock.now)
    clock.turn(days=166)
    publish()
    assert EXPIRED in verify(tmp_path, client, clock.now)
