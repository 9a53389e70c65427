"""AWS's limits: lengths of names, sizes of blocks, counts of resources.

Generated names are shortened by ``infra.model.names``; names in a spec are refused by checks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from infra.shipped_files import ROOT


@dataclass(frozen=True, slots=True)
class NameLimit:
    """AWS's limit for names of a kind."""

    characters: int
    """The maximum."""
    least: int = 1
    source: str = ""


_ELB: Final = "https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference"
_EC2: Final = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"
_IAM: Final = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"
_ASG: Final = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference"
_S3: Final = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_TAGS: Final = "https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"
_RDS: Final = "https://docs.aws.amazon.com/AmazonRDS/latest/APIReference"
_DNS: Final = "RFC 1035, 2.3.4"

NAMES: Final[dict[str, NameLimit]] = {
    "auto-scaling-group": NameLimit(255, source=f"{_ASG}/API_CreateAutoScalingGroup.html"),
    "db-instance": NameLimit(63, source=f"{_RDS}/API_CreateDBInstance.html"),
    "dns-label": NameLimit(63, source=_DNS),
    "dns-name": NameLimit(253, source=_DNS),
    "iam-instance-profile": NameLimit(128, source=_IAM),
    "iam-policy": NameLimit(128, source=_IAM),
    "iam-role": NameLimit(64, source=_IAM),
    "launch-configuration": NameLimit(255, source=f"{_ASG}/API_CreateLaunchConfiguration.html"),
    "launch-template": NameLimit(128, 3, source=f"{_EC2}/API_CreateLaunchTemplate.html"),
    "lifecycle-hook": NameLimit(255, source=f"{_ASG}/API_PutLifecycleHook.html"),
    "load-balancer": NameLimit(32, source=f"{_ELB}/API_CreateLoadBalancer.html"),
    "placement-group": NameLimit(255, source=f"{_EC2}/API_CreatePlacementGroup.html"),
    "s3-bucket": NameLimit(63, 3, source=_S3),
    "security-group": NameLimit(255, source=f"{_EC2}/API_CreateSecurityGroup.html"),
    "security-group-description": NameLimit(255, source=f"{_EC2}/API_CreateSecurityGroup.html"),
    "tag-key": NameLimit(128, source=_TAGS),
    "tag-value": NameLimit(256, 0, source=_TAGS),
    "target-group": NameLimit(32, source=f"{_ELB}/API_CreateTargetGroup.html"),
}
"""Kind of resource → the limit of its name."""

TAGS_PER_RESOURCE: Final = 50
"""https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"""

VPC_PREFIXES: Final = range(16, 29)
"""Prefix lengths of VPCs and subnets, /16 to /28
(https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html)."""

RESERVED_PER_SUBNET: Final = 5
"""Addresses that AWS reserves in a subnet
(https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html)."""


_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]+[a-z0-9]")
_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+")
_STARTS: Final = ("xn--", "sthree-", "amzn-s3-demo-")
_ENDS: Final = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def refused_bucket_name(name: str) -> str:
    """Why S3 does not accept a bucket name, or the empty string (S3 User Guide, "General purpose bucket
    naming rules", https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html)."""
    least, most = NAMES["s3-bucket"].least, NAMES["s3-bucket"].characters
    if not least <= len(name) <= most:
        return f"it has {len(name)} characters, and may have {least} to {most}"
    if not _BUCKET_NAME.fullmatch(name):
        return "lower-case letters, digits, dots and hyphens, with a letter or digit at both ends"
    if ".." in name or _ADDRESS.fullmatch(name):
        return "two dots in a row" if ".." in name else "it looks like an address"
    kept = [f"begin with {start}" for start in _STARTS if name.startswith(start)]
    kept += [f"end with {end}" for end in _ENDS if name.endswith(end)]
    return f"AWS keeps names that {kept[0]} for itself" if kept else ""


POLICY_CHARACTERS: Final = 10_240
"""Characters, without white space, of all inline policies of a role together
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html, "Role policies")."""

_ENTRY: Final = 3
"""The quotes and comma of an entry in a JSON list."""
_BUCKET: Final = len("arn:aws:s3:::") + _ENTRY
_NODES: Final = 1_052
"""Secrets, file systems, and calls of EC2 and Auto Scaling, if the names of cluster and environment have
three letters."""
_CONDITIONS: Final = 4
"""The number of lists of all regions among them."""
_BUCKETS: Final = 458
_KEYS: Final = 190
_SERVICE: Final = len("s3..amazonaws.com") + _ENTRY


def policy_characters(
    regions: Iterable[str], buckets: Iterable[tuple[str, bool]], keys: Iterable[str]
) -> int:
    """The approximate number of characters of a cluster's node policies.

    The constant part is measured on plans of ``modules/identity`` (``tests/templates``).

    ``buckets``: name, and whether nodes may only read it. ``keys``: ARNs of the buckets' keys.
    """
    regions, keys = tuple(regions), tuple(keys)
    size = _NODES + _CONDITIONS * sum(len(region) + _ENTRY for region in regions)
    named = [(len(name) + _BUCKET, read_only) for name, read_only in buckets]
    # The bucket and, with "/*", its objects: once for reading, once for writing.
    size += sum((2 if read_only else 4) * (length + 1) for length, read_only in named)
    size += _BUCKETS if named else 0
    if keys:
        size += _KEYS + sum(len(key) + _ENTRY for key in keys)
        size += sum(len(region) + _SERVICE for region in regions)
    return size


_MODULE: Final = ROOT / "templates" / "terraform" / "modules" / "network" / "security_groups.tf"
_GROUP: Final = re.compile(r"\bgroup\s*=\s*\"([a-z-]+)\"")
_OPEN_GROUP: Final = "vpn"
"""The group with ports that are open to the internet."""


def inbound_rules(inside: int, overlay: int, world: int) -> Mapping[str, int]:
    """Security group of a VPC → the number of its inbound rules; outbound ones are the same everywhere.

    Counted from the tables in ``security_groups.tf``, the only place that defines rules, without Terraform.

    ``inside``: number of private blocks, each of which makes one rule per table row. ``overlay``: entries of
    the pod network's ports. ``world``: ports of the VPN. A rule that refers to a group counts as one,
    whatever the number of its machines (VPC User Guide, "Security group size").
    """
    rules: Counter[str] = Counter({_OPEN_GROUP: world})
    for group, lines in _table_lines("from_inside").items():
        rules[group] += lines * inside
    for group, lines in _table_lines("overlay").items():
        rules[group] += lines * inside * overlay
    return rules + _table_lines("from_group")


@cache
def _table_lines(table: str) -> Counter[str]:
    """Group → its number of lines in a table."""
    text = _MODULE.read_text(encoding="utf-8")
    found = re.search(rf"^  {table} = \{{\n(.*?)^  \}}", text, re.MULTILINE | re.DOTALL)
    assert found is not None, table
    return Counter(_GROUP.findall(found[1]))
