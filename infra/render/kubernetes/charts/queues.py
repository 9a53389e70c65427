"""Kueue, and JobSet for jobs of several parts."""

from __future__ import annotations

from typing import Any, Final

from infra.model import Cluster
from infra.render.kubernetes import user_limits
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.manifests import to_yaml
from infra.render.kubernetes.pods import requests
from infra.render.kubernetes.scheduling import GPU_TAINT
from infra.render.kubernetes.tenants import OF_TENANTS

_START: Final = 600
"""Seconds from the readiness of a node until the last pod of a job is ready: GPU images are large."""


def releases(cluster: Cluster) -> list[Release]:
    """JobSet, then Kueue, which looks for JobSet's CRD when it starts."""
    return [*_jobset(cluster), *_kueue(cluster)]


def _jobset(cluster: Cluster) -> list[Release]:
    found = cluster.kubernetes.addon("jobset")
    tag = f"v{found.chart.version}" if found is not None and found.chart is not None else ""
    values = {
        "image": {"repository": "registry.k8s.io/jobset/jobset", "tag": tag, "pullPolicy": "IfNotPresent"},
        "controller": {**ON_MASTERS, "resources": requests("50m", "64Mi", limit="1Gi")},
    }
    return of(cluster, "jobset", values)


def _kueue(cluster: Cluster) -> list[Release]:
    found = cluster.kubernetes.addon("kueue")
    tag = f"v{found.chart.version}" if found is not None and found.chart is not None else ""
    values = {
        "enablePrometheus": cluster.kubernetes.has("prometheus"),
        "controllerManager": {
            **ON_MASTERS,
            "manager": {
                "image": {
                    "repository": "registry.k8s.io/kueue/kueue",
                    "tag": tag,
                    "pullPolicy": "IfNotPresent",
                },
                "priorityClassName": "system-cluster-critical",
                "resources": requests("100m", "256Mi", limit="2Gi"),
            },
        },
        "managerConfig": {"controllerManagerConfigYaml": to_yaml([configuration(cluster)])},
    }
    return of(cluster, "kueue", values)


def configuration(cluster: Cluster) -> dict[str, Any]:
    """Kueue's own configuration (Kueue, Reference, "Kueue Configuration API", v1beta2)."""
    jobset = ["jobset.x-k8s.io/jobset"] if cluster.kubernetes.has("jobset") else []
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        # Gang scheduling: a job that cannot start completely in time is evicted and requeued, without a limit
        # of attempts, after which it would never start. Other jobs are admitted meanwhile, as nodes take
        # minutes to start.
        "waitForPodsReady": {
            "timeout": f"{cluster.autoscaler.boot_timeout + _START}s",
            "recoveryTimeout": f"{cluster.autoscaler.boot_timeout + _START}s",
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 3600,
            },
        },
        # All workloads in users' namespaces count, whether or not they name a queue.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": OF_TENANTS,
        "integrations": {"frameworks": ["batch/job", *jobset, "pod"]},
        # Queues count CPU, memory and GPUs. Other requested resources, such as disk, must not block admission
        # forever.
        "resources": {"quotaCheckStrategy": "IgnoreUndeclared", **user_limits.transformations(cluster)},
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        **_over_time(cluster),
        "objectRetentionPolicies": {"workloads": {"afterFinished": "168h"}},
    }


def _over_time(cluster: Cluster) -> dict[str, Any]:
    half_life = cluster.kubernetes.usage_half_life
    if half_life is None:
        return {}
    return {
        "admissionFairSharing": {
            "usageHalfLifeTime": f"{half_life}s",
            "usageSamplingInterval": "5m0s",
            # Usage is a weighted sum: GPUs dominate, then CPU. Memory, in bytes, is not counted.
            "resourceWeights": {GPU_TAINT: 1, "cpu": 0.01, "memory": 0},
        }
    }
