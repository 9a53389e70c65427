"""What goes wrong around a PKI: power loss, damaged records, wrong passphrases, clocks, other hands."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from drive.conftest import Messages
from drive.pki import pki_killed
from drive.pki.pki_lab import PASSPHRASE, START, Clock, Memory, revoked_serials
from drive.pki.test_pki_easy_rsa import EASY_RSA, make

from infra.drive.pki import Pki, PkiError, encryption
from infra.drive.secrets.local import LocalStore

WRONG = "wrong horse battery"


def sound(pki: Pki) -> None:
    """It opens, and its records and its lists say the same."""
    before = pki.certificates()
    assert revoked_serials(pki.crl()) == {one.serial for one in before if one.revoked}
    assert pki.certificates() == before
    assert x509.load_pem_x509_certificates(pki.authorities().encode())
    pki.tls_crypt_server_key()
    pki.due()


def again(pki: Pki, operation: str, extra: Path) -> None:
    """What was cut off can be asked for again, and is then done."""
    if operation in {"create", "import"} and pki.exists():
        with pytest.raises(PkiError, match="already"):
            pki_killed.OPERATIONS[operation](pki, extra)
    else:
        pki_killed.OPERATIONS[operation](pki, extra)
    sound(pki)
    certificates = {one.name: one for one in pki.certificates()}
    if operation == "issue":
        assert len(pki.certificates()) == 3
        assert {"grace", "grace@phone"} <= set(certificates)
    elif operation == "revoke":
        assert certificates["ada"].revoked
    elif operation == "renew":
        old, new = pki.certificates()
        assert old.revoked
        assert not new.revoked
        assert new.replaces == old.serial
    elif operation == "revoke_imported":
        assert certificates["ada"].revoked
        assert certificates["ada@phone"].revoked
        assert not certificates["vpn.old"].revoked
    elif operation == "import":
        assert len(certificates) == 5
    assert len(pki.client("after").key) > 100


@pytest.mark.parametrize("operation", pki_killed.OPERATIONS)
def test_killed_at_every_write_it_opens_and_tells_no_lies(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "COST", 4)
    template, copies, extra = tmp_path / "template", tmp_path / "copies", tmp_path / "easy-rsa"
    template.mkdir()
    now = START
    if "import" in operation:
        if not Path(EASY_RSA).exists():
            pytest.skip("needs the package easy-rsa")
        make(extra, algorithm="ec")
        now = datetime.now(START.tzinfo).replace(microsecond=0) + timedelta(minutes=1)
    if operation == "revoke_imported":
        pki_killed.open_pki(template, now).import_easy_rsa(extra, "", PASSPHRASE)
    elif operation not in {"create", "import"}:
        pki = pki_killed.open_pki(template, now)
        pki.create(PASSPHRASE, "lab")
        pki.client("ada")
    later = now + timedelta(hours=1)
    done = subprocess.run(
        [sys.executable, pki_killed.__file__, operation, copies, template, later.isoformat(), extra],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr
    runs = int(done.stdout)
    assert runs > 7, "was not killed at all"
    for run in range(1, runs + 1):
        pki = pki_killed.open_pki(copies / str(run), later)
        if pki.exists():
            sound(pki)
        else:
            assert operation in {"create", "import"}
        assert pki.exists() or run < runs
        again(pki, operation, extra)


def spoil(store: LocalStore | Memory, name: str, change: Callable[[dict[str, object]], object]) -> None:
    record = json.loads(store.get(name) or "")
    change(record)
    store.put(name, json.dumps(record))


def record_of(store: LocalStore | Memory, serial: int) -> str:
    """The name of a certificate's record."""
    return next(name for name in store.names("pki/") if name.endswith(f"/certificates/{serial:040x}"))


def test_a_damaged_record_stops_all_but_a_restore(pki: Pki, store: LocalStore, clock: Clock) -> None:
    name = record_of(store, pki.client("ada").serial)
    data = pki.backup(PASSPHRASE)
    before = pki.certificates()
    spoil(store, name, lambda record: record.pop("user"))
    fresh = Pki(store, domain="lab.internal", clock=clock)
    issue, back_up = (lambda: fresh.client("grace")), (lambda: fresh.backup(PASSPHRASE))
    for ask in (fresh.certificates, fresh.crl, issue, back_up, lambda: fresh.restore(data, PASSPHRASE)):
        with pytest.raises(PkiError, match=name):
            ask()
    fresh.restore(data, PASSPHRASE, replace=True)
    assert fresh.certificates() == before


