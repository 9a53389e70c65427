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
from infra.drive.secrets import Store

Opener = Callable[[], Pki]
"""Opens the same PKI anew, as another engineer's command would."""


@pytest.fixture
def opener(secrets_opener: Callable[[], Store], clock: Clock) -> Opener:
    return lambda: Pki(secrets_opener(), domain="lab.internal", clock=clock)


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


@pytest.fixture(scope="module")
def easy_rsa_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not Path(EASY_RSA).exists():
        pytest.skip("needs the package easy-rsa")
    return make(tmp_path_factory.mktemp("old") / "easy-rsa", algorithm="ec")


@pytest.fixture
def imported(secrets_opener: Callable[[], Store], easy_rsa_folder: Path) -> Opener:
    """Opens a PKI whose root is easy-rsa's."""
    now = datetime.now(UTC)

    def opened() -> Pki:
        return Pki(secrets_opener(), domain="lab.internal", clock=lambda: now)

    opened().import_easy_rsa(easy_rsa_folder, "", PASSPHRASE)
    return opened


def test_two_revoke_by_the_root_at_once(imported: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(revoked_serials(imported().crl()))
    late: list[str] = []
    real = chunks.add

    def add(store: Store, name: str, text: str) -> bool:
        if not late:  # just before the first one's list is kept, somebody else's is
            late.append(name)
            imported().revoke("eve", passphrase=PASSPHRASE)
        return real(store, name, text)

    monkeypatch.setattr(chunks, "add", add)
    imported().revoke("ada", passphrase=PASSPHRASE)
    revoked = {one.name for one in imported().certificates() if one.revoked}
    assert revoked == {"ada", "ada@phone", "bob", "eve"}
    assert len(revoked_serials(imported().crl())) == before + 3


def test_a_list_that_others_never_leave_alone(imported: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "add", lambda *_: False)
    with pytest.raises(PkiError):
        imported().revoke("ada", passphrase=PASSPHRASE)
    assert not [one for one in imported().certificates() if one.user == "ada" and one.revoked]
