"""The real kube-scheduler, and what the autoscaler says of the same pods on the same nodes."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
from autoscaler import make
from autoscaler.kube.clusters import PODS, Cluster, Object
from kube.plane import Plane
from waiting import until

from infra.autoscaler.kube.kinds import KINDS
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.decoding import Decoder, snapshot
from infra.autoscaler.placement import scale_up

DRIVER = "ebs.csi.aws.com"
LIMITS: dict[str, int | None] = {"two": 2, "three": 3, "none": 0, "any": None}
"""Nodes by their names, and how many volumes the driver attaches there."""
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SIZED: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": "disks"}
ASKED = {"requests": {"storage": "1Gi"}}


@pytest.fixture(scope="module")
def cluster(acting_plane: Plane) -> Cluster:
    found = Cluster.of(acting_plane.kubeconfig)
    for name, limit in LIMITS.items():
        _node(found, name, limit)
    found.create(
        "/apis/storage.k8s.io/v1/storageclasses",
        {"metadata": {"name": "disks"}, "provisioner": DRIVER, "volumeBindingMode": "Immediate"},
    )
    return found


def _node(cluster: Cluster, name: str, limit: int | None) -> None:
    made = cluster.create(
        "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
    )
    cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})  # not-ready, by admission
    cluster.patch(
        f"/api/v1/nodes/{name}/status",
        {
            "status": {
                "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": ""}],
            }
        },
    )
    allocatable = {} if limit is None else {"allocatable": {"count": limit}}
    cluster.create(
        "/apis/storage.k8s.io/v1/csinodes",
        {
            "metadata": {
                "name": name,
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": name, "uid": made["metadata"]["uid"]}
                ],
            },
            "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": [], **allocatable}]},
        },
    )


def _volume(cluster: Cluster, claim: str, handle: str, owner: Object | None = None) -> None:
    """A volume and the claim that is bound to it."""
    cluster.create(
        VOLUMES,
        {
            "metadata": {"name": claim},
            "spec": {
                **SIZED,
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": DRIVER, "volumeHandle": handle},
                "claimRef": {"namespace": "default", "name": claim},
            },
        },
    )
    references = (
        [{"apiVersion": "v1", "kind": "Pod", "controller": True, **owner}] if owner is not None else []
    )
    cluster.create(
        CLAIMS,
        {
            "metadata": {
                "name": claim,
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                "ownerReferences": references,
            },
            "spec": {**SIZED, "resources": ASKED, "volumeName": claim},
        },
    )
    cluster.patch(f"{CLAIMS}/{claim}/status", {"status": {"phase": "Bound"}})


def _pod(cluster: Cluster, name: str, node: str, claims: list[str], own: int) -> None:
    """One that may be on this node alone; ``own``: how many volumes are made for it."""
    volumes: list[Object] = [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
    ]
    template = {"spec": {**SIZED, "resources": ASKED}}
    volumes += [{"name": f"own-{n}", "ephemeral": {"volumeClaimTemplate": template}} for n in range(own)]
    made = cluster.create(
        PODS,
        {
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "main", "image": "none"}],
                "nodeSelector": {"kubernetes.io/hostname": node},
                "volumes": volumes,
            },
        },
    )
    for number in range(own):
        owner = {"name": name, "uid": made["metadata"]["uid"]}
        _volume(cluster, f"{name}-own-{number}", f"vol-{name}-{number}", owner)


def _scheduled(cluster: Cluster, name: str) -> bool:
    """The scheduler's answer, once it has one that stays."""

    def refusal() -> str:
        conditions = (cluster.get(f"{PODS}/{name}") or {})["status"].get("conditions") or []
        return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

    def placed() -> bool:
        return bool((cluster.get(f"{PODS}/{name}") or {})["spec"].get("nodeName"))

    until(lambda: placed() or "max volume count" in refusal())
    return placed()


def _fits(cluster: Cluster, name: str) -> bool:
    """The autoscaler's, for the same pod before it had a node."""
    decoder = Decoder()
    caches = {
        kind.name: decoder.list(kind.name, body).objects
        for kind in KINDS
        if (body := cluster.client.find(kind.paths[0])) is not None
    }
    key = f"default/{name}"
    pods = caches["Pod"]
    caches["Pod"] = {**pods, key: make.changed(pods[key], node="")}
    now = time.time()
    of = make.config(make.cpu_group(max=0))
    seen = snapshot(caches, {each.name: make.state(each) for each in of.groups}, {}, {}, now)
    growth = scale_up.plan(state_builder.build(seen, Memory(), of, now), seen, Memory(), of, now)
    return {each.example: each.outcome == "fits" for each in growth.verdicts}[key]


def test_07_attached_volumes_are_counted_as_the_scheduler_counts_them(cluster: Cluster) -> None:
    """Claims that pods share, claims of the same volume, and volumes that are made for each pod."""
    chance = Random(7)
    claims = [f"claim-{number}" for number in range(6)]
    for number, claim in enumerate(claims):
        _volume(cluster, claim, f"vol-{number // 2 if number < 4 else number}")  # two volumes with two claims
    answers = []
    for number in range(40):
        name, node = f"pod-{number}", chance.choice([*LIMITS])
        _pod(
            cluster, name, node, chance.sample(claims, chance.choice((0, 1, 1, 2))), chance.choice((0, 0, 1))
        )
        answers.append((name, node, _scheduled(cluster, name)))
        assert _fits(cluster, name) is answers[-1][2], answers
        if not answers[-1][2]:
            cluster.delete(f"{PODS}/{name}")
    for node in ("two", "three"):
        assert {fits for _, where, fits in answers if where == node} == {True, False}
    assert all(fits for _, where, fits in answers if where == "any")