def test_what_is_said_of_damage(pki: Pki, store: LocalStore, clock: Clock, messages: Messages) -> None:
    other = Pki(Memory(), domain="lab.internal", clock=clock)
    other.create(PASSPHRASE, "other")
    ada, grace, foreign = pki.client("ada"), pki.client("grace"), other.client("ada")
    name, of_grace = (record_of(store, one.serial) for one in (ada, grace))
    of_foreign = name.replace(f"{ada.serial:040x}", f"{foreign.serial:040x}")
    (root_list,) = (each for each in store.names("pki/") if "/root-crl/" in each)
    sound_records = {each: store.get(each) or "" for each in store.names("pki/")}
    data = json.loads(pki.backup(PASSPHRASE))

    def spoiled(**records: str | None) -> Pki:
        texts = sound_records | records
        copy = Memory({each: text for each, text in texts.items() if text is not None})
        return Pki(copy, domain="lab.internal", clock=clock)

    def changed(place: str, **members: object) -> Callable[[], object]:
        record = json.loads(sound_records.get(place, sound_records[name])) | members
        return lambda: spoiled(**{place: json.dumps(record)}).crl()

    def without(folder: str) -> Callable[[], object]:
        return lambda: spoiled(**{each: None for each in sound_records if f"/{folder}/" in each}).crl()

    def restored(members: Mapping[str, object], by: str = PASSPHRASE) -> Callable[[], object]:
        return lambda: pki.restore(json.dumps(data | members).encode(), by)

    root = json.loads(sound_records["pki/root"])
    root["key"]["cost"] = 99
    costly = spoiled(**{"pki/root": json.dumps(root)})
    cases = {
        "newer": changed(name, version=2),
        "user": changed(name, user=None),
        "key": changed(name, key="x"),
        "another's key": changed(name, key=grace.key),
        "certificate": changed(name, certificate="x"),
        "another certificate": lambda: spoiled(**{name: sound_records[of_grace]}).crl(),
        "another authority": changed(of_foreign, certificate=foreign.certificate, key=foreign.key),
        "time": changed(name, issued="yesterday"),
        "time zone": changed(name, issued="2026-01-01T00:00:00"),
        "number": changed(name, replaces="x"),
        "tls-crypt": changed(name, tls_crypt_v2="x"),
        "no list": without("root-crl"),
        "no intermediate": without("intermediates"),
        "list": lambda: spoiled(**{root_list: "nonsense"}).crl(),
        "root": lambda: spoiled(**{"pki/root": "nonsense"}).exists(),
        "root's place": changed("pki/root", id="../x"),
        "root's seal": lambda: costly.renew_intermediate(PASSPHRASE),
        "wrong passphrase": lambda: pki.renew_intermediate(WRONG),
        "short passphrase": lambda: pki.backup("short"),
        "backup of a newer version": restored({"causeway pki backup": 2}),
        "backup's cost": restored({"cost": 40}),
        "backup's salt": restored({"salt": "?"}),
        "backup cut short": restored({"data": data["data"][:-8]}),
        "backup's passphrase": restored({}, WRONG),
        "no backup": lambda: pki.restore(b"{}", PASSPHRASE),
        "another PKI's backup": lambda: pki.restore(other.backup(PASSPHRASE), PASSPHRASE),
    }
    messages.refusals("pki-damage", PkiError, cases)


def test_a_short_passphrase_makes_none(store: LocalStore, clock: Clock) -> None:
    pki = Pki(store, domain="lab.internal", clock=clock)
    with pytest.raises(PkiError):
        pki.create("short", "lab")
    assert not pki.exists()


def test_the_real_cost_of_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    box = encryption.seal(b"x", PASSPHRASE, "test")
    assert box["cost"] == 17
    assert encryption.unseal(box, PASSPHRASE, "test", "here") == b"x"
    with pytest.raises(PkiError, match="here: "):
        encryption.unseal(box, PASSPHRASE, "another purpose", "here")


def test_a_clock_that_jumped_back(pki: Pki, store: LocalStore, clock: Clock) -> None:
    clock.turn(days=10)
    name = record_of(store, pki.client("ada").serial)
    before = pki.crl()
    clock.turn(minutes=-4)
    assert pki.crl() == before, "two engineers' clocks differ a little"
    clock.turn(days=-2)
    message = f"2026-11-29 .*{name} .*2026-12-01"
    for ask in (
        pki.crl,
        lambda: pki.client("grace"),
        lambda: pki.server("lab", []),
        lambda: pki.revoke("ada"),
        lambda: pki.renew(pki.certificates()[0]),
        lambda: pki.renew_intermediate(PASSPHRASE),
    ):
        with pytest.raises(PkiError, match=message):
            ask()
    assert len(pki.certificates()) == 1, "reading goes on"
    clock.turn(days=2)
    assert pki.revoke("ada")


