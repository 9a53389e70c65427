"""A Helm release, and values that several releases share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.catalogue.addons import Chart
from infra.model import Cluster
from infra.render.kubernetes.manifests import Object

MASTER: Final = "node-role.kubernetes.io/control-plane"
"""kubeadm's label and taint of masters."""

ON_MASTERS: Final[Object] = {
    "nodeSelector": {MASTER: ""},
    "tolerations": [{"key": MASTER, "operator": "Exists", "effect": "NoSchedule"}],
}
"""The placement of the cluster's own controllers: on masters, which are permanent, while pools may be
empty."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release: its chart and values."""

    name: str
    chart: Chart
    values: dict[str, Any]
    timeout: str = "10m"
    """The timeout for creating its objects, in Go's format."""

    @property
    def file(self) -> str:
        """The path of its values, below ``charts/``."""
        return f"{self.name}/values.yaml"

    def row(self) -> dict[str, str]:
        """Its entry in ``releases.yaml``."""
        return {
            "name": self.name,
            "namespace": self.chart.namespace,
            "chart": self.chart.name,
            "version": self.chart.version,
            "repository": self.chart.repository,
            "values": self.file,
            "timeout": self.timeout,
        }


def of(cluster: Cluster, addon: str, values: dict[str, Any], *, name: str = "") -> list[Release]:
    """The release of an add-on, with the spec's values merged over ours; empty if it is disabled."""
    found = cluster.kubernetes.addon(addon)
    if found is None or found.chart is None:
        return []
    return [Release(name or found.chart.name, found.chart, merged(values, found.values))]


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """``theirs`` merged over ``ours``: mappings are merged by key; any other value is replaced."""
    found = dict(ours)
    for key, value in theirs.items():
        here = found.get(key)
        if isinstance(here, Mapping) and isinstance(value, Mapping):
            found[key] = merged(here, value)
        else:
            found[key] = value
    return found
