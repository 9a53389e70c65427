"""Volumes: in pods the paths that machines have, and volumes that are made on demand.

A machine mounts each path from the source that is nearest to it (cookbook ``storage``). Pods share these
mounts: a volume of kind ``hostPath`` shows ``/home/ada`` of whichever machine the pod has come to, so that a
job finds its files under the same path in a rack and in a region, and needs no driver for it. People may not
ask for host paths themselves (Pod Security, ``baseline``); volumes are bound beforehand, each to one claim of
one namespace.

Volumes on demand come from CSI drivers: a folder of an NFS export, or of an EFS file system by an access
point of its own. Buckets that no machine mounts are shown by Mountpoint for S3, to each namespace a folder of
its own.
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
"""A volume states a size and a claim asks for one, also where nothing counts it (Kubernetes, "Capacity")."""

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
                # The driver is nobody on the server, and owns this folder, into which nobody else may go. A
                # volume is open to whoever has it mounted.
                "share": f"{export.export}/volumes",
                "subDir": "live/${pvc.metadata.namespace}/${pvc.metadata.name}-${pv.metadata.name}",
                "mountPermissions": "0777",
                # Nobody may not delete what others have written. The server does, some days later.
                "onDelete": "archive",
            }
            found.append(_class(name, "nfs.csi.k8s.io", parameters, ["nfsvers=4.2", "hard", "noatime"]))
    for system in storage.efs:
        made = outputs.file_systems.get(system.site, {}).get(system.name)
        # Before apply there is none; its class comes with the render after.
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
            # As a machine mounts it: by its role, which the file system's policy asks for.
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
    """The names of claims, in namespaces of people and groups, that show a path of the machines."""
    return sorted({claim(mount.path) for mounts in cluster.storage.mounts.values() for mount in mounts})


def claims_made_beforehand(cluster: Cluster) -> list[str]:
    """The same, and those on buckets: each has a volume that is kept for it alone."""
    buckets = [bucket.name for bucket in with_volumes(cluster)]
    return sorted({*claims_on_paths(cluster), *buckets})


def claim(path: str) -> str:
    """The name of the claim on a path: ``data-sets`` on ``/data/sets``."""
    return path.strip("/").replace("/", "-")


@dataclass(frozen=True, slots=True)
class ShownPath:
    """A path of the machines that pods see by a claim of their namespace."""

    path: str
    read_only: bool
    sites: frozenset[str]
    """Where machines have it."""
    of_people: bool
    """Whether each person's namespace has its own part of it, ``/home/ada``, and a group's has none."""


def shown_paths(cluster: Cluster) -> list[ShownPath]:
    """All of them, by path; homes first."""
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
    """Buckets of which each namespace has a folder."""
    return list(cluster.storage.s3_volumes) if cluster.kubernetes.has("s3-csi-driver") else []


def _shown(
    name: str,
    namespace: str,
    path: str,
    read_only: bool,
    sites: Collection[str],
    everywhere: Collection[str],
) -> Iterator[Object]:
    """A machine's path as a volume, and the claim that it is kept for."""
    source: dict[str, Any] = {
        # Made by nobody here: a path that is not mounted must not become a folder on the machine's own disk.
        "hostPath": {"path": path, "type": "Directory"},
    }
    if sites != everywhere:
        source["nodeAffinity"] = {"required": matching([at(sites)])}
    yield from _bound(name, namespace, ["ReadOnlyMany" if read_only else "ReadWriteMany"], source)


def _bucket(bucket: Bucket, region: str, namespace: str) -> Iterator[Object]:
    """A folder of a bucket, in regions: racks have no role there."""
    options = [f"prefix={namespace}/", f"region={region}", "allow-delete", "allow-overwrite", "allow-other"]
    yield from _bound(
        bucket.name,
        namespace,
        ["ReadWriteMany"],
        {
            "mountOptions": options,
            "csi": {
                "driver": "s3.csi.aws.com",
                # One volume is mounted once on a machine, whoever asks: each has a handle of its own.
                "volumeHandle": f"{bucket.name}-{namespace}",
                # The pod's own namespace asks AWS, by its role.
                "volumeAttributes": {"bucketName": bucket.bucket, "authenticationSource": "pod"},
            },
            # Not by the names of regions: a volume's affinity never changes, and regions are added.
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
    """By class: the claims on machines' paths have none, and would use up any quota by what they state."""
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
