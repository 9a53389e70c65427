"""The controller's own account on a real API server: the kinds and the rights that are rendered, and nothing
else allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoscaler.kube.clusters import Cluster
from golden_clusters import golden
from waiting import until

from infra.autoscaler.kube.client import KubeError
from infra.model import Cluster as Spec
from infra.render.kubernetes import autoscaler
from infra.render.kubernetes.manifests import SYSTEM

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


@contextmanager
def account(admin: Cluster, spec: Spec | None = None) -> Iterator[Path]:
    """The kubeconfig that the controller's pod would have, with its service account's token. Afterwards the
    cluster is as it was, apart from the namespace."""
    documents = autoscaler.objects(spec or golden("research"))
    objects = [*documents["kinds.yaml"], *documents["rights.yaml"]]
    admin.ensure("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    for manifest in objects:
        admin.create(_FOLDERS[manifest["kind"]], dict(manifest))
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = admin.create(f"{_FOLDERS['ServiceAccount']}/{autoscaler.NAME}/token", asked)
    path = admin.kubeconfig.with_name("account")  # it names the authority's file beside it
    config: dict[str, Any] = json.loads(admin.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    path.write_text(json.dumps(config))
    controller = Cluster.of(path)
    until(lambda: _served(controller))
    yield path
    paths = [f"{_FOLDERS[manifest['kind']]}/{manifest['metadata']['name']}" for manifest in reversed(objects)]
    for each_path in paths:
        admin.delete(each_path)
    until(lambda: not any(admin.get(each_path) for each_path in paths))


def _served(controller: Cluster) -> bool:
    """Whether the new kind is served, and the rights are in force."""
    try:
        return controller.get(REQUESTS.replace("namespaces/default/", "")) is not None
    except KubeError:
        return False
