"""Lists the AMIs of each image: region, age, age of the base image, and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from infra.drive.aws import Aws, aws_errors
from infra.drive.images import amis
from infra.drive.images.amis import INPUTS, SOURCE, Ami
from infra.drive.images.usage import Use, uses
from infra.model.machines import Image

State: TypeAlias = Literal["current", "changed", "not baked", "gone"]
"""Baked from the current inputs; from earlier inputs; no AMI in the lock file; the locked AMI does not
exist."""


@dataclass(frozen=True, slots=True)
class Row:
    """An image in a region."""

    image: str
    site: str
    region: str
    ami: str | None
    """The AMI in the lock file."""
    state: State
    created: datetime | None
    base: str | None
    """The AMI it was built on."""
    base_created: datetime | None
    """When the base AMI was published: its packages are as of then, except those that the bake updated."""
    newer_base: datetime | None
    """When the newest base AMI was published, if it is another one."""
    users: tuple[str, ...]
    """What launches instances of it."""
    instances: int
    """The number of running instances of it."""
    behind: int
    """The number of instances of older AMIs of the image."""


def rows(
    aws: Aws,
    image: Image,
    sites: Mapping[str, str],
    digest: str,
    newest: Ami,
    pools: Mapping[str, tuple[str, ...]],
) -> list[Row]:
    """One row per site. ``sites``: AWS site → region; ``digest``: the hash of the image's current inputs;
    ``newest``: the newest source AMI; ``pools``: AWS site → the users of this image in the spec."""
    regions = sorted(set(sites.values()))
    found = amis.ours(aws, regions, image=image.name)
    used = uses(aws, regions)
    published = _published(aws, newest, found)
    return [
        _row(image, site, region, digest, newest, found[region], used[region], pools.get(site, ()), published)
        for site, region in sites.items()
    ]


def _row(
    image: Image, site: str, region: str, digest: str, newest: Ami, amis: tuple[Ami, ...], used: tuple[Use,
    ...], pools: tuple[str, ...], published: Mapping[str, datetime],
) -> Row:  # fmt: skip
    locked = image.ids.get(site)
    there = next((one for one in amis if one.id == locked), None)
    older = {one.id for one in amis} - {locked}
    base = there.tags.get(SOURCE) if there else None
    state: State = "gone"
    if locked is None:
        state = "not baked"
    elif there is not None and there.state == "available":
        state = "current" if there.tags.get(INPUTS) == digest else "changed"
    launching = tuple(str(use) for use in used if use.ami == locked and use.kind == "group") if locked else ()
    running = [use.ami for use in used if use.kind == "instance"]
    return Row(
        image=image.name,
        site=site,
        region=region,
        ami=locked,
        state=state,
        created=there.created if there else None,
        base=base,
        base_created=published.get(base) if base else None,
        newer_base=newest.created if base and base != newest.id else None,
        users=tuple(dict.fromkeys((*pools, *launching))),
        instances=running.count(locked) if locked else 0,
        behind=sum(ami in older for ami in running),
    )


def _published(aws: Aws, newest: Ami, found: Mapping[str, tuple[Ami, ...]]) -> dict[str, datetime]:
    """Source AMI → publication date; Canonical removes old AMIs after some years."""
    bases = {one.tags[SOURCE] for amis in found.values() for one in amis if SOURCE in one.tags} - {newest.id}
    published = {newest.id: newest.created}
    if bases:
        with aws_errors(
            f"look for source images in {newest.region}", needs=("ec2:DescribeImages",), quoting=True
        ):
            # By a filter, as the id of an AMI that no longer exists would be an error.
            answer = aws.client("ec2", newest.region).describe_images(
                Filters=[{"Name": "image-id", "Values": sorted(bases)}]
            )
        published |= {row["ImageId"]: amis.ami(row, newest.region).created for row in answer["Images"]}
    return published
