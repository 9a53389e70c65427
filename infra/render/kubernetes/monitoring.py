"""Where Prometheus keeps its figures: a folder on the first master, which is always there.

Network file systems will not do for it (Prometheus, "Storage": "NFS filesystems (including AWS's EFS) are not
supported"). Without that master there are no figures until it is back; the cluster does not need them.
"""

from __future__ import annotations

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.charts.monitoring import STORAGE_CLASS, STORAGE_SIZE
from infra.render.kubernetes.manifests import Documents, filled


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """``storage.yaml``; nothing without Prometheus."""
    plane = cluster.control_plane
    if plane is None or not cluster.kubernetes.has("prometheus"):
        return {}
    first = plane.masters[0].hostname
    return {"storage.yaml": filled("monitoring/storage", name=STORAGE_CLASS, size=STORAGE_SIZE, master=first)}
