"""What researchers run on (RES)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from infra.checks.facts import Facts
from infra.checks.registry import Finding, check
from infra.checks.words import meant_one_of
from infra.errors import Level
from infra.spec.addons import RESEARCH

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""Without dots: S3's certificate is for one label."""


@check("RES001", Level.ERROR, "The default image of research is none of its images.", waivable=False)
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
def bucket_names(facts: Facts) -> Iterator[Finding]:
    research = facts.spec.research
    written = {
        ("research", "bucket"): research.bucket if research is not None else None,
        ("kubernetes", "issuer_bucket"): facts.spec.kubernetes.issuer_bucket,
    }
    for path, name in written.items():
        if name is not None and not _BUCKET.fullmatch(name):
            message = f"{name} can't be a bucket's name here"
            yield Finding(path, message, "3 to 63 lower-case letters, digits and hyphens")
