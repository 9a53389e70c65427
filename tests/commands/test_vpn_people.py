"""Profiles and certificates, as the commands make them: a local store, no cloud, no machines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import vpn_lab
from commands.vpn_lab import NOW, Meaning, profile, revoke, set_clock, states
from cryptography import x509
from golden_folders import assert_text

from infra.commands import pki_store
from infra.commands.vpn import gateway_files, people
from infra.drive.pki import PkiError
from infra.errors import CausewayError

MESSAGES = Path(__file__).parents[1] / "messages" / "vpn.txt"
PROFILES = Path("build/lab/profiles")
SERVER = Path("build/lab/openvpn/rack/etc/openvpn/server")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meaning:
    """What the spec means now, without a PKI."""
    return vpn_lab.begin(tmp_path, monkeypatch, vpn_lab.spec())


@pytest.fixture
def lab(bare: Meaning) -> Meaning:
    """With a PKI."""
    assert people.init(bare()) == 0
    return bare


def blocks(name: str) -> dict[str, str]:
    """The inline files of a profile."""
    text = (PROFILES / f"{name}.ovpn").read_text()
    return {match[1]: match[2] for match in re.finditer(r"<([a-z0-9-]+)>\n(.*?)\n</\1>", text, re.DOTALL)}


def certificate(name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(blocks(name)["cert"].encode())


def test_networkmanager_has_an_archive_that_is_roots(lab: Meaning) -> None:
    profile(lab(), "ada", "phone")
    path = PROFILES / "ada-phone.networkmanager.tar"
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
        folder = "etc/openvpn/client/lab-ada-phone"
        connection = "etc/NetworkManager/system-connections/lab-ada-phone.nmconnection"
        names = ("ca.crt", "client.crt", "client.key", "tls-crypt-v2.key")
        assert set(entries) == {folder, connection, *(f"{folder}/{name}" for name in names)}
        assert {(entry.uid, entry.gid, entry.mode & 0o077) for entry in entries.values()} == {(0, 0, 0)}
        inline = blocks("ada-phone")
        for name, block in zip(names, ("ca", "cert", "key", "tls-crypt-v2"), strict=True):
            file = tar.extractfile(f"{folder}/{name}")
            assert file is not None
            assert file.read().decode().strip() == inline[block]


def test_a_signing_request_is_answered_with_a_profile_that_names_its_key(
    lab: Meaning, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ada.key -subj /CN=ada -out ada.csr"
    subprocess.run(["openssl", "req", "-new", *words.split()], check=True, capture_output=True)
    capsys.readouterr()
    assert people.openvpn_profile(lab(), "ada", device="", csr="ada.csr", home="", out="", json=True) == 0
    paths = json.loads(capsys.readouterr().out)
    text = Path(paths["file"]).read_text()
    assert "\nkey ada.key\n" in text
    assert "PRIVATE KEY" not in text
    with tarfile.open(paths["networkmanager"]) as tar:
        assert not [name for name in tar.getnames() if name.endswith("client.key")]


def test_a_profile_is_one_private_file_and_the_same_when_it_is_written_again(lab: Meaning) -> None:
    profile(lab(), "ada")
    path = PROFILES / "ada.ovpn"
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(blocks("ada")) == {"ca", "cert", "key", "tls-crypt-v2"}
    text = path.read_text()
    assert "remote 192.0.2.1 1194 udp" in text
    assert "remote 198.51.100.10 443 tcp" in text
    profile(lab(), "ada")
    assert path.read_text() == text
    profile(lab(), "ivy")
    ends = {name: (certificate(name).not_valid_after_utc - NOW).days for name in ("ada", "ivy")}
    assert ends == {"ada": 100, "ivy": 10}, "no longer than a user's time"


def test_a_home_network_in_the_way_is_told(lab: Meaning, capsys: pytest.CaptureFixture[str]) -> None:
    profile(lab(), "ada", home="10.200.0.0/26")
    assert "10.200.0.0/26" in capsys.readouterr().err
    profile(lab(), "ada", home="192.168.178.0/24")
    assert "192.168.178.0" not in capsys.readouterr().err


def test_profiles_of_everybody_who_has_none(lab: Meaning, capsys: pytest.CaptureFixture[str]) -> None:
    profile(lab(), "ada", device="phone")
    assert people.profiles(lab(), everybody=False, json=False) == 0
    names = {path.stem for path in PROFILES.glob("*.ovpn")}
    assert names == {"ada-phone", "bob", "ivy"}
    capsys.readouterr()
    assert people.profiles(lab(), everybody=True, json=True) == 0
    written = [Path(path).stem for path in json.loads(capsys.readouterr().out)]
    assert written == ["ada", "ada-phone", "bob", "ivy"]
    assert blocks("ada")["key"] != blocks("ada-phone")["key"], "a device has a key of its own"


def revoked(path: Path) -> set[int]:
    """The serial numbers on a server's lists."""
    end = "-----END X509 CRL-----\n"
    lists = [x509.load_pem_x509_crl((part + end).encode()) for part in path.read_text().split(end)[:-1]]
    return {entry.serial_number for crl in lists for entry in crl}


