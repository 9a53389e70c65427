"""Where MLflow is found, for itself and for who tells others of it."""

from __future__ import annotations

from typing import Any, Final

from infra.model import Cluster, Outputs

NAME: Final = "mlflow"
NAMESPACE: Final = "mlflow"
PORT: Final = 5000

DATABASE: Final = "database"
"""The StatefulSet and service of a database in a pod."""
SECRET: Final = "database"  # noqa: S105 - a name
"""The Secret that ``invoke cluster.up`` brings: ``password``, of the database's user."""
AUTHORITIES: Final = "authorities.pem"
"""Its key for who signs the certificate of a database at RDS."""


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
