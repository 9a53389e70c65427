"""Volumes: machines' paths in pods, and dynamically provisioned volumes.

A machine mounts each path from its nearest source (cookbook ``storage``). Pods share these mounts: a volume
of type ``hostPath`` shows ``/home/ada`` of the machine that runs the pod, so that a job finds its files
under the same path at every site, without a CSI driver. Users may not use host paths themselves (Pod
Security, ``baseline``); volumes are bound beforehand, each to one claim of one namespace.

CSI drivers provision volumes: a folder of an NFS export, or of an EFS file system with its own access point.
Buckets that machines do not mount are mounted by Mountpoint for S3, with a folder per namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.catalogue.labels import CAPACITY
from infra.model import Cluster, Outputs
from infra.model.platform import Bucket, User
from infra.render.kubernetes.manifests import Documents, Object, filled, joined, mutating_api, of
from infra.render.kubernetes.pods import at, matching

_STATED: Final = "1Pi"
"""The size of volumes and claims, which is required even though it has no effect (Kubernetes, "Capacity")."""

_HOME: Final = "/home"


def objects(cluster: Cluster, outputs: Outputs) -> Documents:
    """``classes.yaml``, ``volumes.yaml`` and ``quotas.yaml``."""
    return {
        "classes.yaml": _classes(cluster, outputs),
        "volumes.yaml": list(_volumes(cluster)),
        "quotas.yaml": list(_quotas(cluster)),
    }


# -- Volumes on demand -------------------------------------------------------------------------------------


def _classes(cluster: Cluster, outputs: Outputs) -> Sequence[Object]:
    storage, found = cluster.storage, list[Object]()
    reached: dict[str, list[str]] = {}
    for export in storage.nfs:
        if (name := export.storage_class) is not None:
            reached[name] = [
                site
                for site, mounts in storage.mounts.items()
                if any(mount.kind == "nfs" and mount.name == export.name for mount in mounts)
            ]
            parameters = {
                "server": export.server,
                # The driver runs as nobody on the server, and owns this folder, which no other user can
                # enter. A volume is accessible to everyone who has it mounted.
                "share": f"{export.export}/volumes",
                "subDir": "live/${pvc.metadata.namespace}/${pvc.metadata.name}-${pv.metadata.name}",
                "mountPermissions": "0777",
                # The user nobody cannot delete files of others. The server does so some days later.
                "onDelete": "archive",
            }
            found.append(_class(name, "nfs.csi.k8s.io", parameters, ["nfsvers=4.2", "hard", "noatime"]))
    for system in storage.efs:
        made = outputs.file_systems.get(system.site, {}).get(system.name)
        # The id is unknown before apply; the next render adds its class.
        if (name := system.storage_class) is not None and made is not None:
            reached[name] = [system.site]
            parameters = {
                "provisioningMode": "efs-ap",
                "fileSystemId": made.id,
                "basePath": "/volumes",
                "subPathPattern": "${.PVC.namespace}/${.PVC.name}",
                "ensureUniqueDirectory": "true",
                "directoryPerms": "0770",
            }
            # Mounted as on a machine: with its IAM role, which the file system's policy requires.
            found.append(_class(name, "efs.csi.aws.com", parameters, ["tls", "iam"]))
    if not reached:
        return found
    api = mutating_api(cluster.kubernetes.version)
    return joined([found, filled("volumes/kept-near", api=api, sites_of_classes=reached)])


def _class(name: str, provisioner: str, parameters: dict[str, str], options: list[str]) -> Object:
    return of(
        "storage.k8s.io/v1",
        "StorageClass",
        name,
        provisioner=provisioner,
        parameters=parameters,
        mountOptions=options,
        reclaimPolicy="Delete",
        volumeBindingMode="Immediate",
    )


# -- The paths of machines ---------------------------------------------------------------------------------


def claims_on_paths(cluster: Cluster) -> list[str]:
    """The names of claims on machines' paths, in namespaces of users and groups."""
    return sorted({claim(mount.path) for mounts in cluster.storage.mounts.values() for mount in mounts})


def claims_made_beforehand(cluster: Cluster) -> list[str]:
    """These, and claims on buckets: each has a volume that is reserved for it."""
    buckets = [bucket.name for bucket in with_volumes(cluster)]
    return sorted({*claims_on_paths(cluster), *buckets})


def claim(path: str) -> str:
    """The name of the claim on a path: ``data-sets`` on ``/data/sets``."""
    return path.strip("/").replace("/", "-")


@dataclass(frozen=True, slots=True)
class ShownPath:
    """A path of the machines that pods can mount by a claim in their namespace."""

    path: str
    read_only: bool
    sites: frozenset[str]
    """The sites whose machines have it."""
    of_people: bool
    """Whether each user's namespace has its own subfolder (``/home/ada``), and groups have none."""


