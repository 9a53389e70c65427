"""Queues: flavors in the order of what they cost, and GPUs shared out to the last one."""

from __future__ import annotations

from typing import Any

import pytest
from golden_clusters import golden
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from infra.model import NO_OUTPUTS, Cluster
from infra.render import kubernetes
from infra.render.kubernetes import queues
from infra.render.kubernetes.queues import Amount, Flavor


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def with_groups(cluster: Cluster, **quotas: int) -> Cluster:
    """Groups of these names, sure of that many GPUs."""
    first = cluster.access.groups[0]
    groups = tuple(
        replace(first, name=name, namespace=f"team-{name}", gpu_quota=quota) for name, quota in quotas.items()
    )
    return replace(cluster, access=replace(cluster.access, groups=groups))


def specs(cluster: Cluster, kind: str) -> dict[str, dict[str, Any]]:
    """Name → specification."""
    return {
        each["metadata"]["name"]: each["spec"]
        for some in queues.objects(cluster, NO_OUTPUTS).values()
        for each in some
        if each["kind"] == kind
    }


def quota(spec: dict[str, Any], resource: str = "nvidia.com/gpu") -> dict[str, str]:
    """Flavor → what there is of a resource."""
    (group,) = spec["resourceGroups"]
    return {
        flavor["name"]: each["nominalQuota"]
        for flavor in group["flavors"]
        for each in flavor["resources"]
        if each["name"] == resource
    }


def test_every_label_of_a_flavor_is_one_of_all_its_machines(research: Cluster) -> None:
    for flavor in queues.flavors(research):
        assert 0 < len(flavor.labels) <= 8
        if flavor.cloud:
            groups = [group for each in research.pools for group in each.groups if group.pool == flavor.name]
            assert groups
            for group in groups:
                assert flavor.labels.items() <= group.labels.items()
        else:
            for site in research.sites:
                for node in site.nodes:
                    if node.gpus is not None and node.gpus.model in flavor.name:
                        assert flavor.labels.items() <= node.labels.items()


def test_taints_are_told_and_only_that_of_gpus_is_tolerated(research: Cluster) -> None:
    pools = tuple(
        replace(pool, taints=(*pool.taints, replace(pool.taints[0], key="lab.example/mine")))
        if pool.name == "gpu-p5"
        else pool
        for pool in research.pools
    )
    flavor = specs(replace(research, pools=pools), "ResourceFlavor")["gpu-p5"]
    assert [each["key"] for each in flavor["nodeTaints"]] == ["nvidia.com/gpu", "lab.example/mine"]
    assert flavor["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_all_flavors_with_gpus_have_places_and_no_others(research: Cluster) -> None:
    """Kueue gives work one or the other kind, and never takes a topology back from a flavor."""
    gpus = {each.name for each in queues.flavors(research) if each.amount.gpus}
    silent = replace(research, autoscaler=replace(research.autoscaler, dry_run=True))
    for cluster in (research, silent):
        flavors = specs(cluster, "ResourceFlavor")
        assert {name for name, spec in flavors.items() if "topologyName" in spec} == gpus


def test_a_group_is_sure_of_the_first_gpus_and_nothing_is_lost(research: Cluster) -> None:
    cluster = with_groups(research, vision=40, speech=40, guests=0)
    queue = specs(cluster, "ClusterQueue")
    # 64 GPUs of ours, of which both would have 40; then what comes next.
    assert quota(queue["team-vision"])["physical.titan-x-pascal"] == "32"
    assert quota(queue["team-speech"])["physical.titan-x-pascal"] == "32"
    assert quota(queue["team-vision"])["gpu-p5"] == "8"
    assert set(quota(queue["team-guests"]).values()) == {"0"}
    rest = quota(specs(cluster, "Cohort")["causeway"])
    for flavor in queues.flavors(cluster):
        own = sum(int(quota(each)[flavor.name]) for each in queue.values())
        assert own + int(rest[flavor.name]) == flavor.amount.gpus


def test_who_is_sure_of_a_gpu_is_sure_of_its_part_of_the_machine(research: Cluster) -> None:
    cluster = with_groups(research, vision=32)
    (titan,) = (each for each in queues.flavors(cluster) if each.name.startswith("physical"))
    own = quota(specs(cluster, "ClusterQueue")["team-vision"], "cpu")["physical.titan-x-pascal"]
    assert own == f"{titan.amount.millicores // 2}m"


quotas = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 50), min_size=1)


@given(quotas, st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_shares_never_exceed_what_is_there_nor_what_is_wanted(
    wanted: dict[str, int], gpus: list[int]
) -> None:
    cluster = with_groups(golden("research"), **wanted)
    found = [Flavor(str(at), {}, (), Amount(1, 1, count), cloud=False) for at, count in enumerate(gpus)]
    sure = queues.shares(cluster, found)
    for flavor in found:
        assert sum(each[flavor.name] for each in sure.values()) <= flavor.amount.gpus
    for group in cluster.access.groups:
        assert sum(sure[group.namespace].values()) <= group.gpu_quota
    given_out = sum(count for each in sure.values() for count in each.values())
    assert given_out == min(sum(wanted.values()), sum(gpus))


def test_the_way_in_leads_to_the_own_groups_queue(research: Cluster) -> None:
    loner = replace(research.access.users[0], groups=())
    users = (loner, *research.access.users[1:])
    cluster = replace(research, access=replace(research.access, users=users))
    ways = {
        each["metadata"]["namespace"]: each["spec"]["clusterQueue"]
        for each in queues.objects(cluster, NO_OUTPUTS)["ways-in.yaml"]
    }
    queue = specs(cluster, "ClusterQueue")
    assert set(ways.values()) == set(queue)
    assert ways[loner.namespace] == "shared"
    for namespace, name in ways.items():
        if namespace != loner.namespace:
            assert queue[name]["namespaceSelector"] == {"matchLabels": {"causeway.dev/team": name}}


def test_weights_are_the_specs(research: Cluster) -> None:
    cluster = with_groups(research, vision=0, speech=0)
    heavier = (replace(cluster.access.groups[0], weight=3), cluster.access.groups[1])
    cluster = replace(cluster, access=replace(cluster.access, groups=heavier))
    weights = {name: each["fairSharing"]["weight"] for name, each in specs(cluster, "ClusterQueue").items()}
    assert (weights["team-vision"], weights["team-speech"]) == ("3", "1")


def test_the_autoscaler_is_asked_where_there_is_one(
    research: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "APPLIED", ())
    assert "admissionChecksStrategy" not in specs(research, "ClusterQueue")["team-engineers"]
    assert not specs(research, "AdmissionCheck")
    monkeypatch.undo()
    (check,) = specs(research, "ClusterQueue")["team-engineers"]["admissionChecksStrategy"]["admissionChecks"]
    assert set(check["onFlavors"]) == {
        each.name for each in queues.flavors(research) if each.cloud and each.amount.gpus
    }
    assert [*specs(research, "AdmissionCheck")] == [check["name"]]
    (requests,) = specs(research, "ProvisioningRequestConfig").values()
    assert requests["provisioningClassName"] == "batch.causeway.dev"
    off = replace(research, autoscaler=replace(research.autoscaler, enabled=False))
    assert not specs(off, "AdmissionCheck")
    silent = replace(research, autoscaler=replace(research.autoscaler, dry_run=True))
    assert not specs(silent, "AdmissionCheck"), "a dry run answers nothing"
    nowhere = replace(research, autoscaler=replace(research.autoscaler, image=None))
    assert not specs(nowhere, "AdmissionCheck")
