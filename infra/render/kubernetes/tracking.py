"""MLflow, where runs log parameters and metrics. Namespaces are its workspaces, and RBAC says who uses one.

A client shows a token of its namespace's service account ``work`` and names the workspace. With that token
the server asks the API server whether it may, say, ``create experiments.mlflow.kubeflow.org`` in the
namespace. Such objects do not exist, only rights on them. The server keeps no passwords and has no rights in
people's namespaces.

It runs on masters: they are there while pools are empty, and are in the region of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from infra.catalogue.labels import OURS
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.tracking import Tracking
from infra.render.kubernetes import rights, tracking_database
from infra.render.kubernetes.charts.release import ON_MASTERS
from infra.render.kubernetes.manifests import Documents, Object, of
from infra.render.kubernetes.namespaces import METADATA, laptops
from infra.render.kubernetes.pods import HARDENED, TMP_MOUNT, field, requests, unprivileged, value
from infra.render.kubernetes.research import AUDIENCE, WORK
from infra.render.kubernetes.tenants import OF_TENANTS, TENANT, members, subject
from infra.render.kubernetes.tracking_database import (
    AUTHORITIES,
    DATABASE,
    DATABASE_APP,
    DATABASE_PORT,
    SECRET,
)
from infra.render.kubernetes.tracking_service import NAME, NAMESPACE, PORT, is_served, service
from infra.render.templating import copied

ARTIFACTS: Final = "mlflow"
"""The folder of artifacts in the store."""

_GROUP: Final = "mlflow.kubeflow.org"
_ROLE: Final = "causeway:tracking"
_SERVER_ROLE: Final = "causeway:mlflow"
_OPEN: Final = f"open-{NAME}"
_SCRIPTS: Final = "scripts"
_APP_NAME: Final = "workspaces"
_FILES: Final = {
    "migrate.py": "migrate.py",
    "thin.py": "thin.py",
    "workspaces.py": "workspaces.py",
    # By these MLflow finds it (Python Packaging User Guide, "Entry points specification").
    "entry_points.txt": f"{_APP_NAME}-1.dist-info/entry_points.txt",
    "METADATA": f"{_APP_NAME}-1.dist-info/METADATA",
}
"""Of our own: in the ConfigMap, and where the server has them below ``/scripts``."""
_APP: Final = {"app.kubernetes.io/name": NAME}
_THIN_APP: Final = {"app.kubernetes.io/name": "thin"}
_USER: Final = 65532
"""Of the image."""
_TOKEN: Final = "/var/run/secrets/aws"  # noqa: S105 - a path
_AUTHORITIES: Final = "/var/run/secrets/database"

_RESOURCES: Final = ("experiments", "registeredmodels", "datasets")
"""What a run logs. Nobody has rights on the rest of MLflow, such as its gateway to language models."""
_VERBS: Final = ("get", "list", "create", "update", "delete")
EXPERIMENTS: Final = {"apiGroups": [_GROUP], "resources": ["experiments"]}
"""Of rules: experiments and the runs in them."""

_RIGHTS_SECONDS: Final = 60
"""How long the server remembers the API server's answer."""
_POINTS: Final = 1000
_MOST_ROWS: Final = 50_000_000


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """Nothing where it is off, or has no database yet."""
    tracking = cluster.tracking
    if tracking is None or not is_served(cluster, outputs):
        return {}
    scripts = {name: copied("kubernetes")[f"tracking/{name}"] for name in _FILES}
    uri = _uri(tracking, outputs)
    return {
        "kinds.yaml": [_configurations()],
        "rights.yaml": [*_server_rights(), *_rights(cluster), *_openers(cluster)],
        "network.yaml": list(_network_policies(cluster, tracking)),
        "database.yaml": list(tracking_database.objects(cluster, tracking))
        if tracking.managed is None
        else [],
        "server.yaml": [
            of("v1", "ConfigMap", _SCRIPTS, namespace=NAMESPACE, labels=_APP, data=scripts),
            _server(cluster, tracking, outputs, uri, scripts),
            service(NAME, PORT, _APP),
            of(
                "policy/v1",
                "PodDisruptionBudget",
                NAME,
                namespace=NAMESPACE,
                labels=_APP,
                spec={"maxUnavailable": 1, "selector": {"matchLabels": _APP}},
            ),
        ],
        "thinning.yaml": [_thinning(tracking, uri)],
    }


