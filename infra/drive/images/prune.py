"""Which images can be deleted: ``decide``, from the AMIs, the lock files and their users; then ``remove``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from infra.drive.aws import Aws, aws_errors, each_region
from infra.drive.images.amis import BAKE, Ami
from infra.drive.images.journal import Entry, begun
from infra.drive.images.usage import Use

STALE: Final = timedelta(hours=6)
"""A bake that began earlier is over, whether or not it failed."""

_NEEDS: Final = ("ec2:DeregisterImage", "ec2:DeleteSnapshot")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one bake's AMIs are kept: in all regions or in none."""

    bake: str
    image: str
    created: datetime
    amis: tuple[Ami, ...]
    stays: bool
    why: str
    """``used by group research-us-west-2-gpu (us-west-2)``, ``one of the 3 newest``, ``nobody uses it``."""


def decide(
    found: Mapping[str, Sequence[Ami]],
    locked: Mapping[str, str],
    used: Mapping[str, Sequence[Use]],
    keep: int,
) -> list[Verdict]:
    """Verdicts by image, newest first.

    ``found``: region → our AMIs; ``locked``: AMI → the lock file that holds it; ``used``: region → uses;
    ``keep``: how many of the newest of each image stay in any case.
    """
    bakes: dict[tuple[str, str], list[Ami]] = {}
    for amis in found.values():
        for one in amis:
            bakes.setdefault((one.image, one.tags.get(BAKE, one.id)), []).append(one)
    users = {use.ami: use for uses in used.values() for use in uses}
    verdicts = []
    seen: dict[str, int] = {}
    for (image, bake), amis in sorted(bakes.items(), key=lambda item: _age(item[1]), reverse=True):
        seen[image] = seen.get(image, 0) + 1
        lock = next((locked[one.id] for one in amis if one.id in locked), "")
        use = next((users[one.id] for one in amis if one.id in users), None)
        if lock:
            stays, why = True, f"locked in {lock}"
        elif use:
            stays, why = True, f"used by {use} ({use.region})"
        elif seen[image] <= keep:
            stays, why = True, f"one of the {keep} newest" if keep > 1 else "the newest"
        else:
            stays, why = False, "not in use"
        amis.sort(key=lambda one: one.region)
        verdicts.append(Verdict(bake, image, _age(amis), tuple(amis), stays, why))
    return sorted(verdicts, key=lambda verdict: verdict.image)


def _age(amis: Iterable[Ami]) -> datetime:
    return min(one.created for one in amis)


def remove(aws: Aws, verdicts: Iterable[Verdict]) -> tuple[int, int]:
    """Deregister the AMIs that are not kept, and delete their snapshots; returns the numbers of both."""
    going: dict[str, list[Ami]] = {}
    for verdict in verdicts:
        if not verdict.stays:
            for one in verdict.amis:
                going.setdefault(one.region, []).append(one)

    def work(region: str) -> tuple[int, int]:
        ec2 = aws.client("ec2", region)
        snapshots = 0
        with aws_errors(f"remove images in {region}", needs=_NEEDS, quoting=True):
            for one in going[region]:
                ec2.deregister_image(ImageId=one.id)
                for snapshot in one.snapshots:
                    ec2.delete_snapshot(SnapshotId=snapshot)
                    snapshots += 1
        return len(going[region]), snapshots

    done = each_region(going, work)
    return sum(amis for amis, _ in done.values()), sum(snapshots for _, snapshots in done.values())


def strays(aws: Aws, regions: Sequence[str], environment: str, now: datetime) -> list[Entry]:
    """Bakes of the environment that are over and left resources in the build region."""
    ec2 = aws.client("ec2", regions[0])
    filters = [
        {"Name": "tag-key", "Values": [BAKE]},
        {"Name": "tag:environment", "Values": [environment]},
    ]
    ids: set[str] = set()
    with aws_errors(f"look for what bakes left in {regions[0]}", needs=("ec2:Describe*",), quoting=True):
        rows = [
            *ec2.describe_security_groups(Filters=filters)["SecurityGroups"],
            *ec2.describe_key_pairs(Filters=filters)["KeyPairs"],
            *ec2.describe_volumes(Filters=filters)["Volumes"],
            *ec2.describe_launch_templates(Filters=filters)["LaunchTemplates"],
        ]
        living = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
        for reservation in ec2.describe_instances(Filters=[*filters, living])["Reservations"]:
            rows += reservation["Instances"]
    for row in rows:
        ids |= {tag["Value"] for tag in row.get("Tags", []) if tag["Key"] == BAKE}
    over = [bake for bake in ids if (began := begun(bake)) is None or now - began > STALE]
    return [Entry(bake, "", "", regions[0], tuple(regions)) for bake in sorted(over)]
