"""MLflow, to which runs log parameters and metrics. Namespaces are its workspaces, and access is granted by
RBAC.

A client sends a token of its namespace's service account ``work`` and names the workspace. With that token
the server asks the API server whether the account may, for example, ``create
experiments.mlflow.kubeflow.org`` in the namespace. Such objects do not exist, only rights on them. The
server stores no passwords and has no rights in users' namespaces.

It runs on masters: they exist even while pools are empty, and are in the region of the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.research import Tracking
from infra.render.kubernetes import rights
from infra.render.kubernetes.manifests import Documents, Manifest, Object, filled, joined, of, static
from infra.render.kubernetes.namespaces import laptops
from infra.render.kubernetes.research import WORK
from infra.render.kubernetes.tenants import members, subject
from infra.render.kubernetes.tracking_service import DATABASE, NAME, NAMESPACE, is_served
from infra.render.templating import copied

ARTIFACTS: Final = "mlflow"
"""The prefix of artifacts in the store."""

_SCRIPTS: Final = ("migrate.py", "thin.py", "workspaces.py", "entry_points.txt", "METADATA")
_APP: Final = {"app.kubernetes.io/name": NAME}


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """MLflow's objects; empty if it is disabled, or has no database yet."""
    tracking = cluster.tracking
    if tracking is None or not is_served(cluster, outputs):
        return {}
    scripts = {name: copied("kubernetes")[f"tracking/{name}"] for name in _SCRIPTS}
    in_pod = tracking.managed is None
    shared = _shared(tracking, outputs)
    return {
        "kinds.yaml": static("tracking/kinds"),
        "rights.yaml": joined([static("tracking/rights"), _users(cluster), _openers(cluster)]),
        "network.yaml": filled("tracking/network", laptops=list(map(str, laptops(cluster))), in_pod=in_pod),
        "database.yaml": _database(cluster, tracking) if in_pod else [],
        "scripts.yaml": [of("v1", "ConfigMap", "scripts", namespace=NAMESPACE, labels=_APP, data=scripts)],
        "server.yaml": filled(
            "tracking/server",
            **shared,
            **_store(cluster, outputs),
            replicas=tracking.replicas,
            scripts=sha256("".join(scripts.values()).encode()).hexdigest()[:16],
        ),
        "thinning.yaml": filled("tracking/thinning", **shared, after_days=str(tracking.thin_after_days)),
    }


def _shared(tracking: Tracking, outputs: Outputs) -> dict[str, Any]:
    """Values common to the server and the nightly job; ``uri`` has no password: the driver reads it from
    ``PGPASSWORD``."""
    managed = tracking.managed is not None
    host = outputs.tracking_database if managed else f"{DATABASE}.{NAMESPACE}.svc"
    return {
        "image": tracking.image,
        "uri": f"postgresql+psycopg2://{NAME}@{host}:5432/{NAME}",
        "managed": managed,
        "tls": "verify-full" if managed else "disable",
    }


def _store(cluster: Cluster, outputs: Outputs) -> dict[str, Any]:
    """The location of artifacts, and the identity used for them."""
    work = cluster.storage.work
    assert work is not None
    return {
        "destination": f"--artifacts-destination=s3://{work.bucket}/{ARTIFACTS}",
        "region": cluster.region(work.site).region,
        "role": outputs.roles.get(NAMESPACE),
    }


def _database(cluster: Cluster, tracking: Tracking) -> Manifest:
    assert cluster.control_plane is not None
    return filled(
        "tracking/database",
        master=cluster.control_plane.masters[0].hostname,
        size=f"{tracking.storage_gib}Gi",
        image=addons.image("postgres"),
    )


def _users(cluster: Cluster) -> Iterator[Object]:
    """Rights on logged data in each namespace, for its account ``work`` and its users."""
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
            roleRef={"apiGroup": rights.GROUP, "kind": "ClusterRole", "name": "causeway:tracking"},
            subjects=[account, *people[name]],
        )


def _openers(cluster: Cluster) -> Iterator[Object]:
    """The right of all users to forward a port to it; also to the database, which requires a password."""
    rules = [
        {"apiGroups": [""], "resources": ["services"], "resourceNames": [NAME], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ]
    if everybody := [subject(user) for user in cluster.access.users]:
        yield from rights.within(NAMESPACE, f"open-{NAME}", rules, everybody, labels=_APP)
