"""The address plan of whole specs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from infra.errors import SpecError
from infra.load import load
from infra.resolve.addresses import plan_addresses
from infra.resolve.lockfile import Lock
from infra.schema import Spec


def shipped(name: str) -> Spec:
    return load(Path(f"environments/{name}.yaml")).spec


def test_aws_reserved_link_blocks_are_never_used() -> None:
    blocks = plan_addresses(shipped("research"), Lock()).blocks
    links = [block for owner, block in blocks.items() if owner.startswith("links/")]
    assert all(block.network_address >= IPv4Network("169.254.0.4/30").network_address for block in links)
    assert IPv4Network("169.254.1.0/30") not in links


def test_a_region_more_moves_nothing() -> None:
    before = plan_addresses(shipped("local"), Lock())
    spec = shipped("local")
    sites = {"ap-south-1": spec.sites["us-east-1"].model_copy(update={"zones": None}), **spec.sites}
    after = plan_addresses(spec.model_copy(update={"sites": sites}), replace(Lock(), blocks=before.lock))
    assert before.blocks.items() <= after.blocks.items()
    assert "sites/ap-south-1" in after.blocks


def test_a_spec_that_does_not_fit_says_what() -> None:
    spec = shipped("local").model_copy(update={"supernet": IPv4Network("10.200.0.0/15")})
    with pytest.raises(SpecError) as caught:
        plan_addresses(spec, Lock())
    assert {problem.code for problem in caught.value.problems} == {"NET031"}


def test_a_block_that_home_routers_use_may_be_stated_and_is_never_given_out(tmp_path: Path) -> None:
    text = (
        "version: 1\nname: lab\ndomain: lab.internal\n"
        "sites:\n  rack: {kind: physical, cidr: 10.0.1.0/24}\n  us-west-2: {kind: aws}\n"
    )
    path = tmp_path / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    spec = load(path).spec
    plan = plan_addresses(spec, Lock())
    assert str(plan.blocks["sites/rack"]) == "10.0.1.0/24"
    home = IPv4Network("10.0.0.0/24")
    assert not [owner for owner, block in plan.blocks.items() if block.overlaps(home)]
