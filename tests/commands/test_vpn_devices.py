"""WireGuard's devices, as the commands make them: a local store, no cloud, no machines."""

from __future__ import annotations

import json
import shutil
import subprocess
from configparser import ConfigParser
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from commands import vpn_lab
from commands.vpn_lab import NOW, Meaning, profile, revoke, states

from infra.commands import pki_store
from infra.commands.environment import Project
from infra.commands.vpn import devices, gateway_files, people
from infra.drive.vpn.wireguard import new_private_key, public_key
from infra.errors import UsageError

SERVERS = "rack, us-west-2"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meaning:
    """What the spec means now, in a project that was applied."""
    return vpn_lab.begin(tmp_path, monkeypatch, vpn_lab.spec("wireguard", SERVERS))


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meaning:
    """With OpenVPN, too, of which ada has a profile."""
    lab = vpn_lab.begin(tmp_path, monkeypatch, vpn_lab.spec("openvpn, wireguard", SERVERS))
    assert people.init(lab()) == 0
    profile(lab(), "ada")
    return lab


def enter(
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
    return {peer["name"]: peer for peer in json.loads(file.read_text())["peers"]}


def test_a_profile_is_one_private_file_whose_key_only_the_device_has(lab: Meaning, tmp_path: Path) -> None:
    path = enter(lab(), "ada", "phone")
    assert path.stat().st_mode & 0o777 == 0o600
    config = conf(path)
    private = config["Interface"]["PrivateKey"]
    peer = peers(lab())["ada@phone"]
    assert peer["key"] == public_key(private)
    assert config["Interface"]["Address"] == f"{peer['address']}/32"
    assert config["Peer"]["Endpoint"] == "198.51.100.10:51822"
    server = (tmp_path / "build/lab/openvpn/rack/etc/wireguard/wg-laptops.key").read_text().strip()
    assert config["Peer"]["PublicKey"] == public_key(server)
    folders = (tmp_path / ".secrets", tmp_path / "build" / "lab" / "openvpn")
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not any(private.encode() in file.read_bytes() for file in files)


def test_only_the_plans_blocks_and_the_resolver_go_through_it(lab: Meaning) -> None:
    project = lab()
    config = conf(enter(project, "ada"))
    vpn = project.cluster.access.vpn
    allowed = {IPv4Network(block) for block in config["Peer"]["AllowedIPs"].split(", ")}
    resolver, *domains = config["Interface"]["DNS"].split(", ")
    assert allowed == {*vpn.routes, IPv4Network(resolver)}
    assert domains == ["lab.internal", "cluster.local"]
    assert IPv4Address(config["Interface"]["Address"].removesuffix("/32")) not in vpn.clients


def test_a_key_of_the_devices_own_stays_there(lab: Meaning) -> None:
    private = new_private_key()
    path = enter(lab(), "ada", "laptop", key=public_key(private))
    assert "PrivateKey" not in conf(path)["Interface"]
    assert peers(lab())["ada@laptop"]["key"] == public_key(private)
    before = path.read_text()
    assert enter(lab(), "ada", "laptop", key=public_key(private)).read_text() == before


def test_a_second_profile_of_a_device_says_that_the_first_ends(
    lab: Meaning, capsys: pytest.CaptureFixture[str]
) -> None:
    private = new_private_key()
    for device, key, ends in (
        ("", "", False),
        ("laptop", public_key(private), False),
        ("laptop", public_key(private), False),
        ("laptop", "", True),
        ("", "", True),
    ):
        enter(lab(), "ada", device, key=key)
        assert ("--device" in capsys.readouterr().err) == ends


@pytest.mark.parametrize("key", [" ", "x", "A" * 43 + "=", "ssh-ed25519 AAAA", "q" * 44])
def test_a_key_that_is_none_is_refused(lab: Meaning, key: str) -> None:
    with pytest.raises(UsageError, match="--public-key"):
        enter(lab(), "ada", key=key)


def test_a_key_is_one_devices_and_never_comes_back_once_revoked(lab: Meaning) -> None:
    key = public_key(new_private_key())
    enter(lab(), "ada", "phone", key=key)
    with pytest.raises(UsageError, match="ada@phone"):
        enter(lab(), "bob", key=key)
    revoke(lab(), "ada", device="phone")
    with pytest.raises(UsageError, match="revoked"):
        enter(lab(), "ada", "phone", key=key)


def test_devices_have_addresses_of_their_own_that_stay(lab: Meaning) -> None:
    users = {user.login: user for user in lab().cluster.access.vpn.users}
    assert set(users) == {"ada", "bob", "ivy"}
    for user, device in (("bob", ""), ("ada", ""), ("ada", "phone"), ("ivy", "")):
        enter(lab(), user, device)
    before = {name: peer["address"] for name, peer in peers(lab()).items()}
    assert len(set(before.values())) == len(before)
    for name, address in before.items():
        block = users[name.partition("@")[0]].devices
        assert block is not None
        assert IPv4Address(address) in block
    enter(lab(), "ada")  # a new key, at the same place
    assert {name: peer["address"] for name, peer in peers(lab()).items()} == before
    assert peers(lab(), "us-west-2") == peers(lab())


def test_a_user_has_eight_devices_and_a_revoked_ones_place_is_free(
    lab: Meaning, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(8):
        enter(lab(), "ada", f"d{number}")
    with pytest.raises(UsageError, match="8 devices"):
        enter(lab(), "ada", "ninth")
    address = peers(lab())["ada@d3"]["address"]
    capsys.readouterr()
    revoke(lab(), "ada", device="d3")
    assert json.loads(capsys.readouterr().out)["devices"] == ["ada@d3"]
    assert "ada@d3" not in peers(lab())
    enter(lab(), "ada", "ninth")
    assert peers(lab())["ada@ninth"]["address"] == address


def test_a_revocation_takes_all_of_one_user_and_nobody_else(
    both: Meaning, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for user, device in (("ada", ""), ("ada", "phone"), ("bob", "")):
        enter(both(), user, device)
    assert set(peers(both())) == {"ada", "ada@phone", "bob"}
    rack = tmp_path / "build/lab/openvpn/rack/etc"
    assert (rack / "openvpn/server/server.key").exists()
    assert (rack / "wireguard/wg-laptops.conf").exists()
    # A lost phone leaves the certificate of its user alone.
    revoke(both(), "ada", device="phone")
    assert ("openvpn", "ada", "", "valid") in states(both(), capsys)
    revoke(both(), "ada")
    assert set(peers(both())) == {"bob"}
    assert {row[:3] for row in states(both(), capsys) if row[3] == "valid"} == {("wireguard", "bob", "")}
    with pytest.raises(UsageError, match="ada@laptop"):
        revoke(both(), "ada", device="laptop")


def test_who_leaves_the_spec_is_no_peer(lab: Meaning, tmp_path: Path) -> None:
    for user in ("ada", "bob"):
        enter(lab(), user)
    file = tmp_path / "environments" / "lab.yaml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "    ada:" not in line))
    assert set(peers(lab())) == {"bob"}


def test_a_key_lasts_no_longer_than_its_user_and_a_plan_names_those_that_end(lab: Meaning) -> None:
    for user, device in (("ada", ""), ("ivy", "phone")):
        enter(lab(), user, device)
    ends = {name: datetime.fromtimestamp(peer["until"], UTC) for name, peer in peers(lab()).items()}
    assert 99 <= (ends["ada"] - NOW).days <= 100
    assert NOW < ends["ivy@phone"] < datetime(2031, 1, 12, tzinfo=UTC)
    [line] = pki_store.notes(lab(), {})
    assert "ivy@phone" in line
    assert line.endswith("invoke vpn.profile --env lab --kind wireguard --user ivy --device phone")


def test_a_code_for_a_phone_holds_the_whole_profile(lab: Meaning, capsys: pytest.CaptureFixture[str]) -> None:
    path = enter(lab(), "ada", "phone", qr=True)
    assert devices.code(path.read_text()) in capsys.readouterr().out
    with pytest.raises(UsageError, match="--qr"):
        enter(lab(), "ada", "laptop", key=public_key(new_private_key()), qr=True)


@pytest.mark.parametrize("user", ["eve", "nobody"])
def test_who_may_not_come_in_gets_none(lab: Meaning, user: str) -> None:
    with pytest.raises(UsageError, match=user):
        enter(lab(), user)


def test_one_key_is_good_at_every_server_or_at_the_one_that_is_named(lab: Meaning) -> None:
    given: dict[str, Any] = {"device": "phone", "site": "", "public_key": "", "qr": False, "out": ""}
    assert devices.profile(lab(), "ada", home="", push=False, json=True, **given) == 0
    configs = {path.name: conf(path) for path in Path("build/lab/profiles/ada-phone").iterdir()}
    assert {name: config["Peer"]["Endpoint"] for name, config in configs.items()} == {
        "rack.conf": "198.51.100.10:51822",
        "us-west-2.conf": "192.0.2.1:51822",
    }
    assert len({config["Interface"]["PrivateKey"] for config in configs.values()}) == 1
    assert len({config["Peer"]["PublicKey"] for config in configs.values()}) == 2
    assert conf(enter(lab(), "ada", site="us-west-2"))["Peer"]["Endpoint"] == "192.0.2.1:51822"
    with pytest.raises(UsageError, match="--server"):
        enter(lab(), "ada", site="nowhere")


@pytest.mark.parametrize(
    ("kinds", "kind", "given", "meant"),
    [
        ("wireguard", "", {}, "wireguard"),
        ("openvpn, wireguard", "", {}, "openvpn"),
        ("openvpn, wireguard", "", {"qr": True}, "wireguard"),
        ("openvpn, wireguard", "openvpn", {"qr": True}, "--qr"),
        ("openvpn, wireguard", "", {"csr": "ada.pem"}, "openvpn"),
        ("openvpn, wireguard", "", {"csr": "ada.pem", "qr": True}, "--csr"),
        ("openvpn, wireguard", "", {"csr": "ada.pem", "public_key": "k"}, "--csr"),
        ("openvpn, wireguard", "wireguard", {"csr": "ada.pem"}, "--csr"),
        ("wireguard", "openvpn", {}, "access.vpn.kinds"),
        ("openvpn", "wireguard", {}, "access.vpn.kinds"),
    ],
)
def test_which_kind_is_meant(
    lab: Meaning, tmp_path: Path, kinds: str, kind: str, given: dict[str, Any], meant: str
) -> None:
    (tmp_path / "environments" / "lab.yaml").write_text(vpn_lab.spec(kinds, SERVERS))
    arguments = {"server": "", "public_key": "", "qr": False, **given}
    if meant in ("openvpn", "wireguard"):
        assert devices.meant(lab(), kind, **arguments) == meant
    else:
        with pytest.raises(UsageError, match=meant):
            devices.meant(lab(), kind, **arguments)


@pytest.mark.skipif(shutil.which("wg") is None, reason="needs the package wireguard-tools")
def test_wg_reads_what_it_is_given(lab: Meaning) -> None:
    private = conf(enter(lab(), "ada"))["Interface"]["PrivateKey"]
    done = subprocess.run(["wg", "pubkey"], input=private, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == public_key(private) == peers(lab())["ada"]["key"]
