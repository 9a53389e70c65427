"""Taking over what the real easy-rsa made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from drive.pki.pki_lab import PASSPHRASE, Clock, Memory, crls

from infra.drive.pki import Pki, PkiError, records

EASY_RSA = shutil.which("easyrsa") or "/usr/share/easy-rsa/easyrsa"
pytestmark = pytest.mark.skipif(not Path(EASY_RSA).exists(), reason="needs the package easy-rsa")

THEIRS = "old and rusty key"
ROW = "{state}\t20510101000000Z\t\t{serial}\tunknown\t/CN=ada\n"


def easy_rsa(folder: Path, *arguments: str, **settings: str) -> None:
    env = {"PATH": os.environ["PATH"], "EASYRSA_BATCH": "1", "EASYRSA_PKI": str(folder / "pki"), **settings}
    done = subprocess.run(
        [EASY_RSA, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def make(folder: Path, *, algorithm: str, bits: str = "2048", passphrase: str = "") -> Path:
    """A CA with a server, a client, a client's phone, a revoked one and one that soon ends."""
    folder.mkdir()
    settings = {"EASYRSA_ALGO": algorithm, "EASYRSA_KEY_SIZE": bits, "EASYRSA_CURVE": "secp384r1"}
    if passphrase:
        settings |= {"EASYRSA_PASSOUT": f"pass:{passphrase}", "EASYRSA_PASSIN": f"pass:{passphrase}"}
    easy_rsa(folder, "init-pki", **settings)
    easy_rsa(folder, "build-ca", *(() if passphrase else ("nopass",)), **settings, EASYRSA_REQ_CN="Old CA")
    easy_rsa(folder, "build-server-full", "vpn.old", "nopass", **settings)
    for name in ("ada", "ada@phone", "bob"):
        easy_rsa(folder, "build-client-full", name, "nopass", **settings)
    easy_rsa(folder, "--days=1", "build-client-full", "eve", "nopass", **settings)
    easy_rsa(folder, "revoke", "bob", "keyCompromise", **settings)
    easy_rsa(folder, "gen-crl", **settings)
    return folder


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("easy-rsa") / "ec", algorithm="ec")


