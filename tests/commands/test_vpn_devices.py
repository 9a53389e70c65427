"""WireGuard's devices, as the commands make them: a local store, no cloud, no machines."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from infra.commands import pki_store
from infra.commands.environment import Project, find, load_project
from infra.commands.vpn import devices, gateway_files, people
from infra.drive import clock
from infra.drive.build_folders import Folders
from infra.drive.outputs import keep
from infra.drive.vpn.wireguard import new_private_key, public_key
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
secrets: {store: local}
access:
  vpn: {kinds: [wireguard], servers: [rack, us-west-2], certificate_days: 100}
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

Meaning = Callable[[], Project]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meaning:
    """What the spec means now, in a project that was applied."""
    file = tmp_path / "environments" / "lab.yaml"
    file.parent.mkdir()
    file.write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ticks = count()
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(seconds=next(ticks)))
    applied = {"instances": {"vpn-us-west-2": {"private_ip": "10.0.1.10", "public_ip": "192.0.2.1"}}}
    keep(Folders(tmp_path / "build" / "lab"), applied)
    return lambda: load_project(find("lab"), changeable=True)


def entered(
    project: Project, user: str, device: str = "", *, key: str = "", site: str = "", qr: bool = False
) -> Path:
    """The file of a profile, without a word to the servers."""
    out = f"{user}-{device}-{site}.conf"
    arguments: dict[str, Any] = {"home": "", "out": out, "push": False, "json": False}
    given: dict[str, Any] = {"device": device, "site": site, "public_key": key, "qr": qr}
    assert devices.profile(project, user, **given, **arguments) == 0
    return Path(out)


def conf(path: Path) -> ConfigParser:
    parser = ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text())
    return parser


def peers(project: Project, site: str = "rack") -> dict[str, dict[str, Any]]:
    """By name, as a push would bring them."""
    gateway_files.prepare(project, pki_store.store(project))
    file = project.environment.build / "openvpn" / site / "etc/remote-access/peers.json"
    return {each["name"]: each for each in json.loads(file.read_text())["peers"]}


def test_a_profile_is_one_private_file_whose_key_only_the_device_has(lab: Meaning, tmp_path: Path) -> None:
    path = entered(lab(), "ada", "phone")
    assert path.stat().st_mode & 0o777 == 0o600
    told = conf(path)
    private = told["Interface"]["PrivateKey"]
    known = peers(lab())["ada@phone"]
    assert known["key"] == public_key(private)
    assert told["Interface"]["Address"] == f"{known['address']}/32"
    assert told["Peer"]["Endpoint"] == "198.51.100.10:51822"
    server = (tmp_path / "build/lab/openvpn/rack/etc/wireguard/wg-laptops.key").read_text().strip()
    assert told["Peer"]["PublicKey"] == public_key(server)
    kept = [each for each in (tmp_path / ".secrets", tmp_path / "build" / "lab" / "openvpn") if each.exists()]
    files = [file for folder in kept for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not any(private.encode() in file.read_bytes() for file in files)


def test_only_the_plans_blocks_and_the_resolver_go_through_it(lab: Meaning) -> None:
    project = lab()
    told = conf(entered(project, "ada"))
    vpn = project.cluster.access.vpn
    allowed = {IPv4Network(each) for each in told["Peer"]["AllowedIPs"].split(", ")}
    resolver, *domains = told["Interface"]["DNS"].split(", ")
    assert allowed == {*vpn.routes, IPv4Network(resolver)}
    assert domains == ["lab.internal", "cluster.local"]
    assert IPv4Address(told["Interface"]["Address"].removesuffix("/32")) not in vpn.clients


def test_a_key_of_the_devices_own_stays_there(lab: Meaning) -> None:
    private = new_private_key()
    path = entered(lab(), "ada", "laptop", key=public_key(private))
    assert "PrivateKey" not in conf(path)["Interface"]
    assert peers(lab())["ada@laptop"]["key"] == public_key(private)
    before = path.read_text()
    assert entered(lab(), "ada", "laptop", key=public_key(private)).read_text() == before


@pytest.mark.parametrize("key", ["", "x", "A" * 43 + "=", "ssh-ed25519 AAAA", "q" * 44])
def test_a_key_that_is_none_is_refused(lab: Meaning, key: str) -> None:
    with pytest.raises(UsageError, match="--public-key"):
        entered(lab(), "ada", key=key or " ")


def test_a_key_is_one_devices_and_never_comes_back_once_revoked(lab: Meaning) -> None:
    key = public_key(new_private_key())
    entered(lab(), "ada", "phone", key=key)
    with pytest.raises(UsageError, match="ada@phone"):
        entered(lab(), "bob", key=key)
    assert people.revoke(lab(), "ada", device="phone", reason="unspecified", push=False, json=True) == 0
    with pytest.raises(UsageError, match="revoked"):
        entered(lab(), "ada", "phone", key=key)


def test_devices_have_addresses_of_their_own_that_stay(lab: Meaning) -> None:
    users = {user.login: user for user in lab().cluster.access.vpn.users}
    assert set(users) == {"ada", "bob", "ivy"}
    for user, device in (("bob", ""), ("ada", ""), ("ada", "phone"), ("ivy", "")):
        entered(lab(), user, device)
    before = {name: each["address"] for name, each in peers(lab()).items()}
    assert len(set(before.values())) == len(before)
    for name, address in before.items():
        block = users[name.partition("@")[0]].devices
        assert block is not None
        assert IPv4Address(address) in block
    entered(lab(), "ada")  # a new key, at the same place
    assert {name: each["address"] for name, each in peers(lab()).items()} == before
    assert peers(lab(), "us-west-2") == peers(lab())


def test_a_user_has_eight_devices_and_a_revoked_ones_place_is_free(
    lab: Meaning, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(8):
        entered(lab(), "ada", f"d{number}")
    with pytest.raises(UsageError, match="8 devices"):
        entered(lab(), "ada", "ninth")
    address = peers(lab())["ada@d3"]["address"]
    capsys.readouterr()
    assert people.revoke(lab(), "ada", device="d3", reason="unspecified", push=False, json=True) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == ["ada@d3"]
    assert "ada@d3" not in peers(lab())
    entered(lab(), "ada", "ninth")
    assert peers(lab())["ada@ninth"]["address"] == address


def test_a_revocation_takes_all_of_one_user_and_nobody_else(
    lab: Meaning, capsys: pytest.CaptureFixture[str]
) -> None:
    for user, device in (("ada", ""), ("ada", "phone"), ("bob", "")):
        entered(lab(), user, device)
    assert people.revoke(lab(), "ada", device=None, reason="unspecified", push=False, json=True) == 0
    assert set(peers(lab())) == {"bob"}
    capsys.readouterr()
    assert people.listing(lab(), json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    states = {(row["kind"], row["user"], row["device"]): row["state"] for row in rows}
    assert states == {
        ("wireguard", "ada", ""): "revoked",
        ("wireguard", "ada", "phone"): "revoked",
        ("wireguard", "bob", ""): "valid",
    }


def test_a_lost_phone_leaves_the_certificate_of_its_user_alone(
    lab: Meaning, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("environments/lab.yaml")
    file.write_text(file.read_text().replace("kinds: [wireguard]", "kinds: [openvpn, wireguard]"))
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    assert people.init(lab()) == 0
    assert people.profile(lab(), "ada", device="", home="", out="", json=False) == 0
    entered(lab(), "ada", "phone")
    assert people.revoke(lab(), "ada", device="phone", reason="unspecified", push=False, json=False) == 0
    capsys.readouterr()
    assert people.listing(lab(), json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["kind"], row["device"]): row["state"] for row in rows} == {
        ("openvpn", ""): "valid",
        ("wireguard", "phone"): "revoked",
    }
    with pytest.raises(UsageError, match="ada@laptop never had"):
        people.revoke(lab(), "ada", device="laptop", reason="unspecified", push=False, json=False)


def test_who_leaves_the_spec_is_no_peer(lab: Meaning, tmp_path: Path) -> None:
    for user in ("ada", "bob"):
        entered(lab(), user)
    file = tmp_path / "environments" / "lab.yaml"
    file.write_text("\n".join(line for line in SPEC.splitlines() if "    ada:" not in line))
    assert set(peers(lab())) == {"bob"}


def test_a_key_lasts_no_longer_than_its_user(lab: Meaning) -> None:
    for user in ("ada", "ivy"):
        entered(lab(), user)
    ends = {name: datetime.fromtimestamp(each["until"], UTC) for name, each in peers(lab()).items()}
    assert 99 <= (ends["ada"] - NOW).days <= 100
    assert NOW < ends["ivy"] < datetime(2031, 1, 12, tzinfo=UTC)


def test_a_plan_says_whose_key_ends_within_a_month(lab: Meaning) -> None:
    for user, device in (("ada", ""), ("ivy", "phone")):
        entered(lab(), user, device)
    [line] = pki_store.notes(lab(), {})
    assert "ivy@phone" in line
    assert "invoke vpn.profile --env lab --kind wireguard --user ivy --device phone" in line


def test_a_code_for_a_phone_holds_the_whole_profile(lab: Meaning, capsys: pytest.CaptureFixture[str]) -> None:
    path = entered(lab(), "ada", "phone", qr=True)
    shown = capsys.readouterr().out
    assert devices.code(path.read_text()) in shown
    with pytest.raises(UsageError, match="--qr"):
        entered(lab(), "ada", "laptop", key=public_key(new_private_key()), qr=True)


@pytest.mark.parametrize("user", ["eve", "nobody"])
def test_who_may_not_come_in_gets_none(lab: Meaning, user: str) -> None:
    with pytest.raises(UsageError):
        entered(lab(), user)


def test_a_server_by_name(lab: Meaning) -> None:
    assert conf(entered(lab(), "ada", site="us-west-2"))["Peer"]["Endpoint"] == "192.0.2.1:51822"
    with pytest.raises(UsageError, match="--server"):
        entered(lab(), "ada", site="nowhere")


def test_one_key_is_good_at_every_server(lab: Meaning) -> None:
    given: dict[str, Any] = {"device": "phone", "site": "", "public_key": "", "qr": False, "out": ""}
    assert devices.profile(lab(), "ada", home="", push=False, json=True, **given) == 0
    folder = Path("build/lab/profiles/ada-phone")
    found = {path.name: conf(path) for path in folder.iterdir()}
    assert {name: each["Peer"]["Endpoint"] for name, each in found.items()} == {
        "rack.conf": "198.51.100.10:51822",
        "us-west-2.conf": "192.0.2.1:51822",
    }
    assert len({each["Interface"]["PrivateKey"] for each in found.values()}) == 1
    assert len({each["Peer"]["PublicKey"] for each in found.values()}) == 2


def test_which_kind_is_meant(lab: Meaning, tmp_path: Path) -> None:
    file = tmp_path / "environments" / "lab.yaml"
    assert devices.meant(lab(), "", "", "", qr=False) == "wireguard"
    file.write_text(SPEC.replace("kinds: [wireguard]", "kinds: [openvpn, wireguard]"))
    assert devices.meant(lab(), "", "", "", qr=False) == "openvpn"
    assert devices.meant(lab(), "", "", "", qr=True) == "wireguard"
    with pytest.raises(UsageError, match="--qr"):
        devices.meant(lab(), "openvpn", "", "", qr=True)
    assert devices.meant(lab(), "", "", "", qr=False, csr="ada.pem") == "openvpn"
    for kind, key, qr in (("", "", True), ("", "k", False), ("wireguard", "", False)):
        with pytest.raises(UsageError, match="--csr"):
            devices.meant(lab(), kind, "", key, qr=qr, csr="ada.pem")
    file.write_text(SPEC)
    with pytest.raises(UsageError, match=r"access\.vpn\.kinds"):
        devices.meant(lab(), "openvpn", "", "", qr=False)
    file.write_text(SPEC.replace("kinds: [wireguard], ", ""))
    with pytest.raises(UsageError, match=r"access\.vpn\.kinds"):
        devices.meant(lab(), "wireguard", "", "", qr=False)


@pytest.mark.skipif(shutil.which("wg") is None, reason="needs the package wireguard-tools")
def test_wg_reads_what_it_is_given(lab: Meaning, tmp_path: Path) -> None:
    private = conf(entered(lab(), "ada"))["Interface"]["PrivateKey"]
    told = subprocess.run(["wg", "pubkey"], input=private, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == public_key(private) == peers(lab())["ada"]["key"]


def test_both_kinds_stand_in_one_tree(lab: Meaning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    file = tmp_path / "environments" / "lab.yaml"
    file.write_text(SPEC.replace("kinds: [wireguard]", "kinds: [openvpn, wireguard]"))
    assert people.init(lab()) == 0
    assert people.profile(lab(), "ada", device="", home="", out="", json=True) == 0
    entered(lab(), "ada", "phone")
    assert set(peers(lab())) == {"ada@phone"}
    root = tmp_path / "build/lab/openvpn/rack"
    assert (root / "etc/openvpn/server/server.key").exists()
    assert (root / "etc/wireguard/wg-laptops.conf").exists()
    # One word takes both back.
    assert people.revoke(lab(), "ada", device=None, reason="unspecified", push=False, json=True) == 0
    assert peers(lab()) == {}
