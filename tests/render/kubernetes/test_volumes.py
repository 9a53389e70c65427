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


def test_a_class_of_efs_comes_once_there_is_a_file_system(research: Cluster) -> None:
    before = volumes.objects(research, NO_OUTPUTS)["classes.yaml"]
    assert not [each for each in before if each.get("provisioner") == "efs.csi.aws.com"]
    after = of_kind(objects(research, "classes.yaml"), "StorageClass")
    # In the masters' region: the driver makes volumes where it runs.
    assert {name for name in after if name.startswith("/efs-")} == {"/efs-home", "/efs-results"}


def sites_of(affinity: dict[str, Any]) -> set[str]:
    (term,) = affinity["required"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (SITE, "In")
    return set(expression["values"])
