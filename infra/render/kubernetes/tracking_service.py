"""MLflow's address, for its own objects and for clients."""

from __future__ import annotations

from typing import Any, Final

from infra.model import Cluster, Outputs

NAME: Final = "mlflow"
NAMESPACE: Final = "mlflow"
PORT: Final = 5000

DATABASE: Final = "database"
"""The StatefulSet and Service of a database in a pod."""
SECRET: Final = "database"  # noqa: S105 - a name
"""The Secret that ``invoke cluster.up`` creates: ``password`` of the database's user."""
AUTHORITIES: Final = "authorities.pem"
"""The Secret's key with the CA certificates of an RDS database."""


def is_served(cluster: Cluster, outputs: Outputs) -> bool:
    """Whether MLflow is available: with a database at AWS, once that is applied."""
    tracking = cluster.tracking
    return tracking is not None and (tracking.managed is None or bool(outputs.tracking_database))


def offer(cluster: Cluster, outputs: Outputs) -> dict[str, Any]:
    """The field ``tracking`` for the client; empty if MLflow is disabled."""
    if not is_served(cluster, outputs):
        return {}
    url = f"http://{NAME}.{NAMESPACE}.svc:{PORT}"
    return {"tracking": {"url": url, "namespace": NAMESPACE, "service": NAME, "port": PORT}}
