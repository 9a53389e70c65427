"""The Kubernetes cluster's settings."""

from __future__ import annotations

from infra.model import kubernetes as made
from infra.spec import Spec


def resolve_kubernetes(spec: Spec) -> made.Kubernetes:
    """The cluster's settings."""
    written = spec.kubernetes
    return made.Kubernetes(
        version=written.version,
        backend=written.pods.backend,
        pods_per_node=written.pods.pods_per_node,
        labels=dict(sorted(written.labels.items())),
        priority_classes=tuple(
            made.PriorityClass(name, each.value, each.gpu_class, each.preempts)
            for name, each in sorted(written.priority_classes.items())
        ),
        addons=tuple(
            made.AddOn(name, each.enabled, each.version, dict(sorted(each.values.items())))
            for name, each in sorted(written.addons.items())
        ),
        audit=written.audit,
        snapshot_seconds=written.snapshots,
    )
