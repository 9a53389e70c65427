"""The rendered root module."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from infra.load import load
from infra.model import Cluster
from infra.render import RENDERERS, render
from infra.render.terraform import hcl
from infra.render.terraform import render as render_terraform
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[2] / "environments"


@cache
def cluster(name: str) -> Cluster:
    return resolve(load(ENVIRONMENTS / f"{name}.yaml").spec, Lock(), name)[0]


def written(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    return resolve(load(path).spec, Lock(), "lab")[0]


def values(of: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render_terraform(of)["terraform.tfvars.json"])
    return found


def calls(files: dict[str, str]) -> list[str]:
    return re.findall(r'^module "(\w+)"', files["main.tf"], re.MULTILINE)


def test_one_call_a_region_and_one_a_pair() -> None:
    files = dict(render_terraform(cluster("research")))
    assert calls(files) == [
        "identity",
        "us_west_2",
        "us_east_1",
        "eu_west_1",
        "peering_eu_west_1_us_east_1",
        "peering_eu_west_1_us_west_2",
        "peering_us_east_1_us_west_2",
        "web_identity",
        "tracking_database",
        "dns",
    ]


def test_a_single_region_is_peered_with_nobody() -> None:
    assert calls(dict(render_terraform(cluster("minimal")))) == ["identity", "us_west_2", "dns"]


def test_transit_gateways_stand_in_for_peerings(tmp_path: Path) -> None:
    text = (ENVIRONMENTS / "minimal.yaml").read_text(encoding="utf-8")
    text = text.replace(
        "us-west-2: {kind: aws}", "us-west-2: {kind: aws, primary: true}\n  us-east-1: {kind: aws}"
    )
    found = calls(
        dict(render_terraform(written(tmp_path, text + "network: {interconnect: transit-gateway}\n")))
    )
    assert "transit_gateway_us_west_2" in found
    assert "transit_peering_us_east_1_us_west_2" in found
    assert not any(call.startswith("peering_") for call in found)


def test_a_cluster_without_regions_needs_no_terraform(tmp_path: Path) -> None:
    racks = written(
        tmp_path,
        "version: 1\nname: lab\ndomain: lab.internal\nsites:\n  rack: {kind: physical, cidr: 10.1.0.0/24}\n",
    )
    assert render_terraform(racks) == {}


def test_state_in_s3_is_locked_there() -> None:
    text = render_terraform(cluster("research"))["versions.tf"]
    assert 'backend "s3"' in text
    assert "use_lockfile = true" in text
    assert 'backend "local"' not in text


def test_a_local_state_is_kept_apart_from_what_is_rendered() -> None:
    text = render_terraform(cluster("local"))["versions.tf"]
    assert 'path = "../state/terraform.tfstate"' in text


def test_no_value_is_in_the_wiring() -> None:
    research = cluster("research")
    wiring = render_terraform(research)["main.tf"]
    blocks = [str(block.block) for block in research.network.blocks]
    assert not [block for block in blocks if block in wiring]


def test_every_group_stands_in_its_region() -> None:
    research = cluster("research")
    regions = values(research)["regions"]
    wanted = {
        (research.region(group.region).key, pool.name) for pool in research.pools for group in pool.groups
    }
    assert {(key, name) for key, region in regions.items() for name in region["node_pools"]} == wanted


def test_nodes_make_homes_where_homes_are_and_have_no_say_elsewhere() -> None:
    research = cluster("research")
    said = {
        (region["name"].removeprefix("research-"), name): each["homes"]
        for region in values(research)["regions"].values()
        for name, each in region["storage"]["file_systems"].items()
    }
    assert said == {(each.region, each.name): each.path == "/home" for each in research.storage.efs}
    assert {*said.values()} == {True, False}


def test_buckets_that_are_volumes_are_pods_alone() -> None:
    """By a role a namespace, with or without research; nodes have no rights on them."""
    for of in (cluster("research"), replace(cluster("research"), research=None)):
        told = values(of)
        assert told["web_identity"]["volumes"]["checkpoints"]["read_only"] is False
        assert "user-ada" in told["web_identity"]["roles"]
        assert sorted(told["identity"]["buckets"]) == ["datasets", "home-backup"]


def test_masters_stand_in_the_primary_region_alone() -> None:
    regions = values(cluster("research"))["regions"]
    assert sorted(regions["us_west_2"]["control_plane"]["masters"]) == ["master-1", "master-2", "master-3"]
    assert regions["us_east_1"]["control_plane"] is None


def test_without_masters_no_name_is_given_to_them() -> None:
    main = render_terraform(replace(cluster("minimal"), control_plane=None))["main.tf"]
    assert "load_balancer" not in main
    assert "load_balancer.dns_name" in render_terraform(cluster("minimal"))["main.tf"]


def test_a_gateway_behind_nat_speaks_first(tmp_path: Path) -> None:
    text = (ENVIRONMENTS / "minimal.yaml").read_text(encoding="utf-8")
    gateway = "{addresses: [198.51.100.1], behind_nat: true}"
    rack = f"  rack: {{kind: physical, cidr: 10.250.0.0/24, gateway: {gateway}}}\n"
    text = text.replace("images:\n", f"{rack}images:\n")
    [connection] = values(written(tmp_path, text))["regions"]["us_west_2"]["vpn"]["connections"].values()
    assert connection["startup_action"] == "add"


def test_secrets_are_named_and_never_there() -> None:
    research = cluster("research")
    text = "".join(render_terraform(research).values())
    names = {tunnel.secret for link in research.network.links for tunnel in link.tunnels}
    assert all(f'"{name}"' in text for name in names)
    assert "preshared_key" not in render_terraform(research)["terraform.tfvars.json"]


def test_two_renders_are_one() -> None:
    fresh = resolve(load(ENVIRONMENTS / "research.yaml").spec, Lock(), "research")[0]
    assert render(fresh) == render(cluster("research"))


def test_everything_stands_in_the_folder_of_its_target() -> None:
    folders = {path.split("/")[0] for path in render(cluster("research"))}
    assert folders == {"cluster.json", *RENDERERS}


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("plain", '"plain"'),
        ('a "b" \\', '"a \\"b\\" \\\\"'),
        ("${x}", '"$${x}"'),
        ("%{ if }", '"%%{ if }"'),
        ("a\nb", '"a\\nb"'),
        ("é", '"é"'),
        ("a\fb\bc", '"a\\u000cb\\u0008c"'),
        ("\\f", '"\\\\f"'),
    ],
)
def test_strings_as_hcl_literals(text: str, literal: str) -> None:
    assert hcl(text) == literal
