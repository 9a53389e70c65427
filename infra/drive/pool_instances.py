"""Instances in groups that a plan would destroy, replace or remove from their placement group, and in
subnets that it would destroy.

A group can be created again, the work on its instances cannot. Their number is set by the autoscaler and not
in Terraform's state, so AWS is queried, when a plan is made and again before it is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from infra.drive.aws import Aws, aws_errors, each_region
from infra.drive.plan import Change, Plan
from infra.errors import CausewayError

GROUP: Final = "aws_autoscaling_group"
PLACEMENT: Final = "aws_placement_group"
SUBNET: Final = "aws_subnet"

Kind: TypeAlias = Literal["aws_autoscaling_group", "aws_placement_group", "aws_subnet"]

Jobs: TypeAlias = Callable[[Collection[str]], Mapping[str, Sequence[str]]]
"""Instance ids → the pods at work on each, ``namespace/name``. Raises a Causeway error if the cluster does
not answer."""

_SHOWN: Final = 8
"""Instances and pods listed by name; the rest is counted."""
_NAMES: Final = 50
"""Maximum groups in one call (DescribeAutoScalingGroups, DescribeInstances' filters)."""
_PRESENT: Final = ["pending", "running", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class Ending:
    """An Auto Scaling group, a placement group or a subnet that a plan destroys or replaces."""

    address: str
    kind: Kind
    region: str
    """The AWS region."""
    name: str
    """The name; of a subnet, its id."""
    pools: tuple[str, ...]
    """The pool it belongs to; of a subnet, the pools of its instances."""
    instances: tuple[str, ...] = ()
    """The ids of its current instances. Of a placement group and a subnet: without those terminated with
    their Auto Scaling group, or that the plan destroys itself."""
    site: str = ""
    """The site of a subnet."""
    zone: str = ""
    """The zone of a subnet."""
    leaving: tuple[str, ...] = ()
    """Instances in a subnet that the plan destroys itself."""


def ending(shown: Mapping[str, Any]) -> tuple[Ending, ...]:
    """The groups that a plan (``terraform show -json``) destroys or replaces, without their instances."""
    going = [
        (one, one["change"].get("before") or {})
        for one in shown.get("resource_changes", ())
        if "delete" in one["change"]["actions"]
    ]
    leaving = tuple(sorted(str(before.get("id")) for one, before in going if one["type"] == "aws_instance"))
    found = []
    for one, before in going:
        if one["type"] not in (GROUP, PLACEMENT, SUBNET) or not before.get("arn"):
            continue
        made = Ending(
            address=str(one["address"]),
            kind=one["type"],
            region=str(before["arn"]).split(":")[3],
            name=str(before["id" if one["type"] == SUBNET else "name"]),
            pools=(),
        )
        if one["type"] == SUBNET:
            site = str((before.get("tags_all") or {}).get("site") or made.region)
            made = replace(made, site=site, zone=str(before["availability_zone"]), leaving=leaving)
        elif pool := _pool(before):
            made = replace(made, pools=(pool,))
        found.append(made)
    return tuple(found)


def started(shown: Mapping[str, Any]) -> frozenset[str]:
    """The pools that a plan creates a group for."""
    return frozenset(
        pool
        for one in shown.get("resource_changes", ())
        if one["type"] == GROUP and one["change"]["actions"] == ["create"]
        if (pool := _pool(one["change"].get("after") or {}))
    )


def count(aws: Aws, groups: Iterable[Ending]) -> tuple[Ending, ...]:
    """The same groups with their current instances. Raises ``RegionsError`` if AWS cannot be queried."""
    groups = tuple(groups)

    def look(region: str) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]]]:
        def names(kind: Kind) -> list[str]:
            return [one.name for one in groups if (one.region, one.kind) == (region, kind)]

        inside = _inside(aws, region, "placement-group-name", names(PLACEMENT))
        inside |= _inside(aws, region, "subnet-id", names(SUBNET))
        return _in_groups(aws, region, names(GROUP)), inside

    looked = each_region([one.region for one in groups], look)
    counted = []
    for one in groups:
        scaling, inside = looked[one.region]
        if one.kind == GROUP:
            counted.append(replace(one, instances=scaling.get(one.name, ())))
            continue
        end_anyway = {*one.leaving, *(each for ids in scaling.values() for each in ids)}
        left = {each: pool for each, pool in inside.get(one.name, {}).items() if each not in end_anyway}
        pools = one.pools or tuple(sorted({pool for pool in left.values() if pool}))
        counted.append(replace(one, instances=tuple(sorted(left)), pools=pools))
    return tuple(counted)


def protect(
    plan: Plan, groups: Iterable[Ending], *, new: Collection[str], jobs: Jobs | None, options: str
) -> Plan:
    """The plan, with each group that has instances counted as stateful, and what would be lost with it.

    ``new`` are pools that get groups in the same plan: one of them may be a renamed pool.
    """
    busy = {one.address: one for one in groups if one.instances}
    if not busy:
        return plan
    work, silent = _work(jobs, [each for one in busy.values() for each in one.instances])

    def protected(change: Change) -> Change:
        if change.address not in busy:
            return change
        return replace(change, loss=_loss(busy[change.address], work, silent, new, options))

    return replace(plan, changes=tuple(map(protected, plan.changes)))


