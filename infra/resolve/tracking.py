"""MLflow, its database, and where its artifacts are."""

from __future__ import annotations

from typing import Final

from infra.model import tracking as made
from infra.model.names import named, thing_tags
from infra.model.places import Region
from infra.schema.tracking import Tracking

_MIB: Final = 1024
_GROWTH: Final = 5


def resolve_tracking(written: Tracking, environment: str, primary: Region) -> made.Tracking:
    """In the primary region, beside the masters that it runs on."""
    return made.Tracking(
        image=written.image,
        replicas=written.replicas,
        thin_after_days=written.thin_after_days,
        role=named("iam-role", environment, "mlflow"),
        storage_gib=written.storage // _MIB,
        managed=_managed(written, environment, primary) if written.database == "rds" else None,
    )


def _managed(written: Tracking, environment: str, primary: Region) -> made.ManagedDatabase:
    size = written.storage // _MIB
    return made.ManagedDatabase(
        name=named("db-instance", environment, "mlflow"),
        site=primary.name,
        region=primary.region,
        subnets=tuple(subnet.name for subnet in primary.tier("private")),
        instance_class=written.instance_class,
        storage_gib=size,
        storage_limit_gib=_GROWTH * size,
        multi_az=written.multi_az,
        backup_days=written.backup_days,
        tags=thing_tags(primary.name, "mlflow"),
    )
