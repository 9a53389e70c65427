"""A Helm release, and what the values of several have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.catalogue.addons import Chart
from infra.model import Cluster
from infra.render.kubernetes.manifests import Object

MASTER: Final = "node-role.kubernetes.io/control-plane"
"""kubeadm's label of masters, and their taint."""

ON_MASTERS: Final[Object] = {
    "nodeSelector": {MASTER: ""},
    "tolerations": [{"key": MASTER, "operator": "Exists", "effect": "NoSchedule"}],
}
"""Where the cluster's own controllers run: on machines that are always there, while pools may be empty."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release: its chart and the values that it is installed with."""

    name: str
    chart: Chart
    values: dict[str, Any]
    timeout: str = "10m"
    """How long its objects may take to be there, in Go's form."""

    @property
    def file(self) -> str:
        """Where its values are, below ``charts/``."""
        return f"{self.name}/values.yaml"

    def row(self) -> dict[str, str]:
        """Its line in ``releases.yaml``."""
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
    """The release of an add-on, the spec's values over ours; none where it is off."""
    found = cluster.kubernetes.addon(addon)
    if found is None or found.chart is None:
        return []
    return [Release(name or found.chart.name, found.chart, merged(values, found.values))]


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings key by key; anything else of ``theirs`` replaces ours."""
    found = dict(ours)
    for key, value in theirs.items():
        here = found.get(key)
        if isinstance(here, Mapping) and isinstance(value, Mapping):
            found[key] = merged(here, value)
        else:
            found[key] = value
    return found
