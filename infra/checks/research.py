"""What researchers run on (RES)."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalogue import limits
from infra.checks.facts import Facts
from infra.checks.phrases import meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level
from infra.schema import defaults
from infra.schema.addons import RESEARCH


@check("RES001", Level.ERROR, "The default image of research is not one of its images.", waivable=False)
def default_image(facts: Facts) -> Iterator[Finding]:
    research = facts.spec.research
    if research is not None and research.default_image not in research.images:
        message = f"{research.default_image} is not an image of research.images"
        hint = meant_one_of(research.default_image, research.images)
        yield Finding(("research", "default_image"), message, hint)


@check("RES002", Level.ERROR, "Research without a cluster in AWS, where its store is.", waivable=False)
def no_cluster(facts: Facts) -> Iterator[Finding]:
    if facts.spec.research is not None and not facts.places:
        yield Finding(
            ("research",), "the store of code is an S3 bucket", "add an AWS site, or take research out"
        )


@check("RES003", Level.ERROR, "Research without an add-on that its jobs are made of.", waivable=False)
def missing_addon(facts: Facts) -> Iterator[Finding]:
    for name in RESEARCH if facts.spec.research is not None else ():
        stated = facts.spec.kubernetes.addons.get(name)
        if stated is not None and not stated.enabled:
            message = f"research needs the add-on {name}"
            yield Finding(
                ("kubernetes", "addons", name, "enabled"), message, "turn it on, or take research out"
            )


@check(
    "RES004",
    Level.ERROR,
    "The bucket of research or of the cluster's issuer has a name that S3 or its certificate refuses.",
    waivable=False,
)
def names_of_buckets(facts: Facts) -> Iterator[Finding]:
    research = facts.spec.research
    written = {
        ("research", "bucket"): research.bucket if research is not None else None,
        ("kubernetes", "issuer_bucket"): facts.spec.kubernetes.issuer_bucket,
    }
    for path, name in written.items():
        why = limits.refused_bucket_name(name) if name is not None else ""
        if name is not None and not why and "." in name:
            why = "AWS's certificate does not cover a bucket with dots in its name"
        if why:
            message = f"{name} can't be a bucket's name here: {why}"
            yield Finding(path, message, "3 to 63 lower-case letters, digits and hyphens")


@check(
    "RES005",
    Level.ERROR,
    "An issuer of tokens is named twice, or AWS does not have it in the cluster's partition.",
    waivable=False,
)
def issuers(facts: Facts) -> Iterator[Finding]:
    stated = facts.spec.kubernetes.issuers
    path = ("kubernetes", "issuers")
    for each in sorted({each for each in stated if stated.count(each) > 1}):
        yield Finding(path, f"{each} is named twice", "each issuer once, the one that signs first")
    partition = defaults.partition_of(facts.spec)
    if "cloudfront" in stated and partition != "aws":
        message = f"CloudFront has no domains of its own in the partition {partition}"
        yield Finding(path, message, "serve the keys from the bucket: issuers: [s3]")


@check("RES006", Level.ERROR, "Tracking without the accounts and the bucket of research.", waivable=False)
def tracking_alone(facts: Facts) -> Iterator[Finding]:
    if facts.spec.kubernetes.tracking is not None and facts.spec.research is None:
        message = "runs log as the account that research gives each namespace, and artifacts go to its bucket"
        yield Finding(("kubernetes", "tracking"), message, "add research, or take tracking out")


@check("RES007", Level.ERROR, "A database at RDS in a region that uses one zone.", waivable=False)
def one_zone(facts: Facts) -> Iterator[Finding]:
    tracking = facts.spec.kubernetes.tracking
    if tracking is None or tracking.database != "rds":
        return
    primary = facts.places.get(defaults.primary_of(facts.spec) or "")
    if primary is not None and len(primary.zones) == 1:
        message = f"RDS wants subnets in two zones, and {primary.name} uses {primary.zones[0]} alone"
        yield Finding(("kubernetes", "tracking", "database"), message, "use another zone, or database: pod")
