"""Converts AWS's responses to our types. Pure: dicts from boto3 to frozen structs.

A row with missing fields is read as far as possible, so that one unusual instance does not hide its group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from infra.autoscaler.observed.snapshot import Activity, GroupState, Instance

Row = Mapping[str, Any]


class Machine(Struct, frozen=True):
    """An EC2 instance."""

    launched: float | None
    spot: bool
    state: str
    host: str = ""


def machine(row: Row) -> Machine:
    """An instance of DescribeInstances."""
    return Machine(
        launched=seconds(row.get("LaunchTime")),
        spot=row.get("InstanceLifecycle") == "spot",
        state=str(row.get("State", {}).get("Name", "running")),
        host=str(row.get("PrivateDnsName") or "").partition(".")[0],
    )


def group(
    row: Row,
    region: str,
    machines: Mapping[str, Machine] = {},
    interrupted: Mapping[str, float] = {},
    activities: Iterable[Activity] = (),
    hooks: Iterable[str] = (),
) -> GroupState:
    """A group of DescribeAutoScalingGroups, with data from other calls."""
    return GroupState(
        name=str(row["AutoScalingGroupName"]),
        region=region,
        desired=whole(row.get("DesiredCapacity"), 0),
        min=whole(row.get("MinSize"), 0),
        max=whole(row.get("MaxSize"), 0),
        instances=tuple(
            sorted(
                (
                    _instance(each, machines.get(each["InstanceId"]), interrupted.get(each["InstanceId"]))
                    for each in row.get("Instances", ())
                ),
                key=lambda each: each.id,
            )
        ),
        activities=tuple(sorted(activities, key=lambda each: (-each.start, each.id))),
        suspended=tuple(sorted(str(each["ProcessName"]) for each in row.get("SuspendedProcesses") or ())),
        protects=bool(row.get("NewInstancesProtectedFromScaleIn", False)),
        hooks=tuple(sorted(hooks)),
        deleting=bool(row.get("Status")),
    )


def _instance(row: Row, known: Machine | None, interrupted: float | None) -> Instance:
    return Instance(
        id=str(row["InstanceId"]),
        type=str(row.get("InstanceType", "")),
        zone=str(row.get("AvailabilityZone", "")),
        lifecycle=str(row.get("LifecycleState", "InService")),
        healthy=str(row.get("HealthStatus", "Healthy")).lower() == "healthy",
        weight=max(1, whole(row.get("WeightedCapacity"), 1)),
        protected=bool(row.get("ProtectedFromScaleIn", False)),
        launched=known.launched if known else None,
        spot=known.spot if known else False,
        interrupted=interrupted,
        state=known.state if known else "running",
        host=known.host if known else "",
    )


def activity(row: Row) -> Activity:
    """An activity of DescribeScalingActivities."""
    return Activity(
        id=str(row.get("ActivityId", "")),
        group=str(row.get("AutoScalingGroupName", "")),
        start=seconds(row.get("StartTime")) or 0.0,
        status=str(row.get("StatusCode", "")),
        cause=str(row.get("Cause") or ""),
        description=str(row.get("Description") or ""),
        message=str(row.get("StatusMessage") or ""),
        zone=_zone(row.get("Details")),
        end=seconds(row.get("EndTime")),
    )


def _zone(details: object) -> str:
    """The zone in ``{"Subnet ID": "subnet-1", "Availability Zone": "us-west-2a"}`` as text; empty for other
    details."""
    try:
        told = json.loads(str(details or "{}"))
    except ValueError:
        return ""
    return str(told.get("Availability Zone") or "") if isinstance(told, dict) else ""


def tag(row: Row, key: str) -> str | None:
    """A group's tag."""
    return next((str(each.get("Value", "")) for each in row.get("Tags", ()) if each.get("Key") == key), None)


def seconds(moment: object) -> float | None:
    """A boto3 time in seconds since the epoch."""
    return moment.timestamp() if isinstance(moment, datetime) else None


def whole(value: object, otherwise: int) -> int:
    """An integer in any notation; ``otherwise`` if it is not one."""
    try:
        return int(str(value))
    except ValueError:
        return otherwise
