"""A control plane with what acts in it: a real API server, Kubernetes' own controllers and its scheduler."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoscaler.kube.clusters import Cluster, until
from drive.kubernetes.apiserver import NAME, running
from golden_clusters import golden
from kube_tools import need

from infra.autoscaler.kube.client import KubeError
from infra.drive.kubernetes import access, secrets
from infra.drive.kubernetes.access import Endpoint
from infra.drive.secrets.local import LocalStore
from infra.render.kubernetes import autoscaler

SYSTEM = "causeway-system"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_FOLDERS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ServiceAccount": f"/api/v1/namespaces/{SYSTEM}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{SYSTEM}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{SYSTEM}/rolebindings",
}
_CONTROLLERS = (
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
)
"""Not the one of nodes' lifecycle: here kubelets say themselves when they are gone."""


@contextmanager
def planes(folder: Path) -> Iterator[tuple[Cluster, Path]]:
    """An administrator's way in, and the kubeconfig of the autoscaler's own account with its own rights.

    Skips where one of the programs is missing.
    """
    programs = {name: need(name) for name in ("kube-controller-manager", "kube-scheduler")}
    keys = secrets.made(
        LocalStore("test", folder / ".secrets", {"XDG_CONFIG_HOME": str(folder / "config")}),
        datetime.now(UTC),
    )
    with (
        running(folder, keys) as server,
        access.opened(folder / "build", Endpoint(NAME, server.address), keys.ca) as admin,
        ExitStack() as stack,
    ):
        cluster = Cluster.of(admin.kubeconfig)
        common = ["--leader-elect=false", "--secure-port=0", f"--kubeconfig={admin.kubeconfig}"]
        more = {"kube-controller-manager": [f"--controllers={','.join(_CONTROLLERS)}"]}
        for name, program in programs.items():
            log = stack.enter_context((folder / f"{name}.log").open("ab"))
            process = subprocess.Popen(
                [program, *common, *more.get(name, [])], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield cluster, _account(cluster)


def _account(cluster: Cluster) -> Path:
    """The kinds and the rights that are rendered; the token that the controller's pod would have."""
    documents = autoscaler.objects(golden("research"))
    cluster.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    for each in (*documents["kinds.yaml"], *documents["rights.yaml"]):
        cluster.create(_FOLDERS[each["kind"]], dict(each))
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = cluster.create(f"{_FOLDERS['ServiceAccount']}/{autoscaler.NAME}/token", asked)
    path = cluster.kubeconfig.with_name("account")  # it names the authority's file beside it
    config: dict[str, Any] = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    path.write_text(json.dumps(config))
    until(lambda: _served(cluster))
    return path


def _served(cluster: Cluster) -> bool:
    try:
        return cluster.get(REQUESTS) is not None
    except KubeError:
        return False
