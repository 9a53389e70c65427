"""What `vpn.status` and `vpn.rotate` say. Both ends are played here; `tests/network` asks real ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from infra.commands import pki_store
from infra.commands.environment import Project, find, load_project
from infra.commands.vpn import tunnels
from infra.drive.build_folders import Folders
from infra.drive.outputs import keep
from infra.drive.secrets.store import PKI_ROOT
from infra.drive.vpn.cloud import Cloud, CloudState
from infra.drive.vpn.gateways import DOWN, LiveGateway, TunnelState
from infra.errors import UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
  eu-west-1: {kind: aws, zones: [eu-west-1a], overflow: 1}
  rack:
    kind: physical
    cidr: 10.200.0.0/24
    gateway: {addresses: [198.51.100.10]}
    nodes: {gate: {address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}
images: {cpu: {}}
"""

UP = TunnelState(True, "ESTABLISHED", 1, 3 * 86400 + 4 * 3600, 1000, 2000, "Established", 1)
THERE = CloudState(True, datetime(2031, 1, 1, tzinfo=UTC), 1, "")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Applied in one of its two regions; all that can be asked is well."""
    file = tmp_path / "environments" / "lab.yaml"
    file.parent.mkdir()
    file.write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    connection = {"tunnels": [{"outside": "203.0.113.1"}, {"outside": "203.0.113.2"}]}
    keep(Folders(tmp_path / "build" / "lab"), {"vpn_connections": {"rack-us-west-2": connection}})
    play(monkeypatch, {"us-west-2-1": UP, "us-west-2-2": UP})
    return load_project(find("lab"))


def play(
    monkeypatch: pytest.MonkeyPatch,
    ours: Mapping[str, TunnelState] | str,
    theirs: tuple[CloudState, CloudState] = (THERE, THERE),
) -> None:
    def states(gateway: LiveGateway) -> Mapping[str, TunnelState] | str:
        if isinstance(ours, str):
            return ours
        return {tunnel.name: ours.get(tunnel.name, DOWN) for tunnel in gateway.gateway.tunnels}

    outside = (IPv4Address("203.0.113.1"), IPv4Address("203.0.113.2"))
    monkeypatch.setattr(tunnels, "_states", states)
    monkeypatch.setattr(tunnels, "_cloud", lambda _: dict(zip(outside, theirs, strict=True)))


def rows(text: str) -> dict[str, list[str]]:
    """Tunnel → the rest of its line."""
    return {line.split()[1]: line.split()[2:] for line in text.splitlines()[1:]}


def test_every_tunnel_as_both_ends_see_it(
    lab: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, {"us-west-2-1": UP, "us-west-2-2": replace(UP, associations=2)})
    assert tunnels.status(lab, json=False) == 0
    lines = rows(capsys.readouterr().out)
    assert lines["us-west-2-1"] == ["up", "3d", "4h", "established", "1", "up"]
    assert lines["us-west-2-2"][3:5] == ["2", "associations"]


def test_a_tunnel_that_was_not_applied_yet_is_not_down(
    lab: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tunnels.status(lab, json=True) == 0
    states = {row["tunnel"]: row for row in json.loads(capsys.readouterr().out)["tunnels"]}
    assert states["eu-west-1-1"]["outside"] is None
    assert states["eu-west-1-1"]["down"] is False
    assert states["us-west-2-2"]["outside"] == "203.0.113.2"
    assert states["us-west-2-2"]["aws"]["since"] == "2031-01-01T00:00:00+00:00"


CONNECTING = TunnelState(False, "CONNECTING", 0, 0, 0, 0, "Active", 0)
AWAY_GATEWAY = "gate.lab.internal: away"
AWAY = CloudState(False, None, 0, "IPSEC IS DOWN")


@pytest.mark.parametrize(
    ("ours", "theirs", "line"),
    [(CONNECTING, THERE, "DOWN (connecting) active up"), (UP, AWAY, "DOWN, IPSEC IS DOWN")],
    ids=["here", "at AWS"],
)
def test_a_tunnel_that_is_down(
    lab: Project,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ours: TunnelState,
    theirs: CloudState,
    line: str,
) -> None:
    play(monkeypatch, {"us-west-2-1": UP, "us-west-2-2": ours}, (THERE, theirs))
    assert tunnels.status(lab, json=False) == 1
    words = rows(capsys.readouterr().out)["us-west-2-2"]
    assert {*line.split()} <= {*words}


def test_a_gateway_that_can_not_be_asked_says_why(
    lab: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, AWAY_GATEWAY)
    assert tunnels.status(lab, json=False) == 1, "nobody knows whether it works"
    said = capsys.readouterr()
    assert rows(said.out)["us-west-2-1"] == ["?", "up"]
    assert AWAY_GATEWAY in said.err


def test_rotating_the_keys_of_a_site_that_has_none(lab: Project) -> None:
    with pytest.raises(UsageError, match=r"mean rack\?"):
        tunnels.rotate(lab, "rakc")


def test_keys_are_not_rotated_while_the_gateways_tree_lacks_a_tunnel(
    lab: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree can't be brought then: AWS would have a new key, and the gateway the old one."""
    touched: list[str] = []
    gate = MagicMock()
    gate.machine.run.side_effect = lambda *_: touched.append("asked")
    gate.carries.return_value = True
    gate.drain.side_effect = lambda tunnel: touched.append(f"{tunnel.name} drained")
    monkeypatch.setattr(tunnels, "_live", lambda _: gate)
    monkeypatch.setattr(Cloud, "change_key", lambda _, tunnel, __: touched.append(f"{tunnel.name} changed"))
    with pytest.raises(UsageError, match="eu-west-1-1, eu-west-1-2"):
        tunnels.rotate(lab, "rack")
    assert touched == []


