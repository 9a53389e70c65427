"""A site with two gateways: each machine gets its own tree, and commands for a site work on both."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import local_store

from infra.commands import rendering
from infra.commands.environment import Project, find, load_project
from infra.commands.vpn import gateway_files, tunnels
from infra.drive.build_folders import Folders
from infra.drive.machines.payload import payload, shared
from infra.drive.outputs import keep
from infra.drive.ssh import Machine, RemoteError, UnreachedError
from infra.errors import CausewayError, UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
  rack:
    kind: physical
    cidr: 10.200.0.0/24
    gateway: {addresses: [198.51.100.10, 198.51.100.11], standby: other, virtual_address: 10.200.0.1}
    nodes:
      gate: {address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}
      other: {address: 10.200.0.3, cpus: 4, memory: 8 GiB, roles: [site-gateway]}
images: {cpu: {}}
access: {vpn: {servers: []}}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    file = tmp_path / "environments" / "lab.yaml"
    file.parent.mkdir()
    file.write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ends = iter(f"203.0.113.{number}" for number in range(1, 5))
    connections = {
        name: {"tunnels": [{"outside": next(ends)}, {"outside": next(ends)}]}
        for name in ("rack-us-west-2", "rack-us-west-2-2")
    }
    keep(Folders(tmp_path / "build" / "lab"), {"vpn_connections": connections})
    return load_project(find("lab"), changeable=True)


def test_each_gateway_gets_its_tree_under_the_name_that_a_converge_gives_it(
    lab: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pushed = {}

    def push(machine: object, build: Path, folder: str, *reload: str, name: str = "") -> tuple[str, ...]:
        pushed[str(getattr(machine, "name", ""))] = folder, name
        return ()

    monkeypatch.setattr("infra.drive.push_tree.push", push)
    monkeypatch.setattr("infra.drive.vpn.gateways.confirm", lambda machine: None)
    kept = local_store(tmp_path, "lab")
    assert gateway_files.prepare(lab, kept) == {"rack"}, "what --site takes"
    gateway_files.bring(lab, kept, gateway_files.places(lab, ["rack"]))
    assert pushed == {
        "gate.lab.internal": ("strongswan/rack", "strongswan-rack"),
        "other.lab.internal": ("strongswan/rack.standby", "strongswan-rack"),
    }


@pytest.mark.parametrize(
    ("problem", "reached"),
    [(RemoteError("nft refused it", 1), ["other"]), (UnreachedError("no route"), ["other", "gate"])],
    ids=["refused", "unreached"],
)
def test_a_tree_that_the_standby_refuses_does_not_reach_the_other_gateway(
    lab: Project,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    problem: CausewayError,
    reached: list[str],
) -> None:
    """A standby that is down takes nothing, and the other one its own."""
    asked = []

    def push(machine: Machine, *folders: object, **options: object) -> tuple[str, ...]:
        asked.append(machine.name.partition(".")[0])
        if asked == ["other"]:
            raise problem
        return ()

    monkeypatch.setattr("infra.drive.push_tree.push", push)
    monkeypatch.setattr("infra.drive.vpn.gateways.confirm", lambda machine: None)
    kept = local_store(tmp_path, "lab")
    gateway_files.prepare(lab, kept)
    done = gateway_files.bring(lab, kept, gateway_files.places(lab, ["rack"]))
    assert asked == reached
    assert [place.tree for place, each in done.items() if not each.error] == ["rack"] * (len(reached) - 1)


def test_a_converge_brings_the_standby_its_own_tree(lab: Project) -> None:
    rendering.write(lab)
    build = lab.environment.build
    common = shared(build)
    trees = {each.node: each.tree for each in lab.cluster.gateways}
    for node, address in (("gate", "10.200.0.2"), ("other", "10.200.0.3")):
        files = payload(build, node, "rack", ("site-gateway",), common, trees[node]).files
        routes = files["trees/strongswan/etc/frr/frr.conf"][0].decode()
        assert f"bgp router-id {address}" in routes


def test_a_site_has_both(lab: Project) -> None:
    assert [each.node for each in tunnels.gateways_of(lab, "rack")] == ["gate", "other"]
    with pytest.raises(UsageError):
        tunnels.gateways_of(lab, "us-west-2")
