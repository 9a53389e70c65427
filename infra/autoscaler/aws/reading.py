"""Reads the state of Auto Scaling groups in all regions in parallel.

For each region, in parallel::

    groups      DescribeAutoScalingGroups, by name; a group without the cluster's tag is not ours
    activities  DescribeScalingActivities of the region, back to those already known
    instances   DescribeInstances: of new ones, and of those that are not running
    spot        DescribeSpotInstanceRequests that AWS has marked for interruption
    hooks       DescribeLifecycleHooks, occasionally
    prices      DescribeSpotPriceHistory, occasionally

If a region's groups cannot be read, the region is left out; if one of the others cannot, less is known about
it. Failures are recorded in ``Reading.errors`` and do not affect other regions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from infra.autoscaler.aws import clients, responses
from infra.autoscaler.aws.background_calls import Background, Key, LateError
from infra.autoscaler.aws.clients import Clients
from infra.autoscaler.config import Config
from infra.autoscaler.observed.snapshot import Activity, GroupState

DEADLINE: Final = 20.0
"""Maximum seconds that a loop waits for AWS."""

_NAMES: Final = 50
"""Maximum names in one DescribeAutoScalingGroups call."""
_VALUES: Final = 200
"""Maximum values of an EC2 filter."""
_PAGES: Final = 10
"""Maximum pages of activities, of 100 each: newest first, so the oldest are left out."""
_LOOK_BACK: Final = 3 * 3600.0
"""Seconds. Older activities are ignored, even after a long downtime."""
_NOTICE: Final = 120.0
"""Seconds from a Spot interruption notice to the termination."""
_HOOKS_LAST: Final = 600.0
_PRICES_LAST: Final = 300.0
_MARKED: Final = ("marked-for-termination", "marked-for-stop")
_NOT_RUNNING: Final = ("pending", "shutting-down", "stopping", "stopped")
"""Not ``terminated``: EC2 lists those for an hour, and there may be a thousand after a large job."""
_TYPES_OF_PRICES: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_TERMINATING: Final = "autoscaling:EC2_INSTANCE_TERMINATING"


class Reading(Struct, frozen=True):
    """The result of reading all regions."""

    groups: Mapping[str, GroupState]
    """Groups by name; without those that could not be read."""
    errors: Mapping[str, str]
    """``aws/us-west-2`` if the region could not be read, ``aws/us-west-2/spot`` for a part,
    ``aws/us-west-2/research-west-gpu`` for a group → the reason, for people."""
    prices: Mapping[str, float]
    """``us-west-2a/p3.8xlarge`` → USD per hour."""


class Reader:
    """Reads all regions of a configuration. For one caller at a time."""

    def __init__(
        self,
        config: Config,
        clients: Clients,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._background = Background(deadline)
        self._clock = clock
        names: dict[str, list[str]] = defaultdict(list)
        for group in config.groups:
            names[group.region].append(group.name)
        self._regions = [
            _Region(config, region, sorted(names[region]), clients, clock) for region in sorted(names)
        ]

    def read(self) -> Reading:
        """Read all regions."""
        futures: dict[Key, Future[Any]] = {}
        for region in self._regions:
            futures.update(region.begin(self._background))
        found = self._background.gather(futures)
        groups: dict[str, GroupState] = {}
        errors: dict[str, str] = {}
        prices: dict[str, float] = {}
        for region in self._regions:
            parts = {part: each for (name, part), each in found.items() if name == region.name}
            rows = parts.pop("groups")
            if isinstance(rows, BaseException):
                errors[f"aws/{region.name}"] = _why(rows)
                continue
            for part, each in parts.items():
                if isinstance(each, BaseException):
                    errors[f"aws/{region.name}/{part}"] = _why(each)
            some, faults = region.finish(
                rows, {part: each for part, each in parts.items() if not isinstance(each, BaseException)}
            )
            groups |= some
            errors |= {f"aws/{region.name}/{name}": why for name, why in faults.items()}
            prices |= region.prices
        return Reading(groups=groups, errors=errors, prices=prices)


class _Region:
    """A region's calls, and cached results that change rarely or never."""

    def __init__(
        self, config: Config, name: str, groups: Sequence[str], clients: Clients, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.prices: Mapping[str, float] = {}
        self._config = config
        self._groups = groups
        self._clients = clients
        self._clock = clock
        self._machines: Mapping[str, responses.Machine] = {}
        self._activities: Mapping[str, Activity] = {}
        self._hooks: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._priced = 0.0
        ours = [group for group in config.groups if group.region == name]
        self._rendered = {group.name: (group.hook,) for group in ours}
        self._spot_types = sorted(
            {each.name for group in ours if group.on_demand_percent < 100 for each in group.types}
        )
        self._zones = {zone for group in ours for zone in group.zones}

    def begin(self, background: Background) -> dict[Key, Future[Any]]:
        """Start all calls."""
        now = self._clock()
        rows = background.start((self.name, "groups"), self._read_groups)
        works: dict[str, Callable[[], Any]] = {
            "activities": lambda: self._read_activities(now - _LOOK_BACK),
            "instances": lambda: self._read_machines(rows),
        }
        if self._spot_types:
            works["spot"] = self._read_interruptions
            if now - self._priced > _PRICES_LAST:
                works["prices"] = lambda: self._read_prices(now)
        if any(name not in self._hooks or now - self._hooks[name][0] > _HOOKS_LAST for name in self._groups):
            works["hooks"] = lambda: self._read_hooks(now)
        return {
            (self.name, "groups"): rows,
            **{(self.name, part): background.start((self.name, part), work) for part, work in works.items()},
        }

    def finish(
        self, rows: Sequence[responses.Row], parts: Mapping[str, Any]
    ) -> tuple[dict[str, GroupState], dict[str, str]]:
        """Groups by name, and the reasons for missing ones."""
        activities: dict[str, list[Activity]] = defaultdict(list)
        for each in parts.get("activities", ()):
            activities[each.group].append(each)
        self._machines = parts.get("instances", self._machines)
        interrupted = parts.get("spot", {})
        found: dict[str, GroupState] = {}
        faults: dict[str, str] = {}
        for row in rows:
            name = str(row["AutoScalingGroupName"])
            try:
                owner = responses.tag(row, "cluster")
                if owner != self._config.cluster:
                    faults[name] = f"its tag cluster is {owner or 'not set'}, so it is none of ours"
                    continue
                # If hooks cannot be read, they are assumed to be as rendered.
                hooks = self._hooks[name][1] if name in self._hooks else self._rendered[name]
                found[name] = responses.group(
                    row, self.name, self._machines, interrupted, activities[name], hooks
                )
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                faults[name] = f"AWS's answer cannot be parsed: {type(problem).__name__}: {problem}"
        for name in self._groups:
            if name not in found and name not in faults:
                faults[name] = "this Auto Scaling group does not exist; create it with: invoke apply"
        return found, faults

    def _read_groups(self) -> list[responses.Row]:
        client = self._clients.get("autoscaling", self.name)
        pages = client.get_paginator("describe_auto_scaling_groups")
        return [
            row
            for names in chunks(self._groups, _NAMES)
            for page in pages.paginate(AutoScalingGroupNames=names)
            for row in page["AutoScalingGroups"]
        ]

    def _read_activities(self, since: float) -> list[Activity]:
        """AWS lists activities in progress, then the newest. Completed ones do not change: reading stops
        after a page without new ones, once all that were in progress have been seen again."""
        client = self._clients.get("autoscaling", self.name)
        ours = set(self._groups)
        found = {one: each for one, each in self._activities.items() if each.start >= since}
        unmet = {one for one, each in found.items() if each.end is None}
        known = found.keys() - unmet
        for one in unmet:
            del found[one]
        pages = client.get_paginator("describe_scaling_activities").paginate(
            PaginationConfig={"PageSize": 100}
        )
        for page in islice(pages, _PAGES):
            some = [each for each in map(responses.activity, page["Activities"]) if each.start >= since]
            unmet -= {each.id for each in some}
            if not unmet and all(each.id in known for each in some):
                break
            found |= {each.id: each for each in some}
        self._activities = found
        return [each for each in found.values() if each.group in ours]

    def _read_machines(self, rows: Future[list[responses.Row]]) -> dict[str, responses.Machine]:
        """All instances of all groups. Launch time and market of an instance are read once."""
        client = self._clients.get("ec2", self.name)
        try:
            ids = {str(each["InstanceId"]) for row in rows.result() for each in row.get("Instances", ())}
        except Exception:
            return {}  # the error of reading the groups is reported already
        before = {one: each for one, each in self._machines.items() if one in ids}
        known = {one: each for one, each in before.items() if each.state == "running"}
        found = {
            str(row["InstanceId"]): responses.machine(row)
            for names in chunks(self._groups, _VALUES)
            for row in _instances(
                client, ("tag:aws:autoscaling:groupName", names), ("instance-state-name", _NOT_RUNNING)
            )
        }
        for some in chunks(sorted(ids - known.keys() - found.keys()), _VALUES):
            # By filter, as an instance that EC2 does not know is an error in InstanceIds.
            found |= {
                str(row["InstanceId"]): responses.machine(row)
                for row in _instances(client, ("instance-id", some))
            }
        forgotten = {one: replace(each, state="terminated") for one, each in before.items()}
        return {one: each for one, each in (forgotten | known | found).items() if one in ids}

    def _read_interruptions(self) -> dict[str, float]:
        """Instance → when AWS terminates it."""
        client = self._clients.get("ec2", self.name)
        pages = client.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "status-code", "Values": list(_MARKED)}], PaginationConfig={"PageSize": 1000}
        )
        return {
            str(row["InstanceId"]): (responses.seconds(row["Status"].get("UpdateTime")) or self._clock())
            + _NOTICE
            for page in pages
            for row in page["SpotInstanceRequests"]
            if row.get("InstanceId")
        }

    def _read_hooks(self, now: float) -> None:
        client = self._clients.get("autoscaling", self.name)
        for name in self._groups:
            if name in self._hooks and now - self._hooks[name][0] <= _HOOKS_LAST:
                continue
            rows = client.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
            self._hooks[name] = (
                now,
                tuple(row["LifecycleHookName"] for row in rows if row["LifecycleTransition"] == _TERMINATING),
            )

    def _read_prices(self, now: float) -> None:
        client = self._clients.get("ec2", self.name)
        pages = client.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=self._spot_types,
            ProductDescriptions=list(_TYPES_OF_PRICES),
            StartTime=now,  # only current prices
            PaginationConfig={"PageSize": 1000},
        )
        self.prices = {
            f"{row['AvailabilityZone']}/{row['InstanceType']}": float(row["SpotPrice"])
            for page in pages
            for row in page["SpotPriceHistory"]
            if row["AvailabilityZone"] in self._zones
        }
        self._priced = now


def _instances(client: Any, *filters: tuple[str, Collection[str]]) -> Iterator[responses.Row]:
    pages = client.get_paginator("describe_instances").paginate(
        Filters=[{"Name": name, "Values": list(values)} for name, values in filters],
        PaginationConfig={"PageSize": 1000},
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of at most ``size`` items."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _why(problem: BaseException) -> str:
    if isinstance(problem, LateError):
        return str(problem)
    if isinstance(problem, clients.errors()):
        return clients.words(problem)
    return f"{type(problem).__name__}: {problem}"
