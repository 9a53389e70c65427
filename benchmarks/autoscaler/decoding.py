"""Lists as an API server sends them → one snapshot: ``python -m benchmarks.autoscaler.decoding``.

The pods are of real size and have what real ones have: fields of managers, projected tokens by names of their
own, environments, conditions, container statuses. A quarter of them runs, on all GPUs that there are.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from infra.autoscaler.observed.decoding import Decoder, snapshot

PAGE: Final = 500
"""As ``kube.watching`` asks for."""
_AT: Final = "2026-11-21T20:55:05Z"
_JOB: Final = 500
"""Pods of a Job."""
_USERS: Final = 40
_FIELDS: Final = [
    {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _AT,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {f"f:label-{number}": {} for number in range(10)}},
            "f:spec": {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(18)},
        },
    },
    {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _AT,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {f"f:part-{number}": {".": {}, "f:time": {}} for number in range(8)}},
        "subresource": "status",
    },
]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came of it."""

    decode: float
    """Seconds, from pages to objects."""
    join: float
    """And to a snapshot."""
    cpu: float
    """Of the processor, for both: what a busy machine changes less."""
    pods: int
    bytes_a_pod: int
    shapes: int
    mib: int
    """The most memory that the process has held."""


def pages(pods: int, *, diverse: bool = False) -> Iterator[bytes]:
    """A list of pods, page by page; ``diverse``: no two of one shape."""
    for first in range(0, pods, PAGE):
        numbers = range(first, min(first + PAGE, pods))
        yield _page("Pod", [_pod(number, diverse=diverse) for number in numbers])


def nodes(count: int) -> list[bytes]:
    """A list of nodes in pages."""
    return [
        _page("Node", [_node(number) for number in range(first, min(first + PAGE, count))])
        for first in range(0, count, PAGE)
    ]


def homes() -> dict[str, list[bytes]]:
    """Each namespace's claim, and its volume, which every node can reach."""
    claims = [
        {
            "metadata": {"name": "home", "namespace": f"user-{number}", "managedFields": _FIELDS},
            "spec": {"volumeName": f"home-{number}", "storageClassName": "homes"},
            "status": {"phase": "Bound"},
        }
        for number in range(_USERS)
    ]
    volumes = [
        {
            "metadata": {"name": f"home-{number}", "managedFields": _FIELDS},
            "spec": {"storageClassName": "homes", "csi": {"driver": "efs.csi.aws.com"}},
            "status": {"phase": "Bound"},
        }
        for number in range(_USERS)
    ]
    return {
        "PersistentVolumeClaim": [_page("PersistentVolumeClaim", claims)],
        "PersistentVolume": [_page("PersistentVolume", volumes)],
    }


def measure(pods: int = 30_000, hosts: int = 1_000, *, diverse: bool = False) -> Decoded:
    """Decode so many, once."""
    bodies, machines = [*pages(pods, diverse=diverse)], nodes(hosts)
    decoder = Decoder()
    caches: dict[str, dict[str, Any]] = {"Pod": {}, "Node": {}}
    started, worked = time.perf_counter(), time.process_time()
    for kind, found in (("Pod", bodies), ("Node", machines)):
        for body in found:
            caches[kind].update(decoder.list(kind, body).objects)
    decoded = time.perf_counter()
    seen = snapshot(caches, {}, {}, {}, 0.0)
    joined = time.perf_counter()
    assert len(seen.pods) == pods
    return Decoded(
        decode=decoded - started,
        join=joined - decoded,
        cpu=time.process_time() - worked,
        pods=pods,
        bytes_a_pod=sum(map(len, bodies)) // pods,
        shapes=decoder.shapes,
        mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def _page(kind: str, items: list[dict[str, Any]]) -> bytes:
    listed = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": items}
    return json.dumps(listed, separators=(",", ":")).encode()


def _pod(number: int, *, diverse: bool) -> dict[str, Any]:
    job, runs = number // _JOB, number % 4 == 1
    kind = number if diverse else job
    token = f"kube-api-access-{number:05d}"
    requests = {"cpu": "4", "memory": f"{8192 + kind}Mi", "nvidia.com/gpu": "1"}
    return {
        "metadata": {
            "name": f"train-{job}-{number}",
            "generateName": f"train-{job}-",
            "namespace": f"user-{job % _USERS}",
            "uid": f"0b2c3d4e-0000-4000-8000-{number:012d}",
            "resourceVersion": str(10_000 + number),
            "creationTimestamp": _AT,
            "labels": {
                "batch.kubernetes.io/controller-uid": f"7f000000-0000-4000-8000-{job:012d}",
                "batch.kubernetes.io/job-name": f"train-{job}",
                "controller-uid": f"7f000000-0000-4000-8000-{job:012d}",
                "job-name": f"train-{job}",
                "team": "vision",
            },
            "annotations": {"note.example/made-by": "a tool that has much to say. " * 6},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": f"train-{job}",
                    "uid": f"7f000000-0000-4000-8000-{job:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "managedFields": _FIELDS,
        },
        "spec": {
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "home"}},
                {"name": token, "projected": {"sources": _sources(), "defaultMode": 420}},
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/train:1",
                    "command": ["python", "train.py", f"--seed={number}"],
                    "env": [{"name": f"SETTING_{each}", "value": "some value"} for each in range(10)],
                    "resources": {"limits": {"cpu": "8", "nvidia.com/gpu": "1"}, "requests": requests},
                    "volumeMounts": [
                        {"name": "home", "mountPath": "/home"},
                        {
                            "name": token,
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        },
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "nodeSelector": {"causeway.dev/gpu-class": "standard"},
            "serviceAccountName": "default",
            "serviceAccount": "default",
            **({"nodeName": f"gpu-p3-{number // 32 % 1000}"} if runs else {}),
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                *(
                    {
                        "key": f"node.kubernetes.io/{what}",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 300,
                    }
                    for what in ("not-ready", "unreachable")
                ),
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            ],
            "priorityClassName": "batch",
            "priority": 1000,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"qosClass": "Burstable", **(_running(requests) if runs else _pending())},
    }


