"""Where MLflow is found, for itself and for who tells others of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.model import Cluster, Outputs
from infra.render.kubernetes.manifests import Object, of

NAME: Final = "mlflow"
NAMESPACE: Final = "mlflow"
PORT: Final = 5000


def is_served(cluster: Cluster, outputs: Outputs) -> bool:
    """Whether MLflow is there: with a database at AWS, once that is applied."""
    tracking = cluster.tracking
    return tracking is not None and (tracking.managed is None or bool(outputs.tracking_database))


def offer(cluster: Cluster, outputs: Outputs) -> dict[str, Any]:
    """What researchers' program knows of it: the field ``tracking``; nothing where it is off."""
    if not is_served(cluster, outputs):
        return {}
    url = f"http://{NAME}.{NAMESPACE}.svc:{PORT}"
    return {"tracking": {"url": url, "namespace": NAMESPACE, "service": NAME, "port": PORT}}


def service(name: str, port: int, labels: Mapping[str, str]) -> Object:
    """A service of the namespace, before the pods with these labels."""
    return of(
        "v1",
        "Service",
        name,
        namespace=NAMESPACE,
        labels=labels,
        spec={"selector": dict(labels), "ports": [{"name": "main", "port": port, "targetPort": port}]},
    )
