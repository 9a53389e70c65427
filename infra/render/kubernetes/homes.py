"""Homes on EFS: everyone has one, and all are copied to S3 at night.

An NFS server does both for its own, also while the cluster is away (cookbook ``storage``, recipe ``server``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.catalogue import addons
from infra.catalogue.labels import SITE
from infra.model import Cluster, Outputs
from infra.model.platform import Copy
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of
from infra.render.kubernetes.pods import EVERYWHERE, at, daemons, host, nodes, requests, value
from infra.render.templating import copied

HOME: Final = "/home"
_NFS: Final = "nfs"
"""What stat(1) calls the file system that EFS is to a machine."""
_MOUNTED: Final = f'ls "$0" >/dev/null && test "$(stat -f -c %T "$0")" = {_NFS}'
"""A shell's question whether EFS is at a path, which may be an automount that nobody has walked into yet."""


def objects(cluster: Cluster, _outputs: Outputs) -> Documents:
    """``homes.yaml`` and ``copies.yaml``."""
    return {
        "homes.yaml": list(_homes(cluster)),
        "copies.yaml": [_copy(copy) for copy in cluster.storage.copies if copy.kind == "efs"],
    }


def _homes(cluster: Cluster) -> Iterator[Object]:
    """In regions with homes on EFS nobody but a client can make a new person's home."""
    regions = sorted({each.site for each in cluster.storage.efs if each.path == HOME})
    people = cluster.access.users
    if not regions or not people:
        return
    yield of(
        "v1",
        "ConfigMap",
        "homes",
        namespace=SYSTEM,
        data={
            "people": "".join(f"{user.login} {user.uid}\n" for user in people),
            "make-homes": copied("kubernetes")["make-homes"],
        },
    )
    name = {"app.kubernetes.io/name": "homes"}
    container = {
        "name": "homes",
        "image": addons.image("busybox"),
        "command": ["sh", "/etc/homes/make-homes", "/etc/homes/people", HOME, _NFS],
        "resources": requests("5m", "16Mi", limit="16Mi"),
        "securityContext": _root("CHOWN", "FOWNER", "DAC_OVERRIDE"),
        "volumeMounts": [
            {"name": "list", "mountPath": "/etc/homes", "readOnly": True},
            {"name": "home", "mountPath": HOME, "mountPropagation": "HostToContainer"},
        ],
    }
    spec = {
        "affinity": nodes([at(regions)]),
        "tolerations": EVERYWHERE,
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "list", "configMap": {"name": "homes"}}, host("home", HOME, "Directory")],
    }
    yield daemons("homes", SYSTEM, name, spec, update={"rollingUpdate": {"maxUnavailable": "25%"}})


def _copy(copy: Copy) -> Object:
    """A nightly run in the region of the source."""
    environment = {
        "RCLONE_S3_PROVIDER": "AWS",
        "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_REGION": copy.region,
        "RCLONE_S3_NO_CHECK_BUCKET": "true",
        "RCLONE_CONFIG": "/dev/null",
    }
    return of(
        "batch/v1",
        "CronJob",
        f"copy-{copy.name}",
        namespace=SYSTEM,
        labels={"app.kubernetes.io/name": "copy"},
        spec={
            "schedule": f"{copy.minute} {copy.hour} * * *",
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 2,
                    "activeDeadlineSeconds": 20 * 3600,
                    "template": {
                        "metadata": {"labels": {"app.kubernetes.io/name": "copy"}},
                        "spec": {
                            "restartPolicy": "Never",
                            "nodeSelector": {SITE: copy.site},
                            "automountServiceAccountToken": False,
                            "enableServiceLinks": False,
                            # The node's own role, however few hops its metadata service lets an answer go.
                            "hostNetwork": True,
                            # Where nothing is mounted there is nothing to copy, and all copies would go.
                            "initContainers": [
                                {
                                    "name": "mounted",
                                    "image": addons.image("busybox"),
                                    "command": ["sh", "-c", _MOUNTED, copy.path],
                                    "resources": requests("5m", "16Mi", limit="16Mi"),
                                    "securityContext": _root("DAC_READ_SEARCH"),
                                    "volumeMounts": [_source(copy)],
                                }
                            ],
                            "containers": [
                                {
                                    "name": "copy",
                                    "image": addons.image("rclone"),
                                    "args": [
                                        "sync",
                                        copy.path,
                                        f":s3:{copy.bucket}/{copy.prefix.rstrip('/')}",
                                        "--links",
                                        "--metadata",
                                        "--transfers=16",
                                        "--checkers=32",
                                        "--stats=5m",
                                        "--stats-log-level=NOTICE",
                                    ],
                                    "env": [value(name, text) for name, text in environment.items()],
                                    "resources": requests("500m", "1Gi", limit="1Gi"),
                                    "securityContext": _root("DAC_READ_SEARCH"),
                                    "volumeMounts": [_source(copy)],
                                }
                            ],
                            "volumes": [host("source", copy.path, "Directory")],
                        },
                    },
                }
            },
        },
    )


def _source(copy: Copy) -> dict[str, Any]:
    return {
        "name": "source",
        "mountPath": copy.path,
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }


def _root(*capabilities: str) -> dict[str, Any]:
    """Root, with no more of its powers than these."""
    return {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": list(capabilities)},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
