"""A PKI of easy-rsa's is taken over by the command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from drive.pki.test_pki_easy_rsa import EASY_RSA, THEIRS, make

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
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    return make(tmp_path / "easy-rsa", algorithm="ec", passphrase=THEIRS) / "pki"


def test_an_easy_rsa_pki_becomes_ours(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = load_project(find("lab"))
    with pytest.raises(PkiError):
        people.take_over(lab, str(theirs))
    assert not pki_store.pki(lab, pki_store.store(lab)).exists(), "a wrong passphrase leaves nothing behind"
    monkeypatch.setenv(people.THEIRS, THEIRS)
    assert people.take_over(lab, str(theirs)) == 0
    assert "5 certificates, 4 of them valid" in capsys.readouterr().out
    named = {each.name: each for each in pki_store.existing(lab, pki_store.store(lab)).certificates()}
    assert named["ada@phone"].valid(datetime.now(UTC))
    assert named["bob"].revoked is not None


def test_a_folder_that_is_none(theirs: Path) -> None:
    with pytest.raises(PkiError, match="nowhere"):
        people.take_over(load_project(find("lab")), "nowhere")