def added(before: Iterable[Ending], now: Iterable[Ending]) -> tuple[Ending, ...]:
    """Groups with instances that were launched after the plan was made; each with those only."""
    known = {one.address: set(one.instances) for one in before}
    return tuple(
        replace(one, instances=fresh)
        for one in now
        if (fresh := tuple(each for each in one.instances if each not in known.get(one.address, ())))
    )


def in_the_way(groups: Iterable[Ending]) -> tuple[Ending, ...]:
    """Placement groups and subnets, which AWS does not delete while instances run in them."""
    return tuple(one for one in groups if one.kind != GROUP and one.instances)


def listed(names: Sequence[str]) -> str:
    """``i-1, i-2 and 3 more``."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def drain_commands(one: Ending, options: str) -> tuple[str, ...]:
    """The commands that drain it; none for a subnet whose instances are in no pool."""
    if one.kind == SUBNET:
        where = f" --site {one.site} --zone {one.zone}"
        return tuple(f"invoke pool.drain {options} --pool {pool}{where}" for pool in one.pools)
    return (f"invoke pool.drain {options} --pool {one.pools[0] if one.pools else one.name}",)


# -- parts -----------------------------------------------------------------------------------------------


def _loss(
    one: Ending, work: Mapping[str, Sequence[str]], silent: str, new: Collection[str], options: str
) -> str:
    many = f"{len(one.instances)} instance{'s' * (len(one.instances) != 1)}"
    drain = "; ".join(drain_commands(one, options)) or "terminate them"
    if one.kind != GROUP:
        what = f"subnet ({one.zone})" if one.kind == SUBNET else "placement group"
        return (
            f"AWS does not delete a {what} that has instances, and {many} run in it "
            f"({listed(one.instances)}); drain first: {drain}"
        )
    pods = [pod for each in one.instances for pod in work.get(each, ())]
    said = f"{many} are terminated ({listed(one.instances)})"
    if silent:
        said += f"; their jobs are not known, as the cluster does not answer ({silent})"
    else:
        said += f"; pods on them: {listed(pods)}" if pods else "; no pods run on them"
    said += f"; to drain the pool first: {drain}"
    for name in sorted(set(new) - set(one.pools)):
        said += (
            f"; if {name} is this pool under another name, add 'renamed_from: {one.pools[0]}' to pools.{name}"
        )
    return said


def _work(jobs: Jobs | None, instances: Sequence[str]) -> tuple[Mapping[str, Sequence[str]], str]:
    """Instance → pods, and why they are unknown; empty if they are known."""
    if jobs is None:
        return {}, "it was not asked"
    try:
        return jobs(instances), ""
    except CausewayError as problem:
        return {}, str(problem).splitlines()[0]


def _in_groups(aws: Aws, region: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    if not names:
        return {}
    found = {}
    with aws_errors(
        f"count the instances of groups in {region}",
        needs=("autoscaling:DescribeAutoScalingGroups",),
        quoting=True,
    ):
        pages = aws.client("autoscaling", region).get_paginator("describe_auto_scaling_groups")
        for some in _batches(names):
            for page in pages.paginate(AutoScalingGroupNames=some):
                for row in page["AutoScalingGroups"]:
                    ids = (each["InstanceId"] for each in row["Instances"])
                    found[str(row["AutoScalingGroupName"])] = tuple(sorted(ids))
    return found


def _inside(aws: Aws, region: str, what: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Instance → its pool, for each of these placement groups or subnets: ``what`` is the filter of
    DescribeInstances for ``names``."""
    if not names:
        return {}
    found: dict[str, dict[str, str]] = {}
    with aws_errors(f"count instances by {what} in {region}", needs=("ec2:DescribeInstances",), quoting=True):
        pages = aws.client("ec2", region).get_paginator("describe_instances")
        for some in _batches(names):
            filters = [
                {"Name": what, "Values": some},
                {"Name": "instance-state-name", "Values": _PRESENT},
            ]
            for page in pages.paginate(Filters=filters):
                for reservation in page["Reservations"]:
                    for row in reservation["Instances"]:
                        name = row["SubnetId"] if what == "subnet-id" else row["Placement"]["GroupName"]
                        tags = {each["Key"]: each["Value"] for each in row.get("Tags", ())}
                        found.setdefault(name, {})[row["InstanceId"]] = tags.get("pool", "")
    return found


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _NAMES):
        yield list(names[start : start + _NAMES])


def _pool(values: Mapping[str, Any]) -> str:
    """The pool in the tags of an Auto Scaling group, whose tags are blocks, or of another resource."""
    tags = {str(each["key"]): str(each["value"]) for each in values.get("tag") or ()}
    return tags.get("pool") or str((values.get("tags") or {}).get("pool", ""))
