"""Images, pools and groups, resolved from the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.load import load
from infra.model.machines import NodePool
from infra.resolve.addresses import plan_addresses
from infra.resolve.lockfile import Lock
from infra.resolve.machines import resolve_images, resolve_pools
from infra.resolve.numbers import plan_numbers
from infra.resolve.places import resolve_regions
from infra.resolve.zones import Zones
from infra.spec import Spec


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load(Path("environments/research.yaml")).spec


@pytest.fixture(scope="module")
def pools(spec: Spec) -> dict[str, NodePool]:
    lock = Lock(images={"gpu": {"us-west-2": "ami-0123456789abcdef0"}})
    numbers = plan_numbers(spec, Lock()).numbers
    regions = resolve_regions(spec, plan_addresses(spec, Lock()).blocks, numbers, Zones({}), "test")
    found = resolve_pools(
        spec,
        "research",
        regions,
        resolve_images(spec, lock),
        {"cluster": "research"},
        {name: name for name in spec.pools},
    )
    return {pool.name: pool for pool in found}


def test_groups_stand_in_overflow_order_with_their_own_bounds(pools: dict[str, NodePool]) -> None:
    assert [(group.name, group.max) for group in pools["gpu-p3"].groups] == [
        ("research-us-west-2-gpu-p3", 20),
        ("research-us-east-1-gpu-p3", 20),
        ("research-eu-west-1-gpu-p3", 10),
    ]


def test_a_baked_image_is_used_where_the_lock_has_one(pools: dict[str, NodePool]) -> None:
    assert [group.image_id for group in pools["gpu-p3"].groups] == ["ami-0123456789abcdef0", None, None]


def test_a_group_tells_an_autoscaler_what_an_empty_node_offers(pools: dict[str, NodePool]) -> None:
    tags = pools["gpu-p3"].groups[0].autoscaler_tags
    prefix = "k8s.io/cluster-autoscaler"
    assert tags[f"{prefix}/enabled"] == "true"
    assert tags[f"{prefix}/research"] == "owned"
    # The least of p3.8xlarge (32 vCPU, 4 V100) and p3.16xlarge (64 vCPU, 8 V100).
    assert tags[f"{prefix}/node-template/resources/cpu"] == "32"
    assert tags[f"{prefix}/node-template/resources/nvidia.com/gpu"] == "4"
    assert tags[f"{prefix}/node-template/taint/nvidia.com/gpu"] == "present:NoSchedule"
    assert tags[f"{prefix}/node-template/label/causeway.dev/gpu-model"] == "v100"


def test_a_stated_zone_narrows_the_subnets(pools: dict[str, NodePool]) -> None:
    west = pools["gpu-p4d"].groups[0]
    assert west.zones == ("us-west-2b",)
    assert west.subnets == ("private-us-west-2b",)
    assert pools["gpu-p4d"].efa_interfaces == 4


def test_a_group_with_adapters_offers_them_and_huge_pages(pools: dict[str, NodePool]) -> None:
    for name, adapters in (("gpu-p4d", "4"), ("gpu-p5", "32")):
        group = pools[name].groups[0]
        for offered in (group.resources, group.allocatable):
            assert (offered["vpc.amazonaws.com/efa"], offered["hugepages-2Mi"]) == (adapters, "10256Mi")
        tags = group.autoscaler_tags
        assert tags["k8s.io/cluster-autoscaler/node-template/resources/vpc.amazonaws.com/efa"] == adapters
    assert "vpc.amazonaws.com/efa" not in pools["gpu-p3"].groups[0].allocatable


def test_markets(pools: dict[str, NodePool]) -> None:
    markets = {name: pool.market for name, pool in pools.items()}
    assert (markets["gpu-p5"].on_demand_base, markets["gpu-p5"].on_demand_percent) == (0, 100)
    assert (markets["gpu-g5"].on_demand_base, markets["gpu-g5"].on_demand_percent) == (0, 0)
    assert (markets["cpu"].on_demand_base, markets["cpu"].on_demand_percent) == (2, 10)


def test_images_know_their_source_and_their_kernel_modules(spec: Spec) -> None:
    images = {image.name: image for image in resolve_images(spec, Lock())}
    assert images["cpu"].codename == "noble"
    assert "ubuntu-noble-24.04-amd64-server" in images["cpu"].source.name
    k80, volta, ampere = (images[name].gpu for name in ("gpu-k80", "gpu", "gpu-nvswitch"))
    assert k80 is not None
    assert volta is not None
    assert ampere is not None
    # Open kernel modules need Turing: the K80 and the V100 are older.
    assert (k80.open_kernel_modules, volta.open_kernel_modules, ampere.open_kernel_modules) == (
        False,
        False,
        True,
    )


def test_an_image_s_kernel_modules_suit_the_ssh_nodes_that_run_it(spec: Spec) -> None:
    access, login = spec.access, spec.access.ssh_nodes["login"]
    volta = login.model_copy(update={"image": "gpu-nvswitch", "instance_type": "p3.2xlarge"})
    more = access.model_copy(update={"ssh_nodes": {**access.ssh_nodes, "volta": volta}})
    images = resolve_images(spec.model_copy(update={"access": more}), Lock())
    [gpu] = [image.gpu for image in images if image.name == "gpu-nvswitch"]
    assert gpu is not None
    assert not gpu.open_kernel_modules
