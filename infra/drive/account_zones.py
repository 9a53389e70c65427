"""Looks up an account's zones, by name and by id, and which of them offer the instance types of a cluster.

Both differ between accounts: AWS assigns the letters of zones for each account, and older accounts have zones
that newer ones never get (EC2 User Guide, "Regions and Zones").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from infra.drive.aws import Aws, aws_errors, each_region
from infra.errors import DriveError

_T = TypeVar("_T")

_VALUES: Final = 200
"""Values that one filter of a call may have (EC2 User Guide, "Filtering resources")."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The account's answers. A region whose request failed is missing from the mapping."""

    zones: Mapping[str, frozenset[str]]
    """AWS region → the names and the ids of its zones that are enabled."""
    offers: Mapping[str, Mapping[str, frozenset[str]]]
    """AWS region → instance type → zones that offer it, by name and id; by name only if ``zones`` lacks the
    region."""
    refusals: Mapping[str, tuple[str, ...]]
    """The reason of a failed request → the AWS regions in which it failed."""
    ids: Mapping[str, str]
    """A zone's name → its id in this account."""


def ask(env: Mapping[str, str], types: Mapping[str, Collection[str]]) -> Answers:
    """Query each AWS region in ``types``, a mapping to the instance types to query there.

    ``env`` is the environment that Terraform gets. Never raises for a call that is denied or fails: see
    ``refusals``.
    """
    aws = Aws(env, attempts=3, read_timeout=10)

    def asked(
        region: str,
    ) -> tuple[Mapping[str, str] | DriveError, Mapping[str, frozenset[str]] | DriveError]:
        return _attempt(lambda: _zones(aws, region)), _attempt(lambda: _offers(aws, region, types[region]))

    zones, offers, refusals = {}, {}, dict[str, tuple[str, ...]]()
    every: dict[str, str] = {}
    for region, (has, offered) in each_region(types, asked).items():
        ids: Mapping[str, str] = {}
        if isinstance(has, DriveError):
            refusals[str(has)] = (*refusals.get(str(has), ()), region)
        else:
            ids = has
            every |= has
            zones[region] = _both(has, ids)
        if isinstance(offered, DriveError):
            refusals[str(offered)] = (*refusals.get(str(offered), ()), region)
        else:
            offers[region] = {kind: _both(there, ids) for kind, there in offered.items()}
    return Answers(zones, offers, refusals, every)


def _both(names: Iterable[str], ids: Mapping[str, str]) -> frozenset[str]:
    """The given zone names and their ids."""
    return frozenset(both for name in names for both in (name, ids.get(name, name)))


def _attempt(call: Callable[[], _T]) -> _T | DriveError:
    try:
        return call()
    except DriveError as problem:
        return problem


def _zones(aws: Aws, region: str) -> dict[str, str]:
    """Name → id."""
    needs = ("ec2:DescribeAvailabilityZones",)
    with aws_errors("list the availability zones of the account", needs=needs, quoting=True):
        rows = aws.client("ec2", region).describe_availability_zones()["AvailabilityZones"]
    # Local Zones that the account has enabled are listed too.
    return {
        row["ZoneName"]: row["ZoneId"]
        for row in rows
        if row.get("ZoneType", "availability-zone") == "availability-zone"
    }


def _offers(aws: Aws, region: str, types: Collection[str]) -> dict[str, frozenset[str]]:
    """Instance type → the zones that offer it; empty for a type that the region does not offer."""
    ordered = sorted(types)
    found: dict[str, set[str]] = {name: set() for name in ordered}
    with aws_errors(
        "list which zones offer an instance type", needs=("ec2:DescribeInstanceTypeOfferings",), quoting=True
    ):
        pages: Any = aws.client("ec2", region).get_paginator("describe_instance_type_offerings")
        for start in range(0, len(ordered), _VALUES):
            chosen = {"Name": "instance-type", "Values": ordered[start : start + _VALUES]}
            for page in pages.paginate(LocationType="availability-zone", Filters=[chosen]):
                for row in page["InstanceTypeOfferings"]:
                    found[row["InstanceType"]].add(row["Location"])
    return {name: frozenset(zones) for name, zones in found.items()}
