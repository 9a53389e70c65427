"""What a real API server makes of objects is read as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler.kube.clusters import Cluster, Object, fresh

from infra.autoscaler.kube.kinds import KINDS
from infra.autoscaler.observed.decoding import Decoder, snapshot

PATHS = {each.name: each.paths[0] for each in KINDS}


def container(name: str = "main", **resources: Any) -> Object:
    return {"name": name, "image": "none", "resources": resources}


def spread(**labels: str) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
        "matchLabelKeys": ["revision"],
    }


def term(**more: Any) -> Object:
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}, **more}


SPECS: dict[str, Object] = {
    "plain": {"containers": [container(requests={"cpu": "0.5", "memory": "1.5Gi"})]},
    "limits": {"containers": [container(limits={"cpu": "1e0", "memory": "1e9", "ephemeral-storage": "1Gi"})]},
    "sidecars": {
        "containers": [container(requests={"cpu": "100m"})],
        "initContainers": [
            {**container("proxy", requests={"cpu": "1"}), "restartPolicy": "Always"},
            container("prepare", requests={"cpu": "2", "memory": "1Gi"}),
        ],
    },
    "whole": {
        "containers": [container(requests={"cpu": "1", "memory": "1Gi"})],
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4", "memory": "2Gi"}},
    },
    "host": {
        "hostNetwork": True,
        "containers": [
            {**container(), "ports": [{"containerPort": 9, "protocol": "UDP"}, {"containerPort": 10}]}
        ],
    },
    "placed": {
        "containers": [container()],
        "nodeSelector": {"beta.kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "topologySpreadConstraints": [spread(app="x")],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    term(),
                    term(namespaceSelector={}),
                    term(matchLabelKeys=["revision"]),
                ]
            },
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "cards", "operator": "Gt", "values": ["3"]}]}
                    ]
                }
            },
        },
    },
}


@pytest.mark.parametrize("what", [*SPECS])
def test_a_pod_is_what_its_template_promised(real: Cluster, what: str) -> None:
    name, labels = fresh(what), {"app": "x", "revision": "3"}
    spec = {"terminationGracePeriodSeconds": 0, **SPECS[what]}
    real.create(
        "/api/v1/namespaces/default/pods", {"metadata": {"name": name, "labels": labels}, "spec": spec}
    )
    template = {"metadata": {"name": name}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    real.create("/api/v1/namespaces/default/podtemplates", template)
    decoder = Decoder()
    pods = decoder.list("Pod", real.client.get(PATHS["Pod"]))
    templates = decoder.list("PodTemplate", real.client.get(PATHS["PodTemplate"]))
    pod, promised = pods.objects[f"default/{name}"], templates.objects[f"default/{name}"]
    assert pod.shape is promised.shape
    assert (pod.labels, promised.labels) == (labels, labels)
    real.delete(f"/api/v1/namespaces/default/pods/{name}")
    real.delete(f"/api/v1/namespaces/default/podtemplates/{name}")


def test_everything_that_is_there_is_read(real: Cluster) -> None:
    template: Object = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [container(requests={"cpu": "1"})]},
    }
    job: Object = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    made: dict[str, Object] = {
        "/apis/batch/v1/namespaces/default/jobs": {
            "spec": {**job, "template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
        },
        "/apis/apps/v1/namespaces/default/daemonsets": {
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}
        },
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": 1}
        },
        "/api/v1/persistentvolumes": {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/x"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                        ]
                    }
                },
            }
        },
        "/api/v1/namespaces/default/persistentvolumeclaims": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        },
        "/apis/storage.k8s.io/v1/storageclasses": {
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        "/apis/scheduling.k8s.io/v1/priorityclasses": {"value": 5},
    }
    name = fresh("thing")
    for path, body in made.items():
        real.create(path, {"metadata": {"name": name}, **body})
    real.node(status={"allocatable": {"cpu": "3920m", "memory": "15Gi"}})
    decoder, caches = Decoder(), {}
    for kind, path in PATHS.items():
        if (listed := real.client.find(path)) is not None:
            found = decoder.list(kind, listed)
            assert (found.faults, found.next_token) == ({}, None)
            assert found.version
            caches[kind] = found.objects
    assert {"Job", "DaemonSet", "PriorityClass", "StorageClass", "PersistentVolume"} <= {*caches}
    assert caches["Job"][f"default/{name}"].template is not None
    assert caches["PersistentVolume"][name].terms
    assert caches["StorageClass"][name].waits
    assert snapshot(caches, {}, {}, {}, 1.0).namespaces["default"]
    for path in made:
        real.delete(f"{path}/{name}")
