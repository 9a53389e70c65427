"""The controller's own account on a real API server: the kinds and the rights that are rendered, and nothing
else allowed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoscaler.kube.clusters import Cluster
from golden_clusters import golden
from kube.api import path_of
from kube.plane import Plane, planes
from kube_tools import need
from waiting import until

from infra.autoscaler.kube.client import KubeError
from infra.model import Cluster as Spec
from infra.render.kubernetes import autoscaler
from infra.render.kubernetes.manifests import SYSTEM

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
_CONTROLLERS = (
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "resourcequota-controller",
)
"""Not the one of nodes' lifecycle: here kubelets say themselves when they are gone."""


@contextmanager
def account(plane: Plane, spec: Spec | None = None) -> Iterator[Path]:
    """The kubeconfig that the controller's pod would have, with its service account's token. Afterwards the
    cluster is as it was, apart from the namespace. ``spec``: whose; without, the golden ``research``."""
    documents = autoscaler.objects(spec or golden("research"))
    objects = [*documents["kinds.yaml"], *documents["rights.yaml"]]
    plane.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    plane.admin.apply_all({"account": objects})
    way = plane.kubeconfig_with("autoscaler", token=plane.admin.token(SYSTEM, autoscaler.NAME))
    controller = Cluster.of(way)
    until(lambda: _served(controller))
    yield way
    paths = [path_of(each) for each in reversed(objects)]
    for path in paths:
        plane.admin.call("DELETE", path)
    until(lambda: not any(plane.admin.find(path) for path in paths))


def _served(controller: Cluster) -> bool:
    """Whether the new kind is served, and the rights are in force."""
    try:
        return controller.get(REQUESTS.replace("namespaces/default/", "")) is not None
    except KubeError:
        return False


@contextmanager
def acting(folder: Path) -> Iterator[Plane]:
    """A control plane with what acts in it: Kubernetes' controllers and its scheduler. Skips where one
    is missing."""
    for name in ("kube-controller-manager", "kube-scheduler"):
        need(name)
    with planes(folder) as plane, plane.controllers(*_CONTROLLERS), plane.scheduler():
        yield plane
