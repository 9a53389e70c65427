"""Where Prometheus keeps its figures: a folder on the first master, which is always there.

Network file systems will not do for it (Prometheus, "Storage": "NFS filesystems (including AWS's EFS) are not
supported"). Without that master there are no figures until it is back; the cluster does not need them.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.charts.monitoring import STORAGE_CLASS, STORAGE_SIZE
from infra.render.kubernetes.manifests import Documents, of
from infra.render.kubernetes.pods import matching

PATH: Final = "/var/lib/causeway/prometheus"
"""Made by the cookbook ``kubernetes`` on masters, with Prometheus's owner."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``storage.yaml``; nothing without Prometheus."""
    plane = cluster.control_plane
    if plane is None or not cluster.kubernetes.has("prometheus"):
        return {}
    first = plane.masters[0].hostname
    required = matching([{"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}])
    return {
        "storage.yaml": [
            of(
                "storage.k8s.io/v1",
                "StorageClass",
                STORAGE_CLASS,
                provisioner="kubernetes.io/no-provisioner",
                volumeBindingMode="WaitForFirstConsumer",
                reclaimPolicy="Retain",
            ),
            of(
                "v1",
                "PersistentVolume",
                "prometheus",
                spec={
                    "capacity": {"storage": STORAGE_SIZE},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": STORAGE_CLASS,
                    "volumeMode": "Filesystem",
                    "local": {"path": PATH},
                    "nodeAffinity": {"required": required},
                },
            ),
        ]
    }
