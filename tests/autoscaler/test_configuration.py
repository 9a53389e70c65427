"""What is rendered is what the controller reads; what it imports is what its image has."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from golden_clusters import golden
from golden_folders import scenarios
from msgspec.structs import replace

from infra.autoscaler import config
from infra.autoscaler.kube import store
from infra.load import load
from infra.model import Cluster, Outputs
from infra.model.machines import Market, NodeGroup, NodePool, PricedType
from infra.render.kubernetes import autoscaler
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[2] / "environments"


@cache
def shipped(name: str) -> Cluster:
    return resolve(load(ENVIRONMENTS / f"{name}.yaml").spec, Lock(), name)[0]


@pytest.mark.parametrize("name", scenarios())
def test_the_controller_reads_what_is_rendered(name: str) -> None:
    cluster = golden(name)
    read = config.parse(autoscaler.configuration(cluster))
    groups = [group for pool in cluster.pools for group in pool.groups]
    assert {each.name for each in read.groups} == {group.name for group in groups}
    assert [each.order for each in read.groups] == sorted(each.order for each in read.groups)
    assert tuple(read.regions) == tuple(region.name for region in cluster.regions)
    by_name = {group.name: group for group in groups}
    for each in read.groups:
        group = by_name[each.name]
        assert (each.min, each.max, each.zones) == (group.min, group.max, group.zones)
        assert each.labels == group.labels
        assert each.types, "a group without a type has no price and no quota"
        assert each.allocatable["pods"] == cluster.kubernetes.pods_per_node
        assert str(each.allocatable["cpu"]) + "m" == group.allocatable["cpu"]
        assert each.allocatable["memory"] == int(group.allocatable["memory"].removesuffix("Mi")) << 20
        assert {kind.quota_on_demand for kind in each.types}


def test_a_field_has_one_name_in_the_model_and_in_the_configuration() -> None:
    pool = {each for of in (NodePool, NodeGroup, Market) for each in of.__struct_fields__}
    of_its_region = {"site", "region", "order"}
    assert {*config.Group.__struct_fields__} - of_its_region - {"hook"} <= pool
    assert config.PricedType.__struct_fields__ == PricedType.__struct_fields__


def test_zones_by_id_have_the_names_that_nodes_have() -> None:
    cluster = shipped("local")
    here = cluster.regions[0].name
    pools = tuple(
        replace(
            pool,
            groups=tuple(
                replace(group, zones=("usw2-az1", "usw2-az2")) if group.site == here else group
                for group in pool.groups
            ),
        )
        for pool in cluster.pools
    )
    names = {"usw2-az1": "us-west-2b", "usw2-az2": "us-west-2a"}
    text = autoscaler.configuration(replace(cluster, pools=pools), Outputs(zones={here: names}))
    zones = {each.zones for each in config.parse(text).groups if each.site == here}
    assert zones == {("us-west-2b", "us-west-2a")}


def test_settings_arrive() -> None:
    cluster = shipped("research")
    read = config.parse(autoscaler.configuration(cluster))
    assert (read.interval, read.idle, read.max_hourly_cost, read.spare) == (10, 900, 4000, {"cpu": 1})
    assert (read.booking, read.max_scale_in_percent, read.max_cluster_scale_in_percent) == (600, 10, 10)
    p3 = next(each for each in read.groups if each.name == "research-us-west-2-gpu-p3")
    assert p3.types[0].quota_on_demand == "on-demand-p"
    assert p3.types[0].on_demand
    assert p3.allocatable["nvidia.com/gpu"]
    assert not p3.spot_only or p3.on_demand_percent == 0


def test_quotas_are_without_what_machines_with_a_name_take() -> None:
    cluster = shipped("research")
    from infra.catalogue import instances

    theirs = 0
    for one in cluster.instances:
        kind = instances.find(one.instance_type)
        if one.site == "us-west-2" and one.instance_type.startswith(("m", "t", "c")) and kind:
            theirs += kind.vcpus
    assert theirs
    assert cluster.autoscaler.quotas["us-west-2"] == {
        "on-demand-p": 5000,
        "on-demand-standard": 2000 - theirs,
    }


def test_what_it_may_write_is_what_it_writes() -> None:
    assert autoscaler.MEMORY == store.NAME
