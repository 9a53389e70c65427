"""CSI drivers: volumes on EFS, in buckets, and on NFS servers."""

from __future__ import annotations

from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, of
from infra.render.kubernetes.pods import EVERYWHERE, at, nodes, requests


def releases(cluster: Cluster) -> list[Release]:
    """Of each driver that is on."""
    return [*_efs(cluster), *_s3(cluster), *_nfs(cluster)]


def _efs(cluster: Cluster) -> list[Release]:
    """It makes access points with the masters' instance role, which pods on the machine's network have."""
    values = {
        "controller": {
            **ON_MASTERS,
            "hostNetwork": True,
            # The port of its probe is the machine's: the old one goes first.
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
            # Volumes are of pods in regions alone: elsewhere buckets are far away.
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
            # Volumes on demand are folders: nobody takes snapshots of them here.
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
