"""Profiles and certificates, as the commands make them: a local store, no cloud, no machines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from cryptography import x509

from infra.commands import pki_store
from infra.commands.environment import Project, find, load_project
from infra.commands.vpn import gateway_files, people
from infra.drive import clock
from infra.drive.build_folders import Folders
from infra.drive.outputs import keep
from infra.drive.pki import PkiError
from infra.errors import UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws, zones: [us-west-2a]}
  rack:
    kind: physical
    cidr: 10.200.0.0/24
    gateway: {addresses: [198.51.100.10]}
    nodes: {gate: {address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway, access-gateway]}}
images: {cpu: {}}
access:
  vpn: {servers: [us-west-2, rack], certificate_days: 100}
  groups: {people: {}}
  users:
    ada: {groups: [people], ssh_keys: [KEY]}
    bob: {groups: [people], ssh_keys: [KEY]}
    eve: {groups: [people], ssh_keys: [KEY], vpn: false}
    ivy: {groups: [people], ssh_keys: [KEY], expires: 2031-01-10}
""".replace(
    "KEY",
    '"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp x"',
)

NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)

APPLIED = {
    "instances": {"vpn-us-west-2": {"private_ip": "10.0.1.10", "public_ip": "192.0.2.1"}},
    "vpn_connections": {
        "rack-us-west-2": {"tunnels": [{"outside": "203.0.113.1"}, {"outside": "203.0.113.2"}]}
    },
}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spec's file, in a project that was applied."""
    file = tmp_path / "environments" / "lab.yaml"
    file.parent.mkdir()
    file.write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    ticks = count()
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(seconds=next(ticks)))
    keep(Folders(tmp_path / "build" / "lab"), APPLIED)
    return file


@pytest.fixture
def lab(spec: Path) -> Callable[[], Project]:
    """What the spec means now, with a PKI."""

    def meaning() -> Project:
        return load_project(find("lab"), changeable=True)

    assert people.init(meaning()) == 0
    return meaning


def profile(project: Project, user: str, device: str = "", home: str = "") -> None:
    assert people.profile(project, user, device=device, home=home, out="", json=False) == 0


def blocks(path: Path) -> dict[str, str]:
    return {
        found[1]: found[2]
        for found in re.finditer(r"<([a-z0-9-]+)>\n(.*?)\n</\1>", path.read_text(), re.DOTALL)
    }


