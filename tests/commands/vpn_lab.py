"""A project with two VPN servers and a few people, applied once; its clock ticks each time it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from infra.commands import pki_store
from infra.commands.environment import Project, find, load_project
from infra.commands.vpn import people
from infra.drive import clock
from infra.drive.build_folders import Folders
from infra.drive.outputs import keep

NOW: Final = datetime(2031, 1, 1, 12, tzinfo=UTC)
SPEC: Final = """\
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
  vpn: {kinds: [KINDS], servers: [SERVERS], certificate_days: 100}
  groups: {people: {}}
  users:
    ada: {groups: [people], ssh_keys: []}
    bob: {groups: [people], ssh_keys: []}
    eve: {groups: [people], ssh_keys: [], vpn: false}
    ivy: {groups: [people], ssh_keys: [], expires: 2031-01-10}
"""
OUTPUTS: Final = {
    "instances": {"vpn-us-west-2": {"private_ip": "10.0.1.10", "public_ip": "192.0.2.1"}},
    "vpn_connections": {
        "rack-us-west-2": {"tunnels": [{"outside": "203.0.113.1"}, {"outside": "203.0.113.2"}]}
    },
}

Meaning: TypeAlias = Callable[[], Project]
"""Loads the spec as it is now."""


def spec(kinds: str = "openvpn", servers: str = "us-west-2, rack") -> str:
    """The spec's text, with these kinds of VPN."""
    return SPEC.replace("KINDS", kinds).replace("SERVERS", servers)


def begin(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Meaning:
    """``environments/lab.yaml`` in the folder, which becomes the working directory."""
    (folder / "environments").mkdir()
    (folder / "environments" / "lab.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv(pki_store.PASSPHRASE, "a long enough passphrase")
    set_clock(monkeypatch)
    keep(Folders(folder / "build" / "lab"), OUTPUTS)
    return lambda: load_project(find("lab"), changeable=True)


def set_clock(monkeypatch: pytest.MonkeyPatch, days: int = 0) -> None:
    """So many days later."""
    ticks = count()
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=days, seconds=next(ticks)))


def profile(project: Project, user: str, device: str = "", **more: str) -> None:
    """A profile for OpenVPN; ``more``: home, csr."""
    arguments = {"home": "", "out": "", **more}
    assert people.openvpn_profile(project, user, device=device, json=False, **arguments) == 0


def revoke(project: Project, user: str, device: str = "", reason: str = "unspecified") -> None:
    """Without a word to the servers."""
    assert people.revoke(project, user, device=device, reason=reason, push=False, json=True) == 0


def states(project: Project, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, ...]]:
    """Kind, user, device and state of each row of `vpn.list`."""
    capsys.readouterr()
    assert people.listing(project, json=True) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return [tuple(row[name] for name in ("kind", "user", "device", "state")) for row in rows]