@pytest.fixture
def folder(authority: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(authority, tmp_path / "easy-rsa") / "pki"


@pytest.fixture
def later() -> Clock:
    return Clock(datetime.now(UTC) + timedelta(days=2))


@pytest.fixture
def empty(later: Clock) -> Pki:
    return Pki(Memory(), domain="lab.internal", clock=later)


def listed(pem: str) -> list[set[int]]:
    return [{row.serial_number for row in crl} for crl in crls(pem)]


def check(pki: Pki, clock: Clock) -> None:
    by_name = {one.name: one for one in pki.certificates()}
    assert set(by_name) == {"vpn.old", "ada", "ada@phone", "bob", "eve"}
    assert by_name["vpn.old"].kind == "server"
    phone = by_name["ada@phone"]
    assert (phone.kind, phone.user, phone.device) == ("client", "ada", "phone")
    assert {name for name, one in by_name.items() if one.valid(clock.now)} == {"vpn.old", "ada", "ada@phone"}
    assert by_name["bob"].reason == "keyCompromise"
    assert by_name["eve"].revoked is None
    assert all(one.key == "" for one in by_name.values())
    root = x509.load_pem_x509_certificates(pki.authorities().encode())[0]
    assert {one.issuer for one in by_name.values()} == {root.serial_number}
    assert listed(pki.crl()) == [{by_name["bob"].serial}, set()]
    assert pki.client("ada").issuer != root.serial_number  # a profile needs a key


def test_all_is_taken_over(folder: Path, empty: Pki, later: Clock) -> None:
    empty.import_easy_rsa(folder, "", PASSPHRASE)
    check(empty, later)


def test_the_numbers_of_revocation_lists_go_on(folder: Path, empty: Pki, later: Clock) -> None:
    (folder / "crlnumber").write_text("2A\n")
    (folder / "ca.conf").write_text("[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=crlnumber\n")
    command = ["openssl", "ca", "-gencrl", "-config", "ca.conf", "-cert", "ca.crt", "-keyfile"]
    subprocess.run(
        [*command, "private/ca.key", "-md", "sha256", "-crldays", "9", "-out", "crl.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    empty.import_easy_rsa(folder, "", PASSPHRASE)
    crl = x509.load_pem_x509_crl(empty.crl().encode())
    assert crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 0x2A + 1


def test_an_old_rsa_ca_with_a_passphrase(tmp_path: Path, empty: Pki, later: Clock) -> None:
    folder = make(tmp_path / "rsa", algorithm="rsa", bits="4096", passphrase=THEIRS)
    with pytest.raises(PkiError, match=r"ca\.key: .*passphrase") as caught:
        empty.import_easy_rsa(folder, "another one", PASSPHRASE)
    assert "another one" not in str(caught.value)
    assert not empty.exists()
    empty.import_easy_rsa(folder, THEIRS, PASSPHRASE)
    check(empty, later)
    with pytest.raises(PkiError, match="pki/root: the passphrase"):
        empty.renew_intermediate(THEIRS)
    empty.renew_intermediate(PASSPHRASE)


def test_revoking_what_the_old_ca_issued_takes_the_passphrase(folder: Path, empty: Pki) -> None:
    empty.import_easy_rsa(folder, "", PASSPHRASE)
    empty.client("ada", "desk")
    with pytest.raises(PkiError, match="ada, ada@"):
        empty.revoke("ada")
    assert len(listed(empty.crl())[0]) == 1
    with pytest.raises(PkiError, match="pki/root: the passphrase"):
        empty.revoke("ada", passphrase="wrong wrong wrong")
    assert [len(each) for each in listed(empty.crl())] == [1, 0]
    gone = empty.revoke("ada", reason="cessationOfOperation", passphrase=PASSPHRASE)
    assert {one.name for one in gone} == {"ada", "ada@phone", "ada@desk"}
    assert {one.reason for one in gone} == {"cessationOfOperation"}
    assert [len(each) for each in listed(empty.crl())] == [3, 1]
    assert empty.revoke("ada") == ()


def test_a_certificate_for_both_server_and_client_is_a_persons(folder: Path, empty: Pki) -> None:
    """OpenVPN's ``remote-cert-tls client`` lets its holder in."""
    easy_rsa(folder.parent, "build-serverClient-full", "grace@both", "nopass", EASYRSA_ALGO="ec")
    empty.import_easy_rsa(folder, "", PASSPHRASE)
    both = next(one for one in empty.certificates() if one.name == "grace@both")
    assert (both.kind, both.user, both.device) == ("client", "grace", "both")
    assert [one.serial for one in empty.revoke("grace", passphrase=PASSPHRASE)] == [both.serial]
    assert both.serial in listed(empty.crl())[0]


def test_one_that_was_imported_as_a_servers_has_its_person(
    folder: Path, later: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was imported before certificates for both counted as a person's."""
    easy_rsa(folder.parent, "build-serverClient-full", "grace", "nopass", EASYRSA_ALGO="ec")
    pki = Pki(Memory(), domain="lab.internal", clock=later)
    written = records.imported_text

    def as_a_servers(certificate: x509.Certificate, now: datetime) -> str:
        nobody = {"user": "", "device": ""}
        return json.dumps({**json.loads(written(certificate, now)), **nobody})

    monkeypatch.setattr(records, "imported_text", as_a_servers)
    pki.import_easy_rsa(folder, "", PASSPHRASE)
    assert [one.name for one in pki.revoke("grace", passphrase=PASSPHRASE)] == ["grace"]


def sign_again(folder: Path, days: int, *options: str) -> None:
    """Replace the CA's certificate by another one of the same key."""
    command = ["openssl", "req", "-x509", "-new", "-key", "private/ca.key", "-subj", "/CN=Old CA", *options]
    command += ["-days", str(days), "-out", "ca.crt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def index(folder: Path) -> Path:
    return folder / "index.txt"


NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
LEAF_ONLY = ("-addext", "basicConstraints=critical,CA:TRUE,pathlen:0")


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda pki: (pki / "ca.crt").unlink(), r"ca\.crt: "),
        (lambda pki: shutil.copy(pki / "issued" / "ada.crt", pki / "ca.crt"), r"ca\.crt: .* root"),
        (lambda pki: sign_again(pki, 1), r"ca\.crt: "),
        (lambda pki: sign_again(pki, 100, *LEAF_ONLY), r"ca\.crt: .* below"),
        (lambda pki: (pki / "private" / "ca.key").unlink(), r"ca\.key: "),
        (lambda pki: (pki / "private" / "ca.key").write_text("x"), r"ca\.key: "),
        (lambda pki: shutil.copy(pki / "private" / "ada.key", pki / "private" / "ca.key"), r"ca\.key: "),
        (lambda pki: index(pki).unlink(), r"index\.txt: "),
        (lambda pki: index(pki).write_text("V\t270101000000Z\t01\n"), r"index\.txt:1: "),
        (lambda pki: index(pki).write_text(ROW.format(state="X", serial="01")), r"index\.txt:1: "),
        (lambda pki: index(pki).write_text(ROW.format(state="V", serial="0A")), r"index\.txt:1: /CN=ada"),
        (lambda pki: (pki / "issued" / "ada.crt").write_text(NO_CERTIFICATE), r"\.crt: "),
        (lambda pki: (pki / "crl.pem").write_text("nothing"), r"crl\.pem: "),
    ],
)
def test_what_can_not_be_taken_over(
    folder: Path, empty: Pki, spoil: Callable[[Path], object], where: str
) -> None:
    spoil(folder)
    with pytest.raises(PkiError, match=where):
        empty.import_easy_rsa(folder, "", PASSPHRASE)
    assert not empty.exists()


def test_an_authority_below_is_refused_unless_revoked(folder: Path, empty: Pki) -> None:
    settings = {"EASYRSA_ALGO": "ec", "EASYRSA_CURVE": "secp384r1"}
    easy_rsa(folder.parent, "gen-req", "below", "nopass", **settings)
    easy_rsa(folder.parent, "sign-req", "ca", "below", **settings)
    with pytest.raises(PkiError, match=r"index\.txt:6: /CN=below"):
        empty.import_easy_rsa(folder, "", PASSPHRASE)
    easy_rsa(folder.parent, "revoke", "below", **settings)
    empty.import_easy_rsa(folder, "", PASSPHRASE)
    assert len(listed(empty.crl())[0]) == 2


def test_many_revocations_are_kept_in_parts(folder: Path, empty: Pki, later: Clock) -> None:
    file = index(folder)
    rows = [
        f"R\t300101000000Z\t260101000000Z\t{serial:032X}\tunknown\t/CN=x{serial}\n"
        for serial in range(1, 500)
    ]
    file.write_text(file.read_text() + "".join(rows))
    empty.import_easy_rsa(folder, "", PASSPHRASE)
    assert len(listed(empty.crl())[0]) == 500
    empty.revoke("ada", "phone", passphrase=PASSPHRASE)
    assert len(listed(empty.crl())[0]) == 501
    data = empty.backup(PASSPHRASE)
    other = Pki(Memory(), domain="lab.internal", clock=later)
    other.restore(data, PASSPHRASE)
    assert other.crl() == empty.crl()
