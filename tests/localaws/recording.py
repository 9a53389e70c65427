"""The calls that were made, as IAM would judge them: what was asked for, and the tags of what it names.

A policy's conditions look at tags as they are when the call arrives, so they are noted before moto sees it.
Nothing is recorded until somebody asks for it. Read it with ``control.Control.calls``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from infra.localaws.request import Call

_ID: Final = re.compile(r"\b[a-z]+(?:-[a-z]+)?-[0-9a-f]{8,17}\b")
_DISTRIBUTION: Final = re.compile(r"distribution(?:/|%2F)([A-Z0-9]+)")
_LONGEST: Final = 64 * 1024
"""Characters of a request that are kept: only objects in S3 are longer, whose content grants nothing."""

Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call."""

    service: str
    """As in its signature."""
    region: str
    action: str
    method: str
    text: str
    """``path?query``, a line feed, and the body."""
    tags: Mapping[str, Tags] = field(default_factory=dict)
    """Of what the request names by id or by name, and of what is joined; before the call."""
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Id of an association → what it joins; of a mount target → its file system; of a peering → the VPC that
    accepts it."""
    launches: Mapping[str, Any] = field(default_factory=dict)
    """The data of the launch template that an Auto Scaling group is given."""


class Recording:
    """The calls since ``begin``. Use it under the lock that calls are made under."""

    def __init__(self) -> None:
        self._calls: list[Recorded] | None = None

    def begin(self) -> None:
        """Record from now on; what was recorded before is forgotten."""
        from infra.localaws import extensions

        extensions.install("ec2")  # before its backends are made, which tags are looked up in
        self._calls = []

    def add(self, call: Call, method: str, account: str) -> None:
        """Note a call that is about to be made."""
        if self._calls is None:
            return
        text = call.text[:_LONGEST]
        launches = _launches(account, call) if call.service == "autoscaling" else {}
        launched = _ID.findall(json.dumps(launches))
        distributions = _DISTRIBUTION.findall(text) if call.service == "cloudfront" else []
        names = sorted({*_ID.findall(text), *launched, *distributions, *_named(call.action, text)})
        joined = {name: ids for name in names if (ids := tuple(_joins(account, call.region, name)))}
        all_names = [*names, *(other for ids in joined.values() for other in ids)]
        tags = {name: found for name in all_names if (found := _tags(account, call.region, name))}
        self._calls.append(
            Recorded(call.service, call.region, call.action, method, text, tags, joined, launches)
        )

    def calls(self) -> list[Recorded]:
        return list(self._calls or ())


def dumps(calls: Iterable[Recorded]) -> str:
    return json.dumps([asdict(call) for call in calls])


def loads(text: str | bytes) -> list[Recorded]:
    """What ``dumps`` wrote."""
    rows: list[dict[str, Any]] = json.loads(text)
    return [
        Recorded(**{**row, "joined": {name: tuple(ids) for name, ids in row["joined"].items()}})
        for row in rows
    ]


_BY_NAME: Final = re.compile(
    r"(?:^|&)(?:GroupName|Placement\.GroupName|AutoScalingGroupName|Tags\.member\.1\.ResourceId|PlacementGroup)"
    r"=([^&]+)",
    re.MULTILINE,
)


def _named(action: str, text: str) -> list[str]:
    """Names of Auto Scaling and placement groups; of nothing that is about to be made."""
    from urllib.parse import unquote_plus

    return [] if action == "CreatePlacementGroup" else [unquote_plus(name) for name in _BY_NAME.findall(text)]


def _joins(account: str, region: str, name: str) -> Iterator[str]:
    """As in ``Recorded.joined``."""
    from moto.ec2.models import ec2_backends
    from moto.efs.models import efs_backends

    if region not in ec2_backends[account]:
        return
    ec2 = ec2_backends[account][region]
    kind = name.rpartition("-")[0]
    if kind == "rtbassoc":
        for table in ec2.route_tables.values():
            if name in table._associations:
                yield from (table.id, table._associations[name])
    elif kind == "eipassoc":
        for address in ec2.addresses:
            if address.association_id == name:
                yield from filter(None, (address.allocation_id, address.eni and address.eni.id))
    elif kind == "fsmt":
        if target := efs_backends[account][region].mount_targets_by_id.get(name):
            yield target.file_system_id
    elif kind == "pcx" and (peering := ec2.vpc_pcxs.get(name)):
        yield peering.peer_vpc.id


def _tags(account: str, region: str, name: str) -> dict[str, str]:
    from moto.autoscaling.models import autoscaling_backends
    from moto.cloudfront.models import cloudfront_backends
    from moto.ec2.models import ec2_backends
    from moto.efs.models import efs_backends

    cloudfront = cloudfront_backends[account]["aws"]
    if name in cloudfront.distributions:
        arn = cloudfront.distributions[name].arn
        return {row["Key"]: row["Value"] for row in cloudfront.tagger.list_tags_for_resource(arn)["Tags"]}
    if region not in ec2_backends[account]:
        return {}
    ec2 = ec2_backends[account][region]
    if name in ec2.tags:
        return dict(ec2.tags[name])
    if name.startswith(("fs-", "fsap-")):
        efs = efs_backends[account][region]
        owner: Any = efs.file_systems_by_id.get(name) or efs.access_points.get(name)
        rows = (efs.list_tags_for_resource(name) or []) if owner else []
        return {row["Key"]: row["Value"] for row in rows}
    if group := autoscaling_backends[account][region].autoscaling_groups.get(name):
        return {row["Key"]: row["Value"] for row in group.tags}
    placement = ec2.placement_groups.get(name)  # type: ignore[attr-defined]  # an extension's
    return dict(ec2.tags.get(placement.id, {})) if placement else {}


def _launches(account: str, call: Call) -> Mapping[str, Any]:
    from moto.ec2.models import ec2_backends

    template = re.search(r"LaunchTemplateId=(lt-[0-9a-f]+)", call.text)
    if not template:
        return {}
    found = ec2_backends[account][call.region].launch_templates.get(template[1])
    data: dict[str, Any] = dict(found.latest_version().data) if found else {}
    data.pop("UserData", None)
    return data
