"""Profiles and certificates, as the commands make them: a local store, no cloud, no machines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from cryptography import x509

from infra.commands.environment import Understood, find, understand
from infra.commands.vpn import keeping, people, trees
from infra.drive.folders import Folders
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
    monkeypatch.setenv(keeping.PASSPHRASE, "a long enough passphrase")
    ticks = count()
    monkeypatch.setattr(keeping, "now", lambda: NOW + timedelta(seconds=next(ticks)))
    keep(Folders(tmp_path / "build" / "lab"), APPLIED)
    return file


@pytest.fixture
def lab(spec: Path) -> Callable[[], Understood]:
    """What the spec means now, with a PKI."""

    def meaning() -> Understood:
        return understand(find("lab"), changeable=True)

    assert people.init(meaning()) == 0
    return meaning


def profile(understood: Understood, user: str, device: str = "", home: str = "") -> None:
    assert people.profile(understood, user, device=device, home=home, out="", json=False) == 0


def blocks(path: Path) -> dict[str, str]:
    return {
        found[1]: found[2]
        for found in re.finditer(r"<([a-z0-9-]+)>\n(.*?)\n</\1>", path.read_text(), re.DOTALL)
    }


def listed(understood: Understood, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert people.listing(understood, json=True) == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    return rows


def test_without_a_pki_one_is_told_how_to_make_it(spec: Path) -> None:
    with pytest.raises(UsageError, match=r"lab has no PKI yet; make one: invoke vpn\.init --env lab"):
        profile(understand(find("lab")), "ada")


def test_a_profile_is_one_private_file(lab: Callable[[], Understood]) -> None:
    profile(lab(), "ada")
    path = Path("build/lab/profiles/ada.ovpn")
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(blocks(path)) == {"ca", "cert", "key", "tls-crypt-v2"}
    text = path.read_text()
    assert "remote 192.0.2.1 1194 udp" in text
    assert "remote 198.51.100.10 443 tcp" in text
    certificate = x509.load_pem_x509_certificate(blocks(path)["cert"].encode())
    assert (certificate.not_valid_after_utc - NOW).days == 100


def test_a_profile_is_the_same_when_it_is_written_again(lab: Callable[[], Understood]) -> None:
    profile(lab(), "ada")
    before = Path("build/lab/profiles/ada.ovpn").read_bytes()
    profile(lab(), "ada")
    assert Path("build/lab/profiles/ada.ovpn").read_bytes() == before


def test_each_device_has_a_profile_of_its_own(
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str]
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
def test_who_gets_no_profile(lab: Callable[[], Understood], user: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        profile(lab(), user)


def test_a_certificate_ends_with_its_users_time(lab: Callable[[], Understood]) -> None:
    profile(lab(), "ivy")
    certificate = x509.load_pem_x509_certificate(blocks(Path("build/lab/profiles/ivy.ovpn"))["cert"].encode())
    assert (certificate.not_valid_after_utc - NOW).days == 10


def test_a_users_time_that_is_over(lab: Callable[[], Understood], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "now", lambda: NOW + timedelta(days=10))
    with pytest.raises(UsageError, match=r"access\.users\.ivy\.expires: ivy's access ended on 2031-01-10"):
        profile(lab(), "ivy")


def test_a_home_network_in_the_way_is_told(
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada", home="10.200.0.0/26")
    assert "warning: the home network 10.200.0.0/26 overlaps" in capsys.readouterr().err
    profile(lab(), "ada", home="192.168.178.0/24")
    assert "warning" not in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"--home: 'my home' is no block"):
        profile(lab(), "ada", home="my home")


def test_before_the_first_apply_there_is_nowhere_to_connect_to(lab: Callable[[], Understood]) -> None:
    Path("build/lab/state/outputs.json").unlink()
    spec = Path("environments/lab.yaml")
    spec.write_text(spec.read_text().replace("servers: [us-west-2, rack]", "servers: [us-west-2]"))
    with pytest.raises(UsageError, match=r"no VPN server's address is known yet: .* 'invoke apply', "):
        profile(lab(), "ada")
    assert not Path("build/lab/profiles").exists()


def test_profiles_of_everybody_who_has_none(
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada", device="phone")
    assert people.profiles(lab(), everybody=False, json=False) == 0
    assert {path.name for path in Path("build/lab/profiles").iterdir()} == {
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
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str]
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
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_SSH_CONFIG", str(Path("nowhere").absolute()))
    profile(lab(), "ada")
    assert people.revoke(lab(), "ada", device=None, reason="unspecified", push=True, json=False) == 1
    told = capsys.readouterr()
    assert "us-west-2: was NOT reached: CAUSEWAY_SSH_CONFIG names" in told.out
    assert "us-west-2, rack still let ada in; run this again" in told.err
    assert people.revoke(lab(), "ada", device=None, reason="unspecified", push=False, json=False) == 0
    assert "ada: no certificate is valid." in capsys.readouterr().out


def test_revoking_a_stranger(lab: Callable[[], Understood]) -> None:
    profile(lab(), "ada")
    with pytest.raises(UsageError, match=r"adda never had a certificate; did you mean ada\?"):
        people.revoke(lab(), "adda", device=None, reason="unspecified", push=False, json=False)
    with pytest.raises(PkiError, match="is no reason to revoke"):
        people.revoke(lab(), "ada", device=None, reason="because", push=False, json=False)


def test_a_user_who_left_the_spec_is_to_be_revoked(
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "bob")
    spec = Path("environments/lab.yaml")
    spec.write_text(re.sub(r"    bob: .*\n", "", spec.read_text()))
    (note,) = keeping.notes(lab(), {})
    assert note.startswith("to be revoked: bob, who is not in the spec, has 1 valid certificate; ")
    assert note.endswith("; invoke vpn.revoke --env lab --user bob")
    assert listed(lab(), capsys)[0]["state"] == "valid, to be revoked"


def test_without_a_pki_a_plan_does_not_wait_for_its_libraries(spec: Path) -> None:
    program = (
        "import sys\n"
        "from infra.commands.environment import find, understand\n"
        "from infra.commands.vpn import keeping\n"
        "print(keeping.notes(understand(find('lab')), {}), 'cryptography' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "() False\n"


def test_what_ends_soon_is_told_and_renewed(
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(lab(), "ada")
    monkeypatch.setattr(keeping, "now", lambda: NOW + timedelta(days=80))
    assert keeping.notes(lab(), {}) == (
        "the certificate ada ends on 2031-04-11; invoke vpn.renew --env lab --user ada",
    )
    old = blocks(Path("build/lab/profiles/ada.ovpn"))["key"]
    assert people.renew(lab(), user="", device="", authority=False, revoke_old=False, json=False) == 0
    assert blocks(Path("build/lab/profiles/ada.ovpn"))["key"] != old
    assert keeping.notes(lab(), {}) == ()
    assert [row["state"] for row in listed(lab(), capsys)] == ["valid, replaced", "valid"]


def test_a_lost_key_is_replaced_and_refused(
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str]
) -> None:
    profile(lab(), "ada")
    assert people.renew(lab(), user="ada", device="", authority=False, revoke_old=True, json=False) == 0
    assert [row["state"] for row in listed(lab(), capsys)] == ["revoked: superseded", "valid"]


def test_a_new_authority_issues_and_the_old_ones_certificates_stay_good(
    lab: Callable[[], Understood],
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
    lab: Callable[[], Understood], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(lab(), "ada")
    before = Path("build/lab/profiles/ada.ovpn").read_bytes()
    assert people.backup(lab(), "lab.pki") == 0
    assert Path("lab.pki").stat().st_mode & 0o777 == 0o600
    for path in Path(".secrets").glob("lab*"):
        path.unlink()
    monkeypatch.setenv(keeping.PASSPHRASE, "not the right passphrase")
    with pytest.raises(PkiError):
        people.restore(lab(), "lab.pki", replace=False)
    monkeypatch.setenv(keeping.PASSPHRASE, "a long enough passphrase")
    assert people.restore(lab(), "lab.pki", replace=False) == 0
    profile(lab(), "ada")
    assert Path("build/lab/profiles/ada.ovpn").read_bytes() == before
    with pytest.raises(UsageError, match=r"other\.pki: there is no such file"):
        people.restore(lab(), "other.pki", replace=False)


def test_trees_hold_keys_and_nobody_else_reads_them(lab: Callable[[], Understood]) -> None:
    kept = keeping.store(lab())
    assert trees.prepare(lab(), kept) == {"rack", "us-west-2"}
    assert trees.prepare(lab(), kept) == frozenset()
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


def test_a_site_without_machines(lab: Callable[[], Understood]) -> None:
    with pytest.raises(UsageError, match=r"rakc: no site with a gateway or .*; did you mean rack\?"):
        trees.places(lab(), ["rakc"])


def test_a_tree_without_its_tunnels_is_not_brought(lab: Callable[[], Understood]) -> None:
    """On a colleague's machine, say: the gateway would take its tunnels down."""
    Path("build/lab/state/outputs.json").unlink()
    said = r"us-west-2-1, us-west-2-2 are not known here.*invoke outputs --env lab reads them"
    with pytest.raises(UsageError, match=said):
        trees.push(lab(), (), json=False)
    with pytest.raises(UsageError, match=said):
        trees.deliver(lab(), keeping.store(lab()), ["rack"])