def listed(project: Project, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert people.listing(project, json=True) == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    return rows


def test_without_a_pki_one_is_told_how_to_make_it(spec: Path) -> None:
    with pytest.raises(UsageError, match=r"lab has no PKI yet; make one: invoke vpn\.init --env lab"):
        profile(load_project(find("lab")), "ada")


def test_networkmanager_has_an_archive_that_is_roots(lab: Callable[[], Project]) -> None:
    profile(lab(), "ada", "phone")
    path = Path("build/lab/profiles/ada-phone.networkmanager.tar")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        entries = {each.name: each for each in tar.getmembers()}
        folder = "etc/openvpn/client/lab-ada-phone"
        connection = "etc/NetworkManager/system-connections/lab-ada-phone.nmconnection"
        names = ("ca.crt", "client.crt", "client.key", "tls-crypt-v2.key")
        assert set(entries) == {folder, connection, *(f"{folder}/{name}" for name in names)}
        assert {(each.uid, each.gid, each.mode & 0o077) for each in entries.values()} == {(0, 0, 0)}
        inline = blocks(path.with_name("ada-phone.ovpn"))
        for name, block in zip(names, ("ca", "cert", "key", "tls-crypt-v2"), strict=True):
            file = tar.extractfile(f"{folder}/{name}")
            assert file is not None
            assert file.read().decode().strip() == inline[block]


def test_a_signing_request_is_answered_with_a_profile_that_names_its_key(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    words = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ada.key -subj /CN=ada -out ada.csr"
    subprocess.run(["openssl", "req", "-new", *words.split()], check=True, capture_output=True)
    capsys.readouterr()
    assert people.profile(lab(), "ada", device="", csr="ada.csr", home="", out="", json=True) == 0
    told = json.loads(capsys.readouterr().out)
    text = Path(told["file"]).read_text()
    assert "\nkey ada.key\n" in text
    assert "PRIVATE KEY" not in text
    with tarfile.open(told["networkmanager"]) as tar:
        assert not [name for name in tar.getnames() if name.endswith("client.key")]
    for name, said in (("nowhere.csr", "nowhere.csr: No such file"), (".", "Is a directory")):
        with pytest.raises(UsageError, match=said):
            people.profile(lab(), "ada", device="", csr=name, home="", out="", json=True)


def test_a_profile_is_one_private_file(lab: Callable[[], Project]) -> None:
    profile(lab(), "ada")
    path = Path("build/lab/profiles/ada.ovpn")
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(blocks(path)) == {"ca", "cert", "key", "tls-crypt-v2"}
    text = path.read_text()
    assert "remote 192.0.2.1 1194 udp" in text
    assert "remote 198.51.100.10 443 tcp" in text
    certificate = x509.load_pem_x509_certificate(blocks(path)["cert"].encode())
    assert (certificate.not_valid_after_utc - NOW).days == 100


def test_a_profile_is_the_same_when_it_is_written_again(lab: Callable[[], Project]) -> None:
    profile(lab(), "ada")
    before = Path("build/lab/profiles/ada.ovpn").read_bytes()
    profile(lab(), "ada")
    assert Path("build/lab/profiles/ada.ovpn").read_bytes() == before


def test_each_device_has_a_profile_of_its_own(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada")
    profile(lab(), "ada", device="phone")
    one, other = (blocks(Path(f"build/lab/profiles/{name}.ovpn")) for name in ("ada", "ada-phone"))
    assert one["key"] != other["key"]
    assert [(row["user"], row["device"], row["state"]) for row in listed(lab(), capsys)] == [
        ("ada", "", "valid"),
        ("ada", "phone", "valid"),
    ]


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("adda", r"environments/lab\.yaml: access\.users has no adda; did you mean ada\?"),
        ("eve", r"access\.users\.eve\.vpn is false: eve gets no profile"),
    ],
)
def test_who_gets_no_profile(lab: Callable[[], Project], user: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        profile(lab(), user)


def test_a_certificate_ends_with_its_users_time(lab: Callable[[], Project]) -> None:
    profile(lab(), "ivy")
    certificate = x509.load_pem_x509_certificate(blocks(Path("build/lab/profiles/ivy.ovpn"))["cert"].encode())
    assert (certificate.not_valid_after_utc - NOW).days == 10


def test_a_users_time_that_is_over(lab: Callable[[], Project], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=10))
    with pytest.raises(UsageError, match=r"access\.users\.ivy\.expires: ivy's access ended on 2031-01-10"):
        profile(lab(), "ivy")


def test_a_home_network_in_the_way_is_told(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada", home="10.200.0.0/26")
    assert "warning: the home network 10.200.0.0/26 overlaps" in capsys.readouterr().err
    profile(lab(), "ada", home="192.168.178.0/24")
    assert "warning" not in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"--home: 'my home' is not a block"):
        profile(lab(), "ada", home="my home")


def test_before_the_first_apply_there_is_nowhere_to_connect_to(lab: Callable[[], Project]) -> None:
    Path("build/lab/state/outputs.json").unlink()
    spec = Path("environments/lab.yaml")
    spec.write_text(spec.read_text().replace("servers: [us-west-2, rack]", "servers: [us-west-2]"))
    with pytest.raises(UsageError, match=r"no VPN server's address is known yet: .* 'invoke apply', "):
        profile(lab(), "ada")
    assert not Path("build/lab/profiles").exists()


def test_profiles_of_everybody_who_has_none(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada", device="phone")
    assert people.profiles(lab(), everybody=False, json=False) == 0
    assert {path.name for path in Path("build/lab/profiles").glob("*.ovpn")} == {
        "ada-phone.ovpn",
        "bob.ovpn",
        "ivy.ovpn",
    }
    capsys.readouterr()
    assert people.profiles(lab(), everybody=True, json=True) == 0
    assert [Path(path).name for path in json.loads(capsys.readouterr().out)] == [
        "ada.ovpn", "ada-phone.ovpn", "bob.ovpn", "ivy.ovpn",
    ]  # fmt: skip


def revoked(path: Path) -> set[int]:
    text = path.read_text()
    end = "-----END X509 CRL-----\n"
    lists = [x509.load_pem_x509_crl((part + end).encode()) for part in text.split(end)[:-1]]
    return {entry.serial_number for each in lists for entry in each}


def test_who_is_revoked_is_on_every_servers_list(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada")
    profile(lab(), "bob")
    assert people.revoke(lab(), "ada", device=None, reason="keyCompromise", push=False, json=False) == 0
    told = capsys.readouterr()
    assert "ada: 1 certificate revoked." in told.out
    assert "Servers do not know yet: invoke vpn.push --env lab" in told.err
    ada = x509.load_pem_x509_certificate(blocks(Path("build/lab/profiles/ada.ovpn"))["cert"].encode())
    for site in ("us-west-2", "rack"):
        folder = Path("build/lab/openvpn") / site / "etc/openvpn/server"
        assert revoked(folder / "crl.pem") == {ada.serial_number}
        assert all(
            path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir() if path.suffix != ".conf"
        )
    states = {row["user"]: row["state"] for row in listed(lab(), capsys)}
    assert states == {"ada": "revoked: keyCompromise", "bob": "valid"}


def test_a_server_that_is_not_reached_is_told_and_fails(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_SSH_CONFIG", str(Path("nowhere").absolute()))
    profile(lab(), "ada")
    assert people.revoke(lab(), "ada", device=None, reason="unspecified", push=True, json=False) == 1
    told = capsys.readouterr()
    assert "us-west-2: was NOT reached: CAUSEWAY_SSH_CONFIG names" in told.out
    assert "us-west-2, rack still let ada in; run this again" in told.err
    assert people.revoke(lab(), "ada", device=None, reason="unspecified", push=False, json=False) == 0
    assert "ada: no certificate is valid." in capsys.readouterr().out


def test_revoking_a_stranger(lab: Callable[[], Project]) -> None:
    profile(lab(), "ada")
    with pytest.raises(UsageError, match=r"adda never had a certificate; did you mean ada\?"):
        people.revoke(lab(), "adda", device=None, reason="unspecified", push=False, json=False)
    with pytest.raises(PkiError, match="is no reason to revoke"):
        people.revoke(lab(), "ada", device=None, reason="because", push=False, json=False)


def test_a_user_who_left_the_spec_is_to_be_revoked(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "bob")
    spec = Path("environments/lab.yaml")
    spec.write_text(re.sub(r"    bob: .*\n", "", spec.read_text()))
    (note,) = pki_store.notes(lab(), {})
    assert note.startswith("to be revoked: bob, who is not in the spec, has 1 valid certificate; ")
    assert note.endswith("; invoke vpn.revoke --env lab --user bob")
    assert listed(lab(), capsys)[0]["state"] == "valid, to be revoked"


def test_without_a_pki_a_plan_does_not_wait_for_its_libraries(spec: Path) -> None:
    program = (
        "import sys\n"
        "from infra.commands.environment import find, load_project\n"
        "from infra.commands import pki_store\n"
        "print(pki_store.notes(load_project(find('lab')), {}), 'cryptography' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "() False\n"


def test_what_ends_soon_is_told_and_renewed(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(lab(), "ada")
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=80))
    assert pki_store.notes(lab(), {}) == (
        "the certificate ada ends on 2031-04-11; invoke vpn.renew --env lab --user ada",
    )
    old = blocks(Path("build/lab/profiles/ada.ovpn"))["key"]
    assert people.renew(lab(), user="", device="", authority=False, revoke_old=False, json=False) == 0
    assert blocks(Path("build/lab/profiles/ada.ovpn"))["key"] != old
    assert pki_store.notes(lab(), {}) == ()
    assert [row["state"] for row in listed(lab(), capsys)] == ["valid, replaced", "valid"]


def test_a_server_whose_list_ends_soon_is_in_plans_and_lists(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server of it is there: the push that brought its list is played."""
    project = lab()
    monkeypatch.setattr("infra.drive.push_tree.push", lambda *_: ())
    kept = pki_store.store(project)
    gateway_files.prepare(project, kept)
    servers = [each for each in gateway_files.places(project) if each.target == gateway_files.OPENVPN]
    assert {each.site for each in servers} == {"us-west-2", "rack"}
    assert not any(each.error for each in gateway_files.bring(project, kept, servers[:1]).values())
    site = servers[0].site
    assert pki_store.notes(project, {}) == ()
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=61))
    (line,) = pki_store.notes(project, {})
    assert (site in line, "2031-04-01" in line, "invoke vpn.push --env lab" in line) == (True, True, True)
    listed(project, capsys)
    people.listing(project, json=True)
    assert line in capsys.readouterr().err
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=91))
    assert pki_store.lists_ending(project, kept) != (line,)


def test_a_lost_key_is_replaced_and_refused(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada")
    assert people.renew(lab(), user="ada", device="", authority=False, revoke_old=True, json=False) == 0
    assert [row["state"] for row in listed(lab(), capsys)] == ["revoked: superseded", "valid"]


def test_a_new_authority_issues_and_the_old_ones_certificates_stay_good(
    lab: Callable[[], Project],
) -> None:
    profile(lab(), "ada")
    assert people.renew(lab(), user="", device="", authority=True, revoke_old=False, json=False) == 0
    profile(lab(), "bob")
    issuers = {
        x509.load_pem_x509_certificate(
            blocks(Path(f"build/lab/profiles/{name}.ovpn"))["cert"].encode()
        ).issuer
        for name in ("ada", "bob")
    }
    assert len(issuers) == 2
    assert Path("build/lab/openvpn/rack/etc/openvpn/server/ca.crt").read_text().count("BEGIN CERT") == 3


def test_a_backup_brings_a_lost_pki_back(
    lab: Callable[[], Project], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(lab(), "ada")
    before = Path("build/lab/profiles/ada.ovpn").read_bytes()
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
    assert Path("build/lab/profiles/ada.ovpn").read_bytes() == before
    with pytest.raises(UsageError, match=r"other\.pki: there is no such file"):
        people.restore(lab(), "other.pki", replace=False)


def test_trees_hold_keys_and_nobody_else_reads_them(lab: Callable[[], Project]) -> None:
    kept = pki_store.store(lab())
    assert gateway_files.prepare(lab(), kept) == {"rack", "us-west-2"}
    assert gateway_files.prepare(lab(), kept) == frozenset()
    keys = Path("build/lab/strongswan/rack/etc/swanctl/conf.d/90-keys.conf")
    assert keys.stat().st_mode & 0o777 == 0o600
    secret = kept.get("vpn/rack-us-west-2/1")
    assert secret
    assert secret in keys.read_text()
    profile(lab(), "ada")
    secrets = [secret, *blocks(Path("build/lab/profiles/ada.ovpn"))["key"].splitlines()[1:-1]]
    open_to_others = [
        path for path in Path("build").rglob("*") if path.is_file() and path.stat().st_mode & 0o077
    ]
    assert open_to_others
    assert not [path for path in open_to_others for each in secrets if each in path.read_text()]


def test_a_site_without_machines(lab: Callable[[], Project]) -> None:
    with pytest.raises(UsageError, match=r"rakc: no site with a gateway or .*; did you mean rack\?"):
        gateway_files.places(lab(), ["rakc"])


def test_a_tree_without_its_tunnels_is_not_brought(lab: Callable[[], Project]) -> None:
    """On a colleague's machine, say: the gateway would take its tunnels down."""
    Path("build/lab/state/outputs.json").unlink()
    said = r"us-west-2-1, us-west-2-2 are not known here.*invoke outputs --env lab reads them"
    with pytest.raises(UsageError, match=said):
        gateway_files.push(lab(), (), json=False)
    with pytest.raises(UsageError, match=said):
        gateway_files.deliver(lab(), pki_store.store(lab()), ["rack"])
