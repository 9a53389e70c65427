"""CSI drivers: volumes on EFS, in S3 buckets, and on NFS servers."""

from __future__ import annotations

from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.pods import EVERYWHERE, at, nodes, requests


def releases(cluster: Cluster) -> list[Release]:
    """The releases of all enabled drivers."""
    return [*_efs(cluster), *_s3(cluster), *_nfs(cluster)]


def _efs(cluster: Cluster) -> list[Release]:
    """The EFS driver. It creates access points with the masters' instance role, which pods with host
    networking can use."""
    values = {
        "controller": {
            **ON_MASTERS,
            "hostNetwork": True,
            # Its probe uses a host port, so the old pod must be deleted first.
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            "replicaCount": 1,
            "deleteAccessPointRootDir": False,
            "resources": requests("10m", "64Mi", limit="512Mi"),
        },
        "node": {
            "tolerations": EVERYWHERE,
            "affinity": nodes([at({system.site for system in cluster.storage.efs})]),
            "resources": requests("10m", "64Mi"),
        },
    }
    return of(cluster, "efs-csi-driver", values)


def _s3(cluster: Cluster) -> list[Release]:
    values = {
        "controller": ON_MASTERS,
        "node": {
            "defaultTolerations": False,
            "tolerateAllTaints": False,
            "tolerations": EVERYWHERE,
            # Only pods in regions use these volumes: buckets are far from physical sites.
            "affinity": nodes([at({region.name for region in cluster.regions})]),
        },
    }
    return of(cluster, "s3-csi-driver", values)


def _nfs(cluster: Cluster) -> list[Release]:
    sites = {
        site
        for site, mounts in cluster.storage.mounts.items()
        if any(mount.kind == "nfs" for mount in mounts)
    }
    values = {
        "controller": {
            **ON_MASTERS,
            "runOnControlPlane": True,
            # Dynamically provisioned volumes are folders, without snapshots.
            "enableSnapshotter": False,
            "defaultOnDeletePolicy": "delete",
        },
        "node": {
            "tolerations": EVERYWHERE,
            "priorityClassName": "system-node-critical",
            "affinity": nodes([at(sites)]),
            "maxUnavailable": "10%",
        },
    }
    return of(cluster, "nfs-csi-driver", values)