def _uri(tracking: Tracking, outputs: Outputs) -> str:
    """Without the password: the driver takes that from ``PGPASSWORD``."""
    host = f"{DATABASE}.{NAMESPACE}.svc" if tracking.managed is None else outputs.tracking_database
    return f"postgresql+psycopg2://{NAME}@{host}:{DATABASE_PORT}/{NAME}"


# -- Who may do what ----------------------------------------------------------------------------------------


def _server_rights() -> list[Object]:
    """It lists the workspaces. Whether somebody may use one it asks with their token, not with its own."""
    rules = [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": [_GROUP], "resources": ["mlflowconfigs"], "verbs": ["list", "watch"]},
    ]
    return rights.everywhere(NAME, NAMESPACE, rules, role=_SERVER_ROLE, labels=_APP)


def _rights(cluster: Cluster) -> Iterator[Object]:
    """In each namespace its account ``work``, and its people, have all rights on what is logged there."""
    rules = [{"apiGroups": [_GROUP], "resources": list(_RESOURCES), "verbs": list(_VERBS)}]
    yield of(rights.API, "ClusterRole", _ROLE, labels=_APP, rules=rules)
    people = {user.namespace: [subject(user)] for user in cluster.access.users}
    people |= {
        group.namespace: [subject(user) for user in members(cluster, group)]
        for group in cluster.access.groups
    }
    for name in sorted(people):
        account = {"kind": "ServiceAccount", "name": WORK, "namespace": name}
        yield of(
            rights.API,
            "RoleBinding",
            "tracking",
            namespace=name,
            labels=_APP,
            roleRef={"apiGroup": rights.GROUP, "kind": "ClusterRole", "name": _ROLE},
            subjects=[account, *people[name]],
        )


def _openers(cluster: Cluster) -> Iterator[Object]:
    """Everybody of the spec may forward a port to it. To the database, too, which wants a password."""
    rules = [
        {"apiGroups": [""], "resources": ["services"], "resourceNames": [NAME], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ]
    if everybody := [subject(user) for user in cluster.access.users]:
        yield from rights.within(NAMESPACE, _OPEN, rules, everybody, labels=_APP)


def _configurations() -> Object:
    """``MLflowConfig``: where a namespace's artifacts go instead. Nobody may make one; without the kind the
    server would ask for all of them at every request rather than watch them once."""
    plural = "mlflowconfigs"
    text = {"type": "string"}
    return of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"{plural}.{_GROUP}",
        labels=_APP,
        spec={
            "group": _GROUP,
            "names": {
                "kind": "MLflowConfig",
                "listKind": "MLflowConfigList",
                "plural": plural,
                "singular": "mlflowconfig",
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "apiVersion": text,
                                "kind": text,
                                "metadata": {"type": "object"},
                                "spec": {
                                    "type": "object",
                                    "properties": {"artifactRootPath": text, "artifactRootSecret": text},
                                },
                            },
                        }
                    },
                }
            ],
        },
    )


# -- Who may talk to it -------------------------------------------------------------------------------------


def _network_policies(cluster: Cluster, tracking: Tracking) -> Iterator[Object]:
    """People's and groups' pods and laptops reach the server; it and the nightly job reach the database."""
    visitors: list[Object] = [
        {"namespaceSelector": OF_TENANTS},
        *({"ipBlock": {"cidr": str(block)}} for block in laptops(cluster)),
    ]
    yield _network_policy(NAME, _APP, visitors, PORT)
    yield _network_policy("thin", _THIN_APP, None, None)
    if tracking.managed is None:
        clients = [{"podSelector": {"matchLabels": each}} for each in (_APP, _THIN_APP)]
        yield _network_policy(DATABASE, DATABASE_APP, clients, DATABASE_PORT)


