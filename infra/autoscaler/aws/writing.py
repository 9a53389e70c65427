"""The three kinds of writes to Auto Scaling groups. Each reads the current state before it writes.

::

    SetDesired   the size, never below the present instances, never beyond min and max, never over
                 another client's change
    Terminate    one instance, reducing its group's size
    Release      the lifecycle hook that delays an instance's termination by its group

All are safe to repeat: a write that changes nothing is ``needless``. Errors from AWS are results, not
exceptions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from infra.autoscaler.aws import clients, responses
from infra.autoscaler.aws.clients import Clients
from infra.autoscaler.config import Config, Group
from infra.autoscaler.decision import Release, Result, SetDesired, Terminate
from infra.autoscaler.observed.snapshot import GroupState
from infra.autoscaler.observed.state_builder import present_units

Write = SetDesired | Terminate | Release
_A = TypeVar("_A", SetDesired, Terminate, Release)

_PAUSES: Final = (0.5, 1.5)
"""Seconds before a throttled call is retried."""
_SILENCE: Final = 5.0
"""Seconds for which a region that did not answer is not called."""
_AT_MIN: Final = "desiredSize equals minSize"
"""AWS's message if a group cannot become smaller."""
_NO_HOOK: Final = "No active Lifecycle Action found"
_GONE: Final = ("Instance Id not found", "is not part of Auto Scaling group", "not found")


