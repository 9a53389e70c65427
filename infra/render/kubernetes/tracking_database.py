"""MLflow's PostgreSQL in a pod, on a folder of the first master, as Prometheus has one: network file systems
will not do. Without that master runs log later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.catalogue import addons
from infra.model import Cluster
from infra.model.tracking import Tracking
from infra.render.kubernetes.charts.release import ON_MASTERS
from infra.render.kubernetes.manifests import Object, of
from infra.render.kubernetes.pods import HARDENED, TMP_MOUNT, matching, requests, unprivileged, value
from infra.render.kubernetes.tracking_service import NAME, NAMESPACE, service

SECRET: Final = "database"  # noqa: S105 - a name
AUTHORITIES: Final = "authorities.pem"
"""Its key for who signs the certificate of a database at RDS."""
"""The Secret that ``invoke cluster.up`` brings: ``password``, of the database's user."""
DATABASE: Final = "database"
"""Of its StatefulSet, service and volume."""
DATABASE_PORT: Final = 5432
DATABASE_APP: Final = {"app.kubernetes.io/name": DATABASE}
PATH: Final = "/var/lib/causeway/mlflow"
"""Made by the cookbook ``kubernetes`` on masters, with PostgreSQL's owner."""

_STORAGE_CLASS: Final = "mlflow"
_POSTGRES: Final = 999
"""Of PostgreSQL's image."""


def objects(cluster: Cluster, tracking: Tracking) -> Iterator[Object]:
    """Its volume, its service, and itself."""
    assert cluster.control_plane is not None
    first = cluster.control_plane.masters[0].hostname
    size = f"{tracking.storage_gib}Gi"
    yield of(
        "storage.k8s.io/v1",
        "StorageClass",
        _STORAGE_CLASS,
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
        reclaimPolicy="Retain",
    )
    yield of(
        "v1",
        "PersistentVolume",
        f"{NAME}-{DATABASE}",
        spec={
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": _STORAGE_CLASS,
            "volumeMode": "Filesystem",
            "local": {"path": PATH},
            "nodeAffinity": {
                "required": matching([{"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}])
            },
        },
    )
    yield service(DATABASE, DATABASE_PORT, DATABASE_APP)
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": _STORAGE_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    }
    yield of(
        "apps/v1",
        "StatefulSet",
        DATABASE,
        namespace=NAMESPACE,
        labels=DATABASE_APP,
        spec={
            "replicas": 1,
            "serviceName": DATABASE,
            "selector": {"matchLabels": DATABASE_APP},
            "volumeClaimTemplates": [claim],
            "template": {"metadata": {"labels": DATABASE_APP}, "spec": _postgres(cluster)},
        },
    )


def _postgres(cluster: Cluster) -> Object:
    folder = "/var/lib/postgresql/data"
    probe = {"exec": {"command": ["pg_isready", f"--username={NAME}"]}, "timeoutSeconds": 5}
    container = {
        "name": "postgres",
        "image": addons.image("postgres", cluster.kubernetes.version),
        "env": [
            value("POSTGRES_USER", NAME),
            value("POSTGRES_DB", NAME),
            {
                "name": "POSTGRES_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "password"}},
            },
            value("POSTGRES_INITDB_ARGS", "--auth-host=scram-sha-256 --data-checksums"),
            value("PGDATA", f"{folder}/pgdata"),
        ],
        "ports": [{"name": "postgres", "containerPort": DATABASE_PORT}],
        "startupProbe": {**probe, "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 10},
        "livenessProbe": {**probe, "periodSeconds": 20, "failureThreshold": 6},
        "resources": requests("200m", "512Mi", limit="2Gi"),
        "securityContext": HARDENED,
        "volumeMounts": [
            {"name": "data", "mountPath": folder},
            {"name": "run", "mountPath": "/var/run/postgresql"},
            {"name": "shared", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own
            TMP_MOUNT,
        ],
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 120,
        **ON_MASTERS,
        "securityContext": unprivileged(_POSTGRES),
        "containers": [container],
        "volumes": [
            {"name": "run", "emptyDir": {}},
            {"name": "shared", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