def _network_policy(
    name: str, labels: Mapping[str, str], visitors: list[Object] | None, port: int | None
) -> Object:
    ingress = [{"from": visitors, "ports": [{"protocol": "TCP", "port": port}]}] if visitors else []
    return of(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        namespace=NAMESPACE,
        labels=labels,
        spec={
            "podSelector": {"matchLabels": dict(labels)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [
                {"to": [{"namespaceSelector": {}}]},
                {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [METADATA]}}]},
            ],
        },
    )


# -- The server ---------------------------------------------------------------------------------------------


def _server(
    cluster: Cluster, tracking: Tracking, outputs: Outputs, uri: str, scripts: Mapping[str, str]
) -> Object:
    metadata = {
        "labels": _APP,
        # A change of one of them reaches servers as a change of the image does.
        "annotations": {f"{OURS}/scripts": sha256("".join(scripts.values()).encode()).hexdigest()[:16]},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _APP},
    }
    pod = {
        "serviceAccountName": NAME,
        "enableServiceLinks": False,
        **ON_MASTERS,
        "topologySpreadConstraints": [spread],
        "securityContext": unprivileged(_USER),
        "initContainers": [
            {
                "name": "migrate",
                "image": tracking.image,
                "command": ["python", f"/{_SCRIPTS}/migrate.py"],
                "env": _database_environment(tracking, uri),
                "resources": requests("100m", "256Mi", limit="1Gi"),
                "securityContext": HARDENED,
                "volumeMounts": [_SCRIPTS_MOUNT, TMP_MOUNT, *_authorities_mount(tracking)],
            }
        ],
        "containers": [_container(cluster, tracking, outputs, uri)],
        "volumes": [
            *_volumes(tracking),
            {
                "name": "aws",
                "projected": {
                    "sources": [
                        {
                            "serviceAccountToken": {
                                "audience": AUDIENCE,
                                "expirationSeconds": 3600,
                                "path": "token",
                            }
                        }
                    ]
                },
            },
        ],
    }
    return of(
        "apps/v1",
        "Deployment",
        NAME,
        namespace=NAMESPACE,
        labels=_APP,
        spec={
            "replicas": tracking.replicas,
            "selector": {"matchLabels": _APP},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": metadata, "spec": pod},
        },
    )


def _container(cluster: Cluster, tracking: Tracking, outputs: Outputs, uri: str) -> Object:
    work = cluster.storage.work
    assert work is not None
    names = [f"{NAME}.{NAMESPACE}.{end}" for end in ("svc", "svc.cluster.local")]
    hosts = [*names, *(f"{name}:{PORT}" for name in names), "localhost:*", "127.0.0.1:*"]
    role = outputs.roles.get(NAMESPACE)
    probe = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    return {
        "name": NAME,
        "image": tracking.image,
        "command": ["mlflow"],
        "args": [
            "server",
            "--host=0.0.0.0",
            f"--port={PORT}",
            "--workers=2",
            f"--allowed-hosts={','.join(hosts)}",
            "--serve-artifacts",
            f"--artifacts-destination=s3://{work.bucket}/{ARTIFACTS}",
            "--enable-workspaces",
            "--workspace-store-uri=kubernetes://",
            f"--app-name={_APP_NAME}",
        ],
        "env": [
            *_database_environment(tracking, uri),
            value("PYTHONPATH", f"/{_SCRIPTS}"),
            value("MLFLOW_K8S_WORKSPACE_LABEL_SELECTOR", TENANT),
            value("MLFLOW_K8S_AUTH_CACHE_TTL_SECONDS", str(_RIGHTS_SECONDS)),
            # Of its jobs (evaluation, archiving) none is used, and each would be another process.
            value("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false"),
            value("MLFLOW_DISABLE_TELEMETRY", "true"),
            value("HOME", "/tmp"),  # noqa: S108 - the pod's own
            value("AWS_REGION", cluster.region(work.site).region),
            *([value("AWS_ROLE_ARN", role)] if role else []),
            value("AWS_WEB_IDENTITY_TOKEN_FILE", f"{_TOKEN}/token"),
            field("AWS_ROLE_SESSION_NAME", "metadata.name"),
        ],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**probe, "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 20, "failureThreshold": 6},
        "resources": requests("200m", "1Gi", limit="3Gi"),
        "securityContext": HARDENED,
        "volumeMounts": [
            TMP_MOUNT,
            _SCRIPTS_MOUNT,
            {"name": "aws", "mountPath": _TOKEN, "readOnly": True},
            *_authorities_mount(tracking),
        ],
    }