class AwsWriter:
    """Writes to the groups of a configuration. Thread-safe."""

    def __init__(
        self,
        config: Config,
        clients: Clients,
        *,
        may: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clients`` with the timeouts ``WRITING``. ``may`` returns whether this process holds the lease:
        called right before each write."""
        self._groups: Mapping[str, Group] = {group.name: group for group in config.groups}
        self._cluster = config.cluster
        self._clients = clients
        self._may = may
        self._sleep = sleep
        self._clock = clock
        self._silent: dict[str, float] = {}
        """Region → time until which it is not called."""

    def set_desired(self, action: SetDesired) -> Result:
        """Set a group's size, if it is unchanged since the decision."""
        return self._told(action, self._set_desired)

    def terminate(self, action: Terminate) -> Result:
        """Terminate one instance and reduce its group's size.

        A forced one in a group at its minimum size is replaced, as it must be terminated in any case.
        """
        return self._told(action, self._terminate)

    def release(self, action: Release) -> Result:
        """Complete the lifecycle hook of an instance."""
        return self._told(action, self._release)

    def ended(self, region: str, instance: str) -> bool | None:
        """Whether an instance is terminated, according to EC2; None if unknown."""
        try:
            found = self._call(
                self._clients.get("ec2", region).describe_instances,
                Filters=[{"Name": "instance-id", "Values": [instance]}],
            )
        except clients.errors():
            return None
        rows = [row for reservation in found["Reservations"] for row in reservation["Instances"]]
        return all(responses.machine(row).state in ("shutting-down", "terminated") for row in rows)

    def _told(self, action: _A, write: Callable[[_A, Group, Any], Result]) -> Result:
        group = self._groups.get(action.group)
        if group is None:
            return Result("refused", f"{action.group} is not a group of this configuration")
        if self._clock() < self._silent.get(group.region, 0.0):
            return Result("refused", f"{group.region} did not answer a moment ago")
        try:
            return write(action, group, self._clients.get("autoscaling", group.region))
        except _NotOursError:
            return Result("stale", "the lease is not ours any more")
        except clients.errors() as problem:
            if clients.away(problem):
                # Further calls would time out as well, and delay the next loop.
                self._silent[group.region] = self._clock() + _SILENCE
            return Result("refused" if clients.refused(problem) else "failed", clients.words(problem))

    def _set_desired(self, action: SetDesired, group: Group, client: Any) -> Result:
        state = self._group(client, group)
        if isinstance(state, Result):
            return state
        if state.desired != action.was:
            if state.desired == action.desired:
                return Result("needless", "somebody did it already")
            return Result(
                "stale", f"its size is {state.desired}, no longer {action.was}: somebody else changed it"
            )
        desired = min(max(action.desired, state.min, present_units(state)), state.max)
        why = _changed(action.desired, desired, state)
        if desired == state.desired or (desired < state.desired) != (action.desired < state.desired):
            return Result("needless", why or "it is so already")
        self._write(
            client.set_desired_capacity,
            AutoScalingGroupName=group.name,
            DesiredCapacity=desired,
            HonorCooldown=False,
        )
        if desired < state.desired:
            desired, why = self._not_below(client, group, desired, why)
        return Result("done", why, desired if desired != action.desired else None)

    def _not_below(self, client: Any, group: Group, desired: int, why: str) -> tuple[int, str]:
        """The size, increased if an instance was launched since the read.

        Otherwise AWS would terminate one, of its own choice, to reach the size.
        """
        try:
            state = self._group(client, group)
            if isinstance(state, Result) or state.desired != desired or present_units(state) <= desired:
                return desired, why
            there = min(present_units(state), state.max)
            self._write(client.set_desired_capacity, AutoScalingGroupName=group.name, DesiredCapacity=there)
        except _NotOursError:
            return desired, why
        except clients.errors():
            return desired, f"set to {desired}, and then it could not be looked at again"
        return there, f"set to {desired}, and up again to {there}: machines came meanwhile"

    def _terminate(self, action: Terminate, group: Group, client: Any) -> Result:
        row = self._instance(client, action.instance)
        if row is None:
            return Result("needless", "no group has it any more")
        if row["AutoScalingGroupName"] != group.name:
            return Result("refused", f"it is in group {row['AutoScalingGroupName']}")
        if str(row["LifecycleState"]).startswith("Terminat"):
            return Result("needless", f"it is {row['LifecycleState']} already")
        state = self._group(client, group)
        if isinstance(state, Result):
            return state
        weight = max(1, responses.whole(row.get("WeightedCapacity"), 1))
        smaller = state.desired - weight >= state.min
        there = min(present_units(state), state.max)
        over = not smaller and there > state.desired and there - weight >= state.min
        if not smaller and not over and not action.forced:
            return Result("refused", f"the group is at its least size, {state.min}")
        try:
            if over:
                # An instance may weigh more than one unit. Setting the size to what is present launches
                # nothing, and then AWS can subtract this instance from it.
                self._write(
                    client.set_desired_capacity,
                    AutoScalingGroupName=group.name,
                    DesiredCapacity=there,
                    HonorCooldown=False,
                )
                smaller = True
            self._write(
                client.terminate_instance_in_auto_scaling_group,
                InstanceId=action.instance,
                ShouldDecrementDesiredCapacity=smaller,
            )
        except clients.errors() as problem:
            said = clients.message(problem)
            if _AT_MIN in said:
                return Result("refused", f"the group is at its least size, {state.min}")
            if any(each in said for each in _GONE):
                return Result("needless", "no group has it any more")
            raise
        return Result("done", "" if smaller else "replaced, as the group is at its least size")

    def _release(self, action: Release, group: Group, client: Any) -> Result:
        row = self._instance(client, action.instance)
        if row is None:
            return Result("needless", "no group has it any more")
        if row["LifecycleState"] != "Terminating:Wait":
            return Result("needless", f"it is {row['LifecycleState']}: no hook holds it")
        try:
            self._write(
                client.complete_lifecycle_action,
                LifecycleHookName=group.hook,
                AutoScalingGroupName=group.name,
                InstanceId=action.instance,
                LifecycleActionResult="CONTINUE",
            )
        except clients.errors() as problem:
            if _NO_HOOK in clients.message(problem):
                return Result("needless", "its hook has let it go already")
            raise
        return Result("done")

    def _group(self, client: Any, group: Group) -> GroupState | Result:
        """The group's current state, or the result that says why it must not be written."""
        found = self._call(client.describe_auto_scaling_groups, AutoScalingGroupNames=[group.name])
        rows = found["AutoScalingGroups"]
        if not rows:
            return Result("refused", "this group no longer exists")
        if responses.tag(rows[0], "cluster") != self._cluster:
            return Result("refused", f"its tag cluster is not {self._cluster}: left alone")
        state = responses.group(rows[0], group.region)
        if state.deleting:
            return Result("refused", "it is being deleted")
        return state

    def _instance(self, client: Any, instance: str) -> Mapping[str, Any] | None:
        """An instance, as its group lists it now."""
        found = self._call(client.describe_auto_scaling_instances, InstanceIds=[instance])
        rows = found["AutoScalingInstances"]
        return rows[0] if rows else None

    def _write(self, call: Callable[..., Any], **arguments: Any) -> None:
        self._call(call, write=True, **arguments)

    def _call(self, call: Callable[..., Any], *, write: bool = False, **arguments: Any) -> Any:
        """Make a call, retried if throttled, as AWS did nothing then."""
        for pause in (*_PAUSES, None):
            if write and not self._may():
                raise _NotOursError
            try:
                return call(**arguments)
            except clients.errors() as problem:
                if pause is None or not clients.throttled(problem):
                    raise
                self._sleep(pause)
        raise AssertionError("the last pause is None")


class _NotOursError(Exception):
    """The lease was lost: nothing may be written."""


def _changed(asked: int, written: int, state: GroupState) -> str:
    if written == asked:
        return ""
    if written == state.max:
        return f"{written} rather than {asked}: its most"
    if written == state.min:
        return f"{written} rather than {asked}: its least"
    return f"{written} rather than {asked}: so much is there now"
