"""The Kubernetes cluster's settings."""

from __future__ import annotations

from ipaddress import IPv4Network

from infra.catalogue import releases
from infra.model import kubernetes as made
from infra.resolve.addons import resolve_ingress
from infra.resolve.priorities import priority_classes
from infra.resolve.reservations import EVICTION
from infra.resolve.services import coredns
from infra.schema import Spec


def resolve_kubernetes(
    spec: Spec,
    overlay: made.Overlay,
    egress: made.PodEgress,
    addons: tuple[made.AddOn, ...],
    services: IPv4Network,
) -> made.Kubernetes:
    """The cluster's settings."""
    written = spec.kubernetes
    return made.Kubernetes(
        version=written.version,
        release=_release(written.version, written.patch),
        backend=written.pods.backend,
        overlay=overlay,
        egress=egress,
        pods_per_node=written.pods.pods_per_node,
        eviction=EVICTION,
        labels=dict(sorted(written.labels.items())),
        priority_classes=priority_classes(spec),
        usage_half_life=written.usage_half_life,
        namespaces=made.Namespaces(
            written.namespaces.pods,
            written.namespaces.jobs,
            written.namespaces.cpu,
            written.namespaces.memory,
        ),
        coredns=coredns(services),
        addons=addons,
        alerts=made.Alerts(
            slack=(written.alerts.slack or "").removeprefix("#") or None,
            slack_webhook=written.alerts.slack_webhook,
            webhook=written.alerts.webhook,
        ),
        ingress=resolve_ingress(spec, addons, services),
        audit=written.audit,
        snapshot_seconds=written.snapshots,
        kubeadm_images=tested.kubeadm if (tested := releases.kubernetes(written.version)) else (),
    )


def _release(version: str, patch: int | None) -> str:
    tested = releases.kubernetes(version)
    if patch is None and tested is not None:
        patch = tested.patch
    return version if patch is None else f"{version}.{patch}"
