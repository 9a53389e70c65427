"""Pods of a machine that no longer exists: Kubernetes deletes them after the autoscaler deletes the node.

A real API server, its pod garbage collector, and the autoscaler's own rights. A minute of this is the
collector's quarantine.
"""

from __future__ import annotations

import time

from autoscaler.kube.account import account
from autoscaler.kube.clusters import PODS, Cluster, fresh
from kube.plane import Plane
from waiting import until

from infra.autoscaler.decision import RemoveNode
from infra.autoscaler.kube.writing import KubeWriter

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def test_pods_that_are_stuck_go_with_their_node(acting_plane: Plane) -> None:
    cluster = Cluster.of(acting_plane.kubeconfig)
    with account(acting_plane) as own:
        node = cluster.node(spec={"providerID": "aws:///us-west-2a/i-0123456789abcdef0"})["metadata"]
        cluster.create(
            CLAIMS,
            {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
        )
        runs, stuck = (fresh(name) for name in ("runs", "stuck"))
        for name in (runs, stuck):
            _pod(cluster, name, node["name"])
        cluster.delete(f"{PODS}/{stuck}")
        leaving = cluster.get(f"{PODS}/{stuck}")
        assert leaving is not None
        assert leaving["metadata"]["deletionTimestamp"], "its kubelet would have to say that it has ended"
        writer = KubeWriter(Cluster.of(own).client, now=time.time)
        assert writer.do(RemoveNode(node["name"], node["uid"], "its instance is no more")).status == "done"
        until(lambda: not any(cluster.get(f"{PODS}/{name}") for name in (runs, stuck)), seconds=180)


def _pod(cluster: Cluster, name: str, node: str) -> None:
    """One that runs there, with a volume."""
    cluster.create(
        PODS,
        {
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "main", "image": "none"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        },
    )
    cluster.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
