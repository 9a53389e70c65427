"""Monitoring of our components: scrape targets, alerts, prices, dashboards."""

from __future__ import annotations

from typing import Final

import yaml

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.charts.monitoring import DASHBOARDS, FOLDER, NAMESPACE
from infra.render.kubernetes.manifests import SYSTEM, Documents, Manifest, Object, filled, joined, of
from infra.render.kubernetes.nodes import is_scaled
from infra.render.templating import copied

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_ALERTS: Final = "alerts/"
_BOARDS: Final = "dashboards/"
_OURS: Final = "Causeway"

_NEEDS: Final = {
    "certificates": "cert-manager",
    "gpus": "dcgm-exporter",
    "queues": "kueue",
}
"""Alerts and dashboards → the add-on whose metrics they use."""

_PORTS: Final = {"dcgm-exporter": "metrics", "node-problem-detector": "exporter"}
"""DaemonSets of charts → the name of their metrics port."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``monitors.yaml``, ``rules.yaml`` and ``dashboards.yaml``; nothing without Prometheus."""
    if not cluster.kubernetes.has("prometheus"):
        return {}
    return {
        "monitors.yaml": _monitors(cluster),
        "rules.yaml": [*_alerts(cluster), _prices(cluster), _intervals(cluster)],
        "dashboards.yaml": _dashboards(cluster) if cluster.kubernetes.has("grafana") else [],
    }


def _about(cluster: Cluster, name: str) -> bool:
    """Whether the cluster has the component that alerts or dashboards are about."""
    if name == "autoscaler":
        return is_scaled(cluster)
    if name == "tracking":
        return cluster.tracking is not None
    gateways, servers = bool(cluster.gateways), bool(cluster.access.vpn.servers)
    network = {"gateways": gateways, "remote-access": servers, "private-network": gateways or servers}
    if name in network:
        return network[name]
    return name not in _NEEDS or cluster.kubernetes.has(_NEEDS[name])


def _monitors(cluster: Cluster) -> Manifest:
    found = {name: cluster.kubernetes.addon(name) for name in _PORTS}
    agents = {name: each.chart.namespace for name, each in found.items() if each and each.chart}
    agents |= {"autoscaler": SYSTEM} if is_scaled(cluster) else {}
    return joined(
        filled("after/watching/monitor", name=name, namespace=namespace, port=_PORTS.get(name, "metrics"))
        for name, namespace in agents.items()
    )


def _alerts(cluster: Cluster) -> list[Object]:
    return [
        _rules(name, yaml.load(text, Loader=_LOADER)["groups"])  # noqa: S506 - a safe loader
        for path, text in copied("kubernetes").items()
        if path.startswith(_ALERTS)
        and _about(cluster, name := path.removeprefix(_ALERTS).removesuffix(".yaml"))
    ]


def _prices(cluster: Cluster) -> Object:
    """The hourly on-demand price of a node of each pool; Spot Instances cost less."""
    prices = [
        {
            "record": "causeway:node_price:dollars_per_hour",
            "expr": f"vector({group.hourly_price})",
            "labels": {"pool": pool.name, "site": group.site},
        }
        for pool in cluster.pools
        for group in pool.groups
        if group.hourly_price is not None
    ]
    return _rules("prices", [{"name": "prices", "interval": "5m", "rules": prices}])


def _intervals(cluster: Cluster) -> Object:
    """The expected intervals of periodic tasks, for alerts on missed ones."""
    copies = {
        "record": "causeway:etcd_snapshot:interval_seconds",
        "expr": f"vector({cluster.kubernetes.snapshot_seconds})",
    }
    return _rules("intervals", [{"name": "intervals", "rules": [copies]}])


def _rules(name: str, groups: list[Object]) -> Object:
    return of(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        f"causeway-{name}",
        namespace=NAMESPACE,
        spec={"groups": groups},
    )


def _dashboards(cluster: Cluster) -> list[Object]:
    return [
        of(
            "v1",
            "ConfigMap",
            f"dashboard-{name}",
            namespace=NAMESPACE,
            labels={DASHBOARDS: "1"},
            annotations={FOLDER: _OURS},
            data={f"{name}.json": text},
        )
        for path, text in copied("kubernetes").items()
        if path.startswith(_BOARDS)
        and _about(cluster, name := path.removeprefix(_BOARDS).removesuffix(".json"))
    ]
