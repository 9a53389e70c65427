"""Several engineers with one store, be it the encrypted file or Parameter Store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from drive.pki.pki_lab import PASSPHRASE, Clock, Memory, revoked_serials
from drive.pki.test_pki_easy_rsa import EASY_RSA, make

from infra.drive.pki import Pki, PkiError, chunks
from infra.drive.secrets import Store, open_store
from infra.model.cluster import Secrets

Opener = Callable[[], Pki]
"""Opens the same PKI anew, as another engineer's command would."""


@pytest.fixture(params=["local", "ssm"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "ssm":
        secrets = Secrets("ssm", f"/causeway/{tmp_path.name}", "us-west-2")
        files = dict.fromkeys(["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"], str(tmp_path / "config"))
        env = request.getfixturevalue("moto_env") | files
    else:
        secrets, env = Secrets("local", "", ""), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    return lambda: open_store(secrets, "lab", tmp_path / ".secrets", env)


@pytest.fixture
def opener(open_one: Callable[[], Store], clock: Clock) -> Opener:
    return lambda: Pki(open_one(), domain="lab.internal", clock=clock)


def test_a_whole_life(opener: Opener, clock: Clock) -> None:
    opener().create(PASSPHRASE, "lab")
    ada = opener().client("ada")
    server = opener().server("lab", ["203.0.113.7"])
    assert opener().client("ada") == ada
    assert opener().server("lab", ["203.0.113.7"]) == server
    clock.turn(days=300)
    new = opener().renew(ada, revoke=True)
    opener().revoke("ada", reason="keyCompromise")
    assert revoked_serials(opener().crl()) == {ada.serial, new.serial}
    opener().renew_intermediate(PASSPHRASE)
    assert {each.kind for each in opener().due()} == set()
    data = opener().backup(PASSPHRASE)
    copy = Pki(Memory(), domain="lab.internal", clock=clock)
    copy.restore(data, PASSPHRASE)
    assert copy.certificates() == opener().certificates()
    opener().restore(data, PASSPHRASE)
    assert copy.crl() == opener().crl()


def test_all_who_revoke_at_once_are_in_the_next_list(opener: Opener) -> None:
    opener().create(PASSPHRASE, "lab")
    users = [f"user{number}" for number in range(6)]
    serials = {one.serial for one in opener().clients([(user, "") for user in users])}
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda user: opener().revoke(user), [*users, *users]))
    assert revoked_serials(opener().crl()) == serials
    assert all(one.revoked for one in opener().certificates())


def test_one_revokes_what_the_other_renews(opener: Opener) -> None:
    opener().create(PASSPHRASE, "lab")
    old = opener().client("ada")
    with ThreadPoolExecutor(2) as pool:
        renewed = pool.submit(lambda: opener().renew(old))
        gone = pool.submit(lambda: opener().revoke_each([old]))
        new, (revoked,) = renewed.result(), gone.result()
    assert revoked.serial == old.serial
    assert revoked_serials(opener().crl()) == {old.serial}
    after = {one.serial: one for one in opener().certificates()}
    assert after[old.serial].replaced_by == new.serial
    assert after[new.serial].revoked is None


def test_two_revoke_by_the_root_at_once(
    open_one: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path(EASY_RSA).exists():
        pytest.skip("needs the package easy-rsa")
    folder = make(tmp_path / "easy-rsa", algorithm="ec")
    now = datetime.now(UTC)
    late: list[str] = []

    def opened() -> Pki:
        return Pki(open_one(), domain="lab.internal", clock=lambda: now)

    opened().import_easy_rsa(folder, "", PASSPHRASE)
    before = len(revoked_serials(opened().crl()))
    real = chunks.add

    def add(store: Store, name: str, text: str) -> bool:
        if not late:  # just before the first one's list is kept, somebody else's is
            late.append(name)
            opened().revoke("eve", passphrase=PASSPHRASE)
        return real(store, name, text)

    monkeypatch.setattr(chunks, "add", add)
    opened().revoke("ada", passphrase=PASSPHRASE)
    revoked = {one.name for one in opened().certificates() if one.revoked}
    assert revoked == {"ada", "ada@phone", "bob", "eve"}
    assert len(revoked_serials(opened().crl())) == before + 3


def test_a_list_that_others_never_leave_alone(
    open_one: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path(EASY_RSA).exists():
        pytest.skip("needs the package easy-rsa")
    pki = Pki(open_one(), domain="lab.internal", clock=lambda: datetime.now(UTC))
    pki.import_easy_rsa(make(tmp_path / "easy-rsa", algorithm="ec"), "", PASSPHRASE)
    monkeypatch.setattr(chunks, "add", lambda *_: False)
    with pytest.raises(PkiError):
        pki.revoke("ada", passphrase=PASSPHRASE)
    assert not [one for one in pki.certificates() if one.user == "ada" and one.revoked]
