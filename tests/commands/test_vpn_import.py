"""A PKI of easy-rsa's is taken over by the command."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from drive.pki.test_pki_easy_rsa import EASY_RSA, THEIRS, easy_rsa, make

from infra.commands import pki_store
from infra.commands.environment import find, load_project
from infra.commands.vpn import people
from infra.drive.pki import PkiError

pytestmark = pytest.mark.skipif(not Path(EASY_RSA).exists(), reason="needs the package easy-rsa")

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws, zones: [us-west-2a]}
images: {cpu: {}}
access:
  users: {ada: {uid: 10001, ssh_keys: []}}
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    folder = make(tmp_path / "easy-rsa", algorithm="ec", passphrase=THEIRS)
    secret = f"pass:{THEIRS}"
    easy_rsa(
        folder,
        "build-serverClient-full",
        "grace@both",
        "nopass",
        EASYRSA_ALGO="ec",
        EASYRSA_CURVE="secp384r1",
        EASYRSA_PASSIN=secret,
        EASYRSA_PASSOUT=secret,
    )
    return folder / "pki"


def test_a_certificate_for_both_server_and_client_is_listed_and_revoked(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = load_project(find("lab"))
    monkeypatch.setenv(people.THEIRS, THEIRS)
    people.take_over(lab, str(theirs))

    def states() -> dict[str, str]:
        capsys.readouterr()
        assert people.listing(lab, json=True) == 0
        return {row["user"]: row["state"] for row in json.loads(capsys.readouterr().out)}

    assert "revoked" in states()["grace"]
    assert states()["grace"].startswith("valid")
    assert people.revoke(lab, "grace", device="", reason="unspecified", push=False, json=True) == 0
    assert states()["grace"].startswith("revoked")


def test_an_easy_rsa_pki_becomes_ours(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = load_project(find("lab"))
    with pytest.raises(PkiError):
        people.take_over(lab, str(theirs))
    assert not pki_store.pki(lab, pki_store.store(lab)).exists(), "a wrong passphrase leaves nothing behind"
    monkeypatch.setenv(people.THEIRS, THEIRS)
    assert people.take_over(lab, str(theirs)) == 0
    said = capsys.readouterr()
    assert {"6", "5"} <= {*said.out.split()}
    certificates = pki_store.existing(lab, pki_store.store(lab)).certificates()
    named = {issued.name: issued for issued in certificates}
    strangers = {issued.name for issued in certificates if f"serial {issued.id}" in said.err}
    assert strangers == {"eve", "grace@both"}, "of no user of the spec, and valid"
    assert named["ada@phone"].valid(datetime.now(UTC))
    assert named["bob"].revoked is not None


def test_a_folder_that_is_none(theirs: Path) -> None:
    with pytest.raises(PkiError, match="nowhere"):
        people.take_over(load_project(find("lab")), "nowhere")
