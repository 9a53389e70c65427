"""Settings of research runs, the bucket of their code, and MLflow with its database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.catalogue import prices
from infra.model import research as made
from infra.model.names import bucket_name, identifier, named, thing_tags
from infra.model.places import PhysicalSite, Region
from infra.model.platform import Bucket
from infra.schema import Spec
from infra.schema.research import Research, Tracking

WORK: Final = "research.work"
"""The key of the bucket. Buckets in a spec cannot have a dot in their name."""
CODE: Final = "code/"
"""The prefix of code, with a folder per namespace."""
RUNS: Final = "runs/"
"""The prefix of output and results, with a folder per namespace."""


def resolve_work(spec: Spec, written: Research, environment: str, primary: Region) -> Bucket:
    """The bucket of code, in the primary region."""
    return Bucket(
        name=WORK,
        bucket=written.bucket or bucket_name(environment, "work", *_owner(spec, WORK)),
        key=identifier(WORK),
        site=primary.name,
        path=None,
        read_only=False,
        volumes=False,
        # Objects are never overwritten with other contents: their names are digests.
        versions_days=7,
        archive_days=None,
        expire={
            CODE: written.code.keep_days,
            **({RUNS: written.runs.keep_days} if written.runs.keep_days is not None else {}),
        },
        tags=thing_tags(primary.name, "research"),
    )


def resolve_research(
    written: Research, regions: Sequence[Region], sites: Sequence[PhysicalSite]
) -> made.Research:
    """Images, limits and prices. ``regions``: the primary one first."""
    return made.Research(
        tools=written.tools,
        images=tuple(
            made.ResearchImage(name, each.image, each.launcher)
            for name, each in sorted(written.images.items())
        ),
        default_image=written.default_image,
        code_limit_mib=written.code.limit,
        code_keep_days=written.code.keep_days,
        usd_per_gb=_usd_per_gb(regions, sites),
    )


def _usd_per_gb(regions: Sequence[Region], sites: Sequence[PhysicalSite]) -> dict[str, float]:
    store = regions[0]
    found = {site.name: prices.unit("internet_out_gb", store.region) for site in sites}
    found |= {each.name: prices.unit("region_out_gb", store.region) for each in regions}
    found[store.name] = 0.0
    return {name: price for name, price in found.items() if price is not None}


def _owner(spec: Spec, thing: str) -> tuple[str, ...]:
    return (spec.name, spec.domain, spec.aws.account or "", thing)


_MIB: Final = 1024
_GROWTH: Final = 5


def resolve_tracking(written: Tracking, environment: str, primary: Region) -> made.Tracking:
    """MLflow's settings, in the primary region beside the masters."""
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