def _sources() -> list[dict[str, Any]]:
    path = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [path]}},
    ]


def _conditions(*kinds: str, status: str = "True") -> list[dict[str, Any]]:
    return [
        {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": _AT} for kind in kinds
    ]


def _pending() -> dict[str, Any]:
    return {
        "phase": "Pending",
        "conditions": [
            {
                **_conditions("PodScheduled", status="False")[0],
                "reason": "Unschedulable",
                "message": "0/1000 nodes are available: 1000 Insufficient nvidia.com/gpu. preemption: 0/1000 "
                "nodes are available: 1000 No preemption victims found for incoming pod.",
            }
        ],
    }


def _running(requests: dict[str, str]) -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": _conditions("Initialized", "Ready", "ContainersReady", "PodScheduled"),
        "hostIP": "10.64.0.1",
        "hostIPs": [{"ip": "10.64.0.1"}],
        "podIP": "10.128.0.1",
        "podIPs": [{"ip": "10.128.0.1"}],
        "startTime": _AT,
        "containerStatuses": [
            {
                "name": "main",
                "state": {"running": {"startedAt": _AT}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "registry.example/train:1",
                "imageID": f"registry.example/train@sha256:{'0' * 64}",
                "containerID": f"containerd://{'1' * 64}",
                "started": True,
                "allocatedResources": requests,
                "resources": {"limits": {"cpu": "8"}, "requests": requests},
            }
        ],
    }


def _node(number: int) -> dict[str, Any]:
    name = f"gpu-p3-{number}"
    return {
        "metadata": {
            "name": name,
            "uid": f"1c000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(number),
            "creationTimestamp": _AT,
            "labels": {
                "causeway.dev/gpu-class": "standard",
                "causeway.dev/pool": "gpu-p3",
                "causeway.dev/site": "us-west-2",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "p3.16xlarge",
                "topology.kubernetes.io/region": "us-west-2",
                "topology.kubernetes.io/zone": "us-west-2a",
            },
            "managedFields": _FIELDS,
        },
        "spec": {
            "providerID": f"aws:///us-west-2a/i-{number:017x}",
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        },
        "status": {
            "allocatable": {"cpu": "63", "memory": "480Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "capacity": {"cpu": "64", "memory": "488Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": _conditions("MemoryPressure", "DiskPressure", status="False")
            + _conditions("Ready"),
            "images": [
                {"names": [f"registry.example/image-{each}@sha256:{'2' * 64}"], "sizeBytes": 10**9}
                for each in range(50)
            ],
        },
    }


def lines() -> Iterator[str]:
    """For people."""
    for what, pods, diverse in (("equal", 30_000, False), ("all different", 30_000, True)):
        found = measure(pods, diverse=diverse)
        yield (
            f"{found.pods} pods of {found.bytes_a_pod} bytes, {what}: decoded in {found.decode:.2f} s, "
            f"joined in {found.join:.2f} s, {found.cpu:.2f} s of a processor; {found.shapes} shapes, "
            f"{found.mib} MiB"
        )


if __name__ == "__main__":
    for line in lines():
        sys.stdout.write(f"{line}\n")