def _database_environment(tracking: Tracking, uri: str) -> list[Object]:
    """The driver's own variables (libpq, "Environment Variables")."""
    secret = {"secretKeyRef": {"name": SECRET, "key": "password"}}
    tls = {"PGSSLMODE": "disable"}
    if tracking.managed is not None:
        tls = {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": f"{_AUTHORITIES}/{AUTHORITIES}"}
    return [
        value("MLFLOW_BACKEND_STORE_URI", uri),
        {"name": "PGPASSWORD", "valueFrom": secret},
        *(value(name, text) for name, text in tls.items()),
    ]


def _authorities_mount(tracking: Tracking) -> list[Object]:
    if tracking.managed is None:
        return []
    return [{"name": "authorities", "mountPath": _AUTHORITIES, "readOnly": True}]


_SCRIPTS_MOUNT: Final = {"name": _SCRIPTS, "mountPath": f"/{_SCRIPTS}", "readOnly": True}


def _volumes(tracking: Tracking) -> list[Object]:
    items = [{"key": AUTHORITIES, "path": AUTHORITIES}]
    return [
        {
            "name": _SCRIPTS,
            "configMap": {
                "name": _SCRIPTS,
                "items": [{"key": name, "path": path} for name, path in _FILES.items()],
            },
        },
        {"name": "tmp", "emptyDir": {}},
        *(
            [{"name": "authorities", "secret": {"secretName": SECRET, "items": items}}]
            if tracking.managed is not None
            else []
        ),
    ]


# -- The nightly job ----------------------------------------------------------------------------------------


def _thinning(tracking: Tracking, uri: str) -> Object:
    container = {
        "name": "thin",
        "image": tracking.image,
        "command": ["python", f"/{_SCRIPTS}/thin.py"],
        "env": [
            *_database_environment(tracking, uri),
            value("POINTS", str(_POINTS)),
            value("AFTER_DAYS", str(tracking.thin_after_days)),
            value("MOST_ROWS", str(_MOST_ROWS)),
        ],
        "resources": requests("50m", "128Mi", limit="512Mi"),
        "securityContext": HARDENED,
        "volumeMounts": [_SCRIPTS_MOUNT, TMP_MOUNT, *_authorities_mount(tracking)],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **ON_MASTERS,
        "securityContext": unprivileged(_USER),
        "containers": [container],
        "volumes": _volumes(tracking),
    }
    return of(
        "batch/v1",
        "CronJob",
        "thin",
        namespace=NAMESPACE,
        labels=_THIN_APP,
        spec={
            "schedule": "17 3 * * *",
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 6 * 3600,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 2,
                    "activeDeadlineSeconds": 6 * 3600,
                    # A retry would not make a table smaller.
                    "podFailurePolicy": {
                        "rules": [
                            {
                                "action": "FailJob",
                                "onExitCodes": {"containerName": "thin", "operator": "In", "values": [3]},
                            }
                        ]
                    },
                    "template": {"metadata": {"labels": _THIN_APP}, "spec": pod},
                }
            },
        },
    )
