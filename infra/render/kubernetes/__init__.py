"""Kubernetes: kubeadm's configuration, and all of the cluster's own objects.

::

    kubernetes/
      kustomization.yaml        every part that is applied, in order: `kubectl apply --server-side -k`
      <part>/                   one part: its objects in a few files, and its own kustomization
      kubeadm/                  configuration of masters, workers and kubelets; read by kubeadm, not applied
      charts/                   Helm releases: charts, repositories, versions and values
      after/                    parts whose CRDs come with charts: applied after the charts

A part is a row of ``APPLIED`` or ``AFTER``, which produce objects, or of ``READ``, which produce text; it is
a module here of the same name, or a function in one of ``SHARED``. Objects that are the same in all
clusters, or differ in a few values, are YAML below ``templates/kubernetes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, kustomization, written


class _Applied(Protocol):
    def __call__(self, cluster: Cluster, outputs: Outputs) -> Documents: ...


class _Read(Protocol):
    def render(self, cluster: Cluster, outputs: Outputs) -> Files: ...


APPLIED: Final[tuple[str, ...]] = (
    "namespaces",
    "joining",
    "firewall",
    "flannel",
    "dns",
    "scheduling",
    "gpu",
    "efa",
    "access",
    "guards",
    "mirror",
    "identities",
    "research",
    "tracking",
    "sweeps",
    "upgrades",
    "volumes",
    "homes",
    "monitoring",
    "autoscaler",
)
"""Parts that produce objects, in the order in which they are applied."""

AFTER: Final[tuple[str, ...]] = (
    "features",
    "pages",
    "watching",
    "grafana",
    "queues",
)
"""Parts whose CRDs come with charts, in the order in which they are applied."""

SHARED: Final[Mapping[str, frozenset[str]]] = {
    "access": frozenset({"access", "joining", "upgrades"}),
    "addon_objects": frozenset({"efa", "features", "grafana", "mirror", "monitoring", "pages"}),
    "guards": frozenset({"guards", "identities"}),
    "pod_network": frozenset({"firewall", "flannel"}),
    "research": frozenset({"sweeps"}),
}
"""Module → the parts that it has functions for. Every other part is a module with a function ``objects``."""

READ: Final[tuple[str, ...]] = ("kubeadm", "charts")
"""Modules whose files are read by other tools than kubectl."""


def objects(part: str, cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """The files of a part with their objects; empty if the cluster does not need it."""
    shared = next((module for module, parts in SHARED.items() if part in parts), None)
    module = import_module(f"infra.render.kubernetes.{shared or part}")
    make: _Applied = getattr(module, part if shared else "objects")
    return make(cluster, outputs)


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """All files of ``build/<env>/kubernetes/``; empty for a cluster without a control plane."""
    if cluster.control_plane is None:
        return {}
    read: dict[str, Files] = {}
    for part in READ:
        reader: _Read = import_module(f"infra.render.kubernetes.{part}")
        read[part] = reader.render(cluster, outputs)
    after = _stage(AFTER, cluster, outputs)
    return merge(
        [
            _stage(APPLIED, cluster, outputs),
            under("after", after) if len(after) > 1 else {},
            *(under(part, files) for part, files in read.items()),
        ]
    )


def _stage(parts: tuple[str, ...], cluster: Cluster, outputs: Outputs) -> Files:
    """The folders of parts that have objects, and a kustomization of them in order."""
    folders: dict[str, Files] = {}
    for part in parts:
        if documents := objects(part, cluster, outputs):
            folders[part] = written(documents)
    return merge([kustomization(list(folders)), *(under(part, files) for part, files in folders.items())])
