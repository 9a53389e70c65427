"""Kubernetes: what kubeadm is told, and every object of the cluster that is ours.

::

    kubernetes/
      kustomization.yaml        every part that is applied, in order: `kubectl apply --server-side -k`
      <part>/                   one part: its objects in a few files, and a kustomization of its own
      kubeadm/                  configuration of masters, workers and kubelets; read by kubeadm, not applied
      charts/                   Helm releases: what is installed, from where, and with which values
      after/                    parts of kinds that charts bring: applied like the others, after the charts

A part is a row of ``APPLIED`` or ``AFTER``, which give objects, or of ``READ``, which give text, and a module
here of its name, or a function in one of ``SHARED``. Objects that no cluster changes, or in a few values, are
YAML below ``templates/kubernetes``.
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
"""Parts that give objects, in the order in which they are applied."""

AFTER: Final[tuple[str, ...]] = (
    "features",
    "pages",
    "watching",
    "grafana",
    "queues",
)
"""Parts whose objects are of kinds that charts bring, in the order in which they are applied."""

SHARED: Final[Mapping[str, frozenset[str]]] = {
    "access": frozenset({"access", "joining", "upgrades"}),
    "addon_objects": frozenset({"efa", "features", "grafana", "mirror", "monitoring", "pages"}),
    "guards": frozenset({"guards", "identities"}),
    "pod_network": frozenset({"firewall", "flannel"}),
    "research": frozenset({"sweeps"}),
}
"""Module → the parts whose functions it has. Every other part is a module with a function ``objects``."""

READ: Final[tuple[str, ...]] = ("kubeadm", "charts")
"""Modules whose files are read by other tools than kubectl."""


def objects(part: str, cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """The files of a part, each with its objects; none where the cluster does without it."""
    shared = next((module for module, parts in SHARED.items() if part in parts), None)
    module = import_module(f"infra.render.kubernetes.{shared or part}")
    make: _Applied = getattr(module, part if shared else "objects")
    return make(cluster, outputs)


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """Everything of ``build/<env>/kubernetes/``; nothing for a cluster without a control plane."""
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
    """The folders of parts that have objects, and a kustomization over them in their order."""
    folders: dict[str, Files] = {}
    for part in parts:
        if documents := objects(part, cluster, outputs):
            folders[part] = written(documents)
    return merge([kustomization(list(folders)), *(under(part, files) for part, files in folders.items())])
