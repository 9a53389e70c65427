"""Classes of work and rules of placement, as rendered; ``test_policies_live.py`` sees them at work."""

from __future__ import annotations

from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace

from infra.model import NO_OUTPUTS, Cluster
from infra.render.kubernetes import scheduling


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def rendered(cluster: Cluster, file: str) -> list[dict[str, Any]]:
    return list(scheduling.objects(cluster, NO_OUTPUTS)[file])


@pytest.mark.parametrize(
    ("minor", "api"),
    [
        ("1.35", "admissionregistration.k8s.io/v1beta1"),
        ("1.36", "admissionregistration.k8s.io/v1"),
        ("1.37", "admissionregistration.k8s.io/v1"),
    ],
)
def test_mutating_policies_are_of_the_api_that_the_minor_serves(
    research: Cluster, minor: str, api: str
) -> None:
    cluster = replace(research, kubernetes=replace(research.kubernetes, version=minor))
    assert {each["apiVersion"] for each in rendered(cluster, "placement.yaml")} == {api}
    stable = {each["apiVersion"] for each in rendered(cluster, "limits.yaml")}
    assert stable == {"admissionregistration.k8s.io/v1"}


def apart(cluster: Cluster) -> bool:
    """Whether other work keeps off nodes with GPUs."""
    (found,) = [
        variable["expression"]
        for each in rendered(cluster, "placement.yaml")
        for variable in each["spec"].get("variables", [])
        if variable["name"] == "demands"
    ]
    return "true && !variables.offGpus" in found


def test_where_all_workers_have_gpus_other_work_goes_where_it_can(research: Cluster) -> None:
    assert apart(research)
    accelerated = replace(research, pools=tuple(pool for pool in research.pools if pool.gpus is not None))
    assert not scheduling.has_room_without_gpus(accelerated)
    assert not apart(accelerated)
    # A machine in a rack without GPUs is room enough; a gateway is none.
    site = accelerated.sites[0]
    plain = replace(next(node for node in site.nodes if node.gpus is not None), gpus=None, roles=("worker",))
    sites = (replace(site, nodes=(*site.nodes, plain)), *accelerated.sites[1:])
    assert scheduling.has_room_without_gpus(replace(accelerated, sites=sites))


def test_a_pool_that_never_has_a_machine_is_no_room(research: Cluster) -> None:
    pools = tuple(
        replace(pool, groups=tuple(replace(group, max=0) for group in pool.groups))
        for pool in research.pools
        if pool.gpus is None
    )
    assert not scheduling.has_room_without_gpus(replace(research, pools=pools))