def shown_paths(cluster: Cluster) -> list[ShownPath]:
    """All such paths, homes first, then sorted by path."""
    sites: dict[str, set[str]] = {}
    read_only: dict[str, bool] = {}
    for site, mounts in cluster.storage.mounts.items():
        for mount in mounts:
            sites.setdefault(mount.path, set()).add(site)
            only = mount.kind != "efs" and mount.read_only
            read_only[mount.path] = read_only.get(mount.path, True) and only
    return [
        ShownPath(path, read_only[path] and path != _HOME, frozenset(sites[path]), path == _HOME)
        for path in sorted(sites, key=lambda path: (path != _HOME, path))
    ]


def home_of(user: User) -> str:
    """``/home/ada``."""
    return f"{_HOME}/{user.login}"


def _volumes(cluster: Cluster) -> Iterator[Object]:
    everywhere = set(cluster.storage.mounts)
    shown = shown_paths(cluster)
    for user in cluster.access.users:
        for each in shown:
            if each.of_people:
                yield from _shown(
                    claim(each.path), user.namespace, home_of(user), False, each.sites, everywhere
                )
    namespaces = _namespaces(cluster)
    for namespace in namespaces:
        for each in shown:
            if not each.of_people:
                name = claim(each.path)
                yield from _shown(name, namespace, each.path, each.read_only, each.sites, everywhere)
    places = {region.name: region.region for region in cluster.regions}
    for bucket in with_volumes(cluster):
        for namespace in namespaces:
            yield from _bucket(bucket, places[bucket.site], namespace)


def with_volumes(cluster: Cluster) -> list[Bucket]:
    """Buckets in which each namespace has a folder."""
    return list(cluster.storage.s3_volumes) if cluster.kubernetes.has("s3-csi-driver") else []


def _shown(
    name: str,
    namespace: str,
    path: str,
    read_only: bool,
    sites: Collection[str],
    everywhere: Collection[str],
) -> Iterator[Object]:
    """A volume for a machine's path, and the claim that it is reserved for."""
    source: dict[str, Any] = {
        # Not created if missing: a path that is not mounted must not become a folder on the machine's root
        # disk.
        "hostPath": {"path": path, "type": "Directory"},
    }
    if sites != everywhere:
        source["nodeAffinity"] = {"required": matching([at(sites)])}
    yield from _bound(name, namespace, ["ReadOnlyMany" if read_only else "ReadWriteMany"], source)


def _bucket(bucket: Bucket, region: str, namespace: str) -> Iterator[Object]:
    """A volume for a folder of a bucket, in regions: physical sites have no AWS role."""
    options = [f"prefix={namespace}/", f"region={region}", "allow-delete", "allow-overwrite", "allow-other"]
    yield from _bound(
        bucket.name,
        namespace,
        ["ReadWriteMany"],
        {
            "mountOptions": options,
            "csi": {
                "driver": "s3.csi.aws.com",
                # A volume is mounted once per machine, for all its pods: so each namespace has its own
                # handle.
                "volumeHandle": f"{bucket.name}-{namespace}",
                # The pod's namespace authenticates with its own AWS role.
                "volumeAttributes": {"bucketName": bucket.bucket, "authenticationSource": "pod"},
            },
            # Not by names of regions: a volume's affinity is immutable, and regions are added.
            "nodeAffinity": {
                "required": matching([{"key": CAPACITY, "operator": "NotIn", "values": ["physical"]}])
            },
        },
    )


def _bound(claim: str, namespace: str, modes: list[str], source: dict[str, Any]) -> Iterator[Object]:
    name = f"{namespace}-{claim}"
    yield of(
        "v1",
        "PersistentVolume",
        name,
        spec={
            "capacity": {"storage": _STATED},
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim,
            },
            **source,
        },
    )
    yield of(
        "v1",
        "PersistentVolumeClaim",
        claim,
        namespace=namespace,
        spec={
            "accessModes": modes,
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": _STATED}},
        },
    )


# -- Quotas ------------------------------------------------------------------------------------------------


def _quotas(cluster: Cluster) -> Iterator[Object]:
    """Quotas by StorageClass: claims on machines' paths have none, and their nominal size would exceed any
    quota."""
    storage = cluster.storage
    most = storage.volumes_quota_mib
    made = [*(each.storage_class for each in storage.nfs), *(each.storage_class for each in storage.efs)]
    classes = [name for name in made if name is not None]
    if most is None or not classes:
        return
    hard = {f"{name}.storageclass.storage.k8s.io/requests.storage": f"{most}Mi" for name in classes}
    for namespace in _namespaces(cluster):
        yield of("v1", "ResourceQuota", "volumes", namespace=namespace, spec={"hard": hard})


def _namespaces(cluster: Cluster) -> list[str]:
    access = cluster.access
    return [*(user.namespace for user in access.users), *(group.namespace for group in access.groups)]
