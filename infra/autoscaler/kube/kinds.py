"""The watched kinds, their paths in the API, and which of them are optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object."""

    name: str
    plural: str
    """The name for people and in ``Snapshot.errors``: ``kube/pods``."""
    paths: tuple[str, ...]
    """Possible paths, newest version first; the first that the API serves is used."""
    required: bool = True
    """Whether decisions without it would be wrong. Other kinds may be absent or forbidden."""
    query: Mapping[str, str] = field(default_factory=dict)


def _built_in(name: str, plural: str, group: str, **query: str) -> Kind:
    return Kind(name, plural, (f"{group}/{plural}",), query=query)


def _added(name: str, plural: str, *groups: str) -> Kind:
    return Kind(name, plural, tuple(f"/apis/{group}/{plural}" for group in groups), required=False)


KINDS: Final = (
    # Finished pods hold no resources, and a batch cluster has many: a field selector excludes them.
    _built_in("Pod", "pods", "/api/v1", fieldSelector="status.phase!=Succeeded,status.phase!=Failed"),
    _built_in("Node", "nodes", "/api/v1"),
    _built_in("Namespace", "namespaces", "/api/v1"),
    _built_in("PersistentVolumeClaim", "persistentvolumeclaims", "/api/v1"),
    _built_in("PersistentVolume", "persistentvolumes", "/api/v1"),
    _built_in("PodTemplate", "podtemplates", "/api/v1"),
    _built_in("DaemonSet", "daemonsets", "/apis/apps/v1"),
    _built_in("Job", "jobs", "/apis/batch/v1"),
    _built_in("PodDisruptionBudget", "poddisruptionbudgets", "/apis/policy/v1"),
    _built_in("StorageClass", "storageclasses", "/apis/storage.k8s.io/v1"),
    _built_in("CSINode", "csinodes", "/apis/storage.k8s.io/v1"),
    _built_in("PriorityClass", "priorityclasses", "/apis/scheduling.k8s.io/v1"),
    _added("Workload", "workloads", "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
    _added("ResourceFlavor", "resourceflavors", "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
    _added("ClusterQueue", "clusterqueues", "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
    _added("Cohort", "cohorts", "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
    _added("LocalQueue", "localqueues", "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"),
    _added("JobSet", "jobsets", "jobset.x-k8s.io/v1alpha2"),
    _added("PodGroup", "podgroups", "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"),
    _added(
        "ProvisioningRequest",
        "provisioningrequests",
        "autoscaling.x-k8s.io/v1",
        "autoscaling.x-k8s.io/v1beta1",
    ),
)