def test_no_key_and_no_passphrase_is_ever_shown(
    pki: Pki,
    store: LocalStore,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shown = []
    with caplog.at_level(logging.DEBUG):
        certificate, server = pki.client("ada"), pki.server("lab", [])
        register = pki._register()
        shown += [repr(each) for each in (pki, vars(pki), certificate, server, register, pki.due(), store)]
        data = pki.backup(PASSPHRASE)
        shown.append(data.decode())
        name = record_of(store, certificate.serial)
        spoiled = Memory({each: store.get(each) or "" for each in store.names()})
        spoil(spoiled, name, lambda record: record.update(certificate=record["key"]))
        for ask in (
            lambda: pki.renew_intermediate(WRONG),
            lambda: pki.restore(data, WRONG),
            lambda: pki.create(PASSPHRASE, "lab"),
            lambda: Pki(spoiled, domain="lab.internal", clock=clock).crl(),
        ):
            with pytest.raises(PkiError) as caught:
                ask()
            shown.append("".join(traceback.format_exception(caught.value)))
    out, err = capfd.readouterr()
    text = "\n".join([*shown, caplog.text, out, err])
    secrets = [PASSPHRASE, WRONG]
    for pem in (certificate.key, server.key, certificate.tls_crypt, pki.tls_crypt_server_key()):
        secrets += [line for line in pem.splitlines() if not line.startswith("-----")]
    for intermediate in register.intermediates:
        secrets += intermediate.key.splitlines()[1:-1]
    secrets.append(str(register.root.sealed["data"]))
    assert len(secrets) > 20
    assert not [secret for secret in secrets if secret in text]
    on_disk = Path(str(store)).read_text()
    assert not [secret for secret in secrets if secret in on_disk]


def test_two_who_make_one_at_once(store: LocalStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = (Pki(store, domain="lab.internal", clock=clock) for _ in range(2))
    monkeypatch.setattr(slow, "_refuse_second", lambda: quick.create(PASSPHRASE, "quick"))
    with pytest.raises(PkiError, match="somebody else"):
        slow.create(PASSPHRASE, "slow")
    assert "quick" in x509.load_pem_x509_certificates(slow.authorities().encode())[0].subject.rfc4514_string()
    assert len(store.names("pki/")) == 3, "nothing is left of the other"
    assert slow.client("ada") == quick.client("ada")


class Deaf(Memory):
    """Adds, and does not hear that it did, as when an answer of AWS's gets lost and botocore tries again."""

    def add(self, values: Mapping[str, str]) -> frozenset[str]:
        super().add(values)
        return frozenset()


def test_an_answer_that_got_lost(clock: Clock) -> None:
    pki = Pki(Deaf(), domain="lab.internal", clock=clock)
    pki.create(PASSPHRASE, "lab")
    made = pki.client("ada")
    assert [one.serial for one in pki.revoke("ada")] == [made.serial]
    assert revoked_serials(pki.crl()) == {made.serial}
    sound(pki)


def test_a_store_of_somebody_else_s_secrets_stays(store: LocalStore, clock: Clock) -> None:
    store.put("vpn/lab/1", "tunnel")
    store.put("pkix", "other")
    Pki(store, domain="lab.internal", clock=clock).create(PASSPHRASE, "lab")
    assert store.read(["vpn/lab/1", "pkix"]) == {"vpn/lab/1": "tunnel", "pkix": "other"}


def test_a_backup_brings_all_back(pki: Pki, clock: Clock, tmp_path: Path) -> None:
    pki.client("ada")
    pki.revoke("ada")
    kept = pki.client("grace")
    data = pki.backup(PASSPHRASE)
    for wrong in (b"", b"\xff", b"[]", b"{}", data[: len(data) // 2]):
        with pytest.raises(PkiError):
            pki.restore(wrong, PASSPHRASE)
    elsewhere = Pki(Memory(), domain="lab.internal", clock=clock)
    elsewhere.restore(data, PASSPHRASE)
    assert elsewhere.certificates() == pki.certificates()
    assert elsewhere.crl() == pki.crl()
    assert elsewhere.client("grace") == kept
    elsewhere.renew_intermediate(PASSPHRASE)


def test_an_old_backup_takes_nothing_back(pki: Pki) -> None:
    pki.client("ada")
    data = pki.backup(PASSPHRASE)
    pki.revoke("ada")
    pki.client("grace")
    before = pki.certificates()
    for replace in (False, True):
        pki.restore(data, PASSPHRASE, replace=replace)
        assert pki.certificates() == before


def test_a_backup_does_not_take_the_place_of_another_unasked(pki: Pki, clock: Clock) -> None:
    other = Pki(Memory(), domain="lab.internal", clock=clock)
    other.create(PASSPHRASE, "other")
    data = other.backup(PASSPHRASE)
    before = pki.authorities()
    with pytest.raises(PkiError, match="pki/root"):
        pki.restore(data, PASSPHRASE)
    assert pki.authorities() == before
    pki.restore(data, PASSPHRASE, replace=True)
    assert pki.authorities() == other.authorities()
    assert len(pki._store.names("pki/")) == 3