def test_status_of_a_cluster_without_gateways(lab: Project) -> None:
    spec = Path("environments/lab.yaml")
    spec.write_text(spec.read_text().replace("    gateway: {addresses: [198.51.100.10]}\n", ""))
    with pytest.raises(UsageError, match="gateway"):
        tunnels.status(load_project(find("lab"), changeable=True), json=False)


WITH_SERVER = (
    SPEC.replace("roles: [site-gateway]", "roles: [site-gateway, access-gateway]")
    + """\
access:
  vpn: {servers: [rack]}
  groups: {people: {}}
  users: {}
"""
)
NOW = datetime(2031, 1, 1, tzinfo=UTC)
SESSION = {"listener": "udp", "from": "192.0.2.7:1194", "address": "100.64.0.2", "received": 10, "sent": 20}
"""Of what `remote-access status` says, what is passed on as it is."""


@pytest.mark.parametrize(
    ("ends", "code", "open_"),
    [
        (NOW + timedelta(days=60), 0, True),
        (NOW + timedelta(days=5), 0, True),
        (NOW - timedelta(days=1), 1, False),
        (AWAY_GATEWAY, 1, False),
    ],
)
def test_servers_say_for_how_long_they_let_laptops_in(
    lab: Project,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ends: datetime | str,
    code: int,
    open_: bool,
) -> None:
    lab.environment.spec_file.write_text(WITH_SERVER, encoding="utf-8")
    both = {"us-west-2-1": UP, "us-west-2-2": UP}
    play(monkeypatch, both)
    monkeypatch.setattr(tunnels, "_list_ends", lambda _: ends)
    monkeypatch.setattr(
        "infra.drive.ssh.Machine.run",
        lambda *_: json.dumps([{**SESSION, "name": "ada@phone", "since": int(NOW.timestamp())}]),
    )
    monkeypatch.setattr("infra.drive.clock.now", lambda: NOW)
    pki_store.store(lab).put(PKI_ROOT, "there is one")
    assert tunnels.status(load_project(find("lab")), json=True) == code
    told = json.loads(capsys.readouterr().out)
    (server,) = told["servers"]
    assert told["devices"] == [{**SESSION, "site": "rack", "device": "ada@phone", "since": NOW.isoformat()}]
    until = ends.isoformat() if isinstance(ends, datetime) else None
    assert (server["site"], server["open"], server["until"]) == ("rack", open_, until)
    assert tunnels.status(load_project(find("lab")), json=False) == code
    said = capsys.readouterr()
    assert {"ada@phone", "udp", "192.0.2.7:1194"} <= {*said.out.split()}
    warned = "invoke vpn.push --env lab" in said.err
    assert warned == (isinstance(ends, datetime) and ends < NOW + timedelta(days=30))