def test_who_is_revoked_is_on_every_servers_list(lab: Meaning, capsys: pytest.CaptureFixture[str]) -> None:
    profile(lab(), "ada")
    profile(lab(), "bob")
    revoke(lab(), "ada", reason="keyCompromise")
    for site in ("us-west-2", "rack"):
        folder = Path("build/lab/openvpn") / site / "etc/openvpn/server"
        assert revoked(folder / "crl.pem") == {certificate("ada").serial_number}
        assert all(
            path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir() if path.suffix != ".conf"
        )
    assert states(lab(), capsys) == [
        ("openvpn", "ada", "", "revoked: keyCompromise"),
        ("openvpn", "bob", "", "valid"),
    ]


def test_a_server_that_is_not_reached_is_told_and_fails(
    lab: Meaning, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_SSH_CONFIG", str(Path("nowhere").absolute()))
    profile(lab(), "ada")
    capsys.readouterr()
    assert people.revoke(lab(), "ada", device="", reason="unspecified", push=True, json=True) == 1
    outcome = json.loads(capsys.readouterr().out)
    assert set(outcome["failed"]) == {"us-west-2", "rack"}
    # Again, without servers: there is no certificate left to revoke.
    revoke(lab(), "ada")
    assert json.loads(capsys.readouterr().out)["revoked"] == []


def test_a_user_who_left_the_spec_is_to_be_revoked(lab: Meaning, capsys: pytest.CaptureFixture[str]) -> None:
    profile(lab(), "bob")
    spec = Path("environments/lab.yaml")
    spec.write_text(re.sub(r"    bob: .*\n", "", spec.read_text()))
    (note,) = pki_store.notes(lab(), {})
    assert "invoke vpn.revoke --env lab --user bob" in note
    [(*_, state)] = states(lab(), capsys)
    assert "revoked" in state


def test_without_a_pki_a_plan_does_not_wait_for_its_libraries(bare: Meaning) -> None:
    program = (
        "import sys\n"
        "from infra.commands.environment import find, load_project\n"
        "from infra.commands import pki_store\n"
        "print(pki_store.notes(load_project(find('lab')), {}), 'cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "() False\n"


def test_what_ends_soon_is_told_and_renewed(
    lab: Meaning, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(lab(), "ada")
    set_clock(monkeypatch, days=80)
    (note,) = pki_store.notes(lab(), {})
    assert "2031-04-11" in note
    assert "invoke vpn.renew --env lab --user ada" in note
    old = blocks("ada")["key"]
    assert people.renew(lab(), user="", device="", authority=False, revoke_old=False, json=False) == 0
    assert blocks("ada")["key"] != old
    assert pki_store.notes(lab(), {}) == ()
    assert [state for *_, state in states(lab(), capsys)] == ["valid, replaced", "valid"]
    # A lost key is replaced and refused.
    assert people.renew(lab(), user="ada", device="", authority=False, revoke_old=True, json=False) == 0
    *_, lost, last = [state for *_, state in states(lab(), capsys)]
    assert (lost, last) == ("revoked: superseded", "valid")


def test_a_server_whose_list_ends_soon_is_in_plans_and_lists(
    lab: Meaning, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no servers: the push that brings a list is played."""
    project = lab()
    monkeypatch.setattr("infra.drive.push_tree.push", lambda *_, **_named: ())
    store = pki_store.store(project)
    gateway_files.prepare(project, store)
    servers = [place for place in gateway_files.places(project) if place.target == gateway_files.OPENVPN]
    assert {server.site for server in servers} == {"us-west-2", "rack"}
    brought = gateway_files.bring(project, store, servers[:1])
    assert not any(outcome.error for outcome in brought.values())
    assert pki_store.notes(project, {}) == ()
    set_clock(monkeypatch, days=61)
    (line,) = pki_store.notes(project, {})
    assert {servers[0].site, "2031-04-01"} <= set(re.findall(r"[\w-]+", line))
    assert "invoke vpn.push --env lab" in line
    capsys.readouterr()
    people.listing(project, json=True)
    assert line in capsys.readouterr().err
    set_clock(monkeypatch, days=91)
    assert pki_store.lists_ending(project, store) != (line,)


def test_a_new_authority_issues_and_the_old_ones_certificates_stay_good(lab: Meaning) -> None:
    profile(lab(), "ada")
    assert people.renew(lab(), user="", device="", authority=True, revoke_old=False, json=False) == 0
    profile(lab(), "bob")
    assert certificate("ada").issuer != certificate("bob").issuer
    assert (SERVER / "ca.crt").read_text().count("BEGIN CERT") == 3


def test_a_backup_brings_a_lost_pki_back(lab: Meaning, monkeypatch: pytest.MonkeyPatch) -> None:
    profile(lab(), "ada")
    before = (PROFILES / "ada.ovpn").read_bytes()
    assert people.backup(lab(), "lab.pki") == 0
    assert Path("lab.pki").stat().st_mode & 0o777 == 0o600
    for path in Path(".secrets").glob("lab*"):
        path.unlink()
    monkeypatch.setenv(pki_store.PASSPHRASE, "not the right passphrase")
    with pytest.raises(PkiError):
        people.restore(lab(), "lab.pki", replace=False)
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    assert people.restore(lab(), "lab.pki", replace=False) == 0
    profile(lab(), "ada")
    assert (PROFILES / "ada.ovpn").read_bytes() == before


def test_trees_hold_keys_and_nobody_else_reads_them(lab: Meaning) -> None:
    store = pki_store.store(lab())
    assert gateway_files.prepare(lab(), store) == {"rack", "us-west-2"}
    assert gateway_files.prepare(lab(), store) == frozenset()
    keys = Path("build/lab/strongswan/rack/etc/swanctl/conf.d/90-keys.conf")
    assert keys.stat().st_mode & 0o777 == 0o600
    secret = store.get("vpn/rack-us-west-2/1")
    assert secret
    assert secret in keys.read_text()
    profile(lab(), "ada")
    secrets = [secret, *blocks("ada")["key"].splitlines()[1:-1]]
    files = [path for path in Path("build").rglob("*") if path.is_file()]
    open_to_others = [path for path in files if path.stat().st_mode & 0o077]
    assert open_to_others
    assert not [path for path in open_to_others for secret in secrets if secret in path.read_text()]


def test_refusals(bare: Meaning, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Each of them: the error's type, and what it says."""
    lines = []

    @contextmanager
    def refused() -> Iterator[None]:
        with pytest.raises(CausewayError) as caught:
            yield
        lines.append(f"{type(caught.value).__name__}: {caught.value}\n")

    def all_refused(*calls: Callable[[], object]) -> None:
        for call in calls:
            with refused():
                call()

    with refused():
        profile(bare(), "ada")
    people.init(bare())
    lab = bare()
    profile(lab, "ada")
    Path("binary.csr").write_bytes(b"\xff")
    all_refused(
        lambda: profile(lab, "adda"),
        lambda: profile(lab, "eve"),
        lambda: profile(lab, "ada", home="my home"),
        lambda: profile(lab, "ada", csr="nowhere.csr"),
        lambda: profile(lab, "ada", csr="."),
        lambda: profile(lab, "ada", csr="binary.csr"),
        lambda: revoke(lab, "adda"),
        lambda: revoke(lab, "ada", reason="because"),
        lambda: people.restore(lab, "other.pki", replace=False),
        lambda: gateway_files.places(lab, ["rakc"]),
    )
    set_clock(monkeypatch, days=10)
    all_refused(lambda: profile(lab, "ivy"))
    # As on the machine of a colleague: a gateway would take its tunnels down.
    Path("build/lab/state/outputs.json").unlink()
    all_refused(
        lambda: gateway_files.push(bare(), (), json=False),
        lambda: gateway_files.deliver(bare(), pki_store.store(bare()), ["rack"]),
    )
    spec = Path("environments/lab.yaml")
    spec.write_text(vpn_lab.spec(servers="us-west-2"))
    (PROFILES / "ada.ovpn").unlink()
    all_refused(lambda: profile(bare(), "ada"))
    assert not (PROFILES / "ada.ovpn").exists()
    assert_text(MESSAGES, "".join(lines), rewrite=request.config.getoption("--update-golden"))
