"""Helm releases: charts, repositories, versions and values.

::

    charts/
      releases.yaml         a list, in the order of installation
      <release>/values.yaml
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from infra.files import Files
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.charts import certificates, ingress, monitoring, nodes, queues, storage
from infra.render.kubernetes.charts.release import Release
from infra.render.kubernetes.manifests import to_yaml


class _Part(Protocol):
    def releases(self, cluster: Cluster) -> list[Release]: ...


_PARTS: Final[tuple[_Part, ...]] = (monitoring, certificates, nodes, queues, ingress, storage)
"""Monitoring comes first, as it has the CRDs with which all others declare their metrics."""


def render(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Files:
    """``releases.yaml`` and the values of each release."""
    releases = [release for part in _PARTS for release in part.releases(cluster)]
    rows: Any = [release.row() for release in releases]
    return {
        "releases.yaml": to_yaml([rows]),
        **{release.file: to_yaml([release.values]) for release in releases},
    }


def values(cluster: Cluster) -> Mapping[str, Mapping[str, Any]]:
    """Release → its values."""
    return {release.name: release.values for part in _PARTS for release in part.releases(cluster)}
