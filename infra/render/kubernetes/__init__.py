"""Kubernetes: what kubeadm is told, and every object of the cluster that is ours.

::

    kubernetes/
      kustomization.yaml        every part that is applied, in order: `kubectl apply --server-side -k`
      <part>/                   one part: its objects in a few files, and a kustomization of its own
      kubeadm/                  configuration of masters, workers and kubelets; read by kubeadm, not applied
      charts/                   Helm releases: what is installed, from where, and with which values
      after/                    parts of kinds that charts bring: applied like the others, after the charts

A part is a module here and a row of ``APPLIED`` or ``AFTER``, which give objects, or of ``READ``, which give
text. Objects that no cluster changes, or in a few values, are YAML below ``templates/kubernetes``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, kustomization, written


class _Applied(Protocol):
    def objects(self, cluster: Cluster, outputs: Outputs) -> Documents: ...


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
"""Modules that give objects, in the order in which they are applied."""

AFTER: Final[tuple[str, ...]] = (
    "features",
    "pages",
    "watching",
    "grafana",
    "queues",
)
"""Modules whose objects are of kinds that charts bring, in the order in which they are applied."""

READ: Final[tuple[str, ...]] = ("kubeadm", "charts")
"""Modules whose files are read by other tools than kubectl."""


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
        module: _Applied = import_module(f"infra.render.kubernetes.{part}")
        if documents := module.objects(cluster, outputs):
            folders[part] = written(documents)
    return merge([kustomization(list(folders)), *(under(part, files) for part, files in folders.items())])
