"""Who may open Grafana: everybody of the spec, by ``kubectl port-forward`` to its pod and to no other.

Prometheus and Alertmanager are for who runs the cluster, who may do everything anyway (``access``).
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import rights
from infra.render.kubernetes.charts.monitoring import GRAFANA, GRAFANA_POD, NAMESPACE
from infra.render.kubernetes.manifests import Documents
from infra.render.kubernetes.tenants import subject

_NAME: Final = f"open-{GRAFANA}"


def is_there(cluster: Cluster) -> bool:
    """Whether the cluster has Grafana: it comes with Prometheus."""
    return cluster.kubernetes.has("prometheus", "grafana")


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``access.yaml``; nothing without Grafana, or without people."""
    if not (is_there(cluster) and cluster.access.users):
        return {}
    pod = {"apiGroups": [""], "resourceNames": [GRAFANA_POD]}
    rules = [
        # kubectl looks first whether it runs.
        {**pod, "resources": ["pods"], "verbs": ["get"]},
        {**pod, "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ]
    everybody = [subject(user) for user in cluster.access.users]
    return {"access.yaml": rights.within(NAMESPACE, _NAME, rules, everybody)}
