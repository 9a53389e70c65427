"""Paths of machines in pods: one volume a claim, only where the path is; classes that stay in reach."""

from __future__ import annotations

from typing import Any

import pytest
from golden_clusters import golden
from strategies.outputs import outputs_for

from infra.model import NO_OUTPUTS, Cluster
from infra.render.kubernetes import volumes

SITE = "causeway.dev/site"


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def objects(cluster: Cluster, file: str) -> list[dict[str, Any]]:
    return list(volumes.objects(cluster, outputs_for(cluster)).get(file, []))


def of_kind(found: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Namespace/name → object."""
    return {
        f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}": each
        for each in found
        if each["kind"] == kind
    }


def test_each_volume_is_kept_for_one_claim_and_each_claim_finds_its_volume(research: Cluster) -> None:
    found = objects(research, "volumes.yaml")
    held, claims = of_kind(found, "PersistentVolume"), of_kind(found, "PersistentVolumeClaim")
    assert len(held) + len(claims) == len(found)
    assert len(held) == len(claims) > 0
    for claim in claims.values():
        volume = held[f"/{claim['spec']['volumeName']}"]["spec"]
        reference = volume["claimRef"]
        assert (reference["namespace"], reference["name"]) == (
            claim["metadata"]["namespace"],
            claim["metadata"]["name"],
        )
        assert volume["accessModes"] == claim["spec"]["accessModes"]
        # Neither is given away, nor made, by a class.
        assert volume["storageClassName"] == claim["spec"]["storageClassName"] == ""


def test_everyone_has_their_own_home_and_nobody_elses(research: Cluster) -> None:
    held = of_kind(objects(research, "volumes.yaml"), "PersistentVolume")
    homes = {
        each["spec"]["claimRef"]["namespace"]: each["spec"]["hostPath"]["path"]
        for each in held.values()
        if each["spec"]["claimRef"]["name"] == "home"
    }
    assert homes == {user.namespace: f"/home/{user.login}" for user in research.access.users}


def test_a_path_is_offered_where_machines_mount_it(research: Cluster) -> None:
    held = of_kind(objects(research, "volumes.yaml"), "PersistentVolume")
    for each in held.values():
        if "hostPath" not in each["spec"]:
            continue
        path = each["spec"]["hostPath"]["path"]
        having = {
            site
            for site, mounts in research.storage.mounts.items()
            if any(path == mount.path or path.startswith(f"{mount.path}/") for mount in mounts)
        }
        affinity = each["spec"].get("nodeAffinity")
        said = sites_of(affinity) if affinity else set(research.storage.mounts)
        assert said == having


def test_a_read_only_data_set_can_be_written_to_by_nobody(research: Cluster) -> None:
    held = of_kind(objects(research, "volumes.yaml"), "PersistentVolume")
    modes = {each["spec"]["claimRef"]["name"]: each["spec"]["accessModes"] for each in held.values()}
    assert modes["data"] == ["ReadOnlyMany"]
    assert modes["results"] == ["ReadWriteMany"]


def test_a_buckets_folder_is_a_namespaces_own(research: Cluster) -> None:
    held = of_kind(objects(research, "volumes.yaml"), "PersistentVolume")
    buckets = [each["spec"] for each in held.values() if "csi" in each["spec"]]
    assert {each["claimRef"]["name"] for each in buckets} == {"checkpoints"}
    for each in buckets:
        assert f"prefix={each['claimRef']['namespace']}/" in each["mountOptions"]
        # No list of regions: the API server takes no other affinity for a volume that is there.
        ((expression,),) = [
            term["matchExpressions"] for term in each["nodeAffinity"]["required"]["nodeSelectorTerms"]
        ]
        assert expression["operator"] == "NotIn"
        racks = {node.labels[expression["key"]] for site in research.sites for node in site.nodes}
        assert racks == {*expression["values"]}
        cloud = {group.labels[expression["key"]] for pool in research.pools for group in pool.groups}
        assert not cloud & racks
    handles = [each["csi"]["volumeHandle"] for each in buckets]
    assert len(handles) == len(set(handles))


def test_no_class_makes_volumes_among_homes(research: Cluster) -> None:
    classes = of_kind(objects(research, "classes.yaml"), "StorageClass")
    assert "/nfs-results" in classes
    assert "/nfs-home" not in classes


def test_a_class_of_efs_comes_once_there_is_a_file_system(research: Cluster) -> None:
    before = volumes.objects(research, NO_OUTPUTS)["classes.yaml"]
    assert not [each for each in before if each.get("provisioner") == "efs.csi.aws.com"]
    after = of_kind(objects(research, "classes.yaml"), "StorageClass")
    # In the masters' region: the driver makes volumes where it runs.
    assert {name for name in after if name.startswith("/efs-")} == {"/efs-home", "/efs-results"}


def test_quotas_name_the_classes_that_there_are(research: Cluster) -> None:
    classes = set(of_kind(objects(research, "classes.yaml"), "StorageClass"))
    quotas = of_kind(objects(research, "quotas.yaml"), "ResourceQuota")
    people = [*(u.namespace for u in research.access.users), *(g.namespace for g in research.access.groups)]
    assert set(quotas) == {f"{each}/volumes" for each in people}
    suffix = ".storageclass.storage.k8s.io/requests.storage"
    for quota in quotas.values():
        assert {f"/{key.removesuffix(suffix)}" for key in quota["spec"]["hard"]} == classes
        assert set(quota["spec"]["hard"].values()) == {f"{5 * 1024 * 1024}Mi"}


@pytest.mark.parametrize("scenario", ["minimal", "transit"])
def test_a_cluster_without_such_storage_has_none_of_it(scenario: str) -> None:
    cluster = golden(scenario)
    if not cluster.storage.mounts or not any(cluster.storage.mounts.values()):
        assert not objects(cluster, "volumes.yaml")
    if cluster.storage.volumes_quota_mib is None:
        assert not objects(cluster, "quotas.yaml")


def sites_of(affinity: dict[str, Any]) -> set[str]:
    (term,) = affinity["required"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (SITE, "In")
    return set(expression["values"])
