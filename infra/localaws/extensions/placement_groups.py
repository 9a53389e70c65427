"""CreatePlacementGroup, DescribePlacementGroups and DeletePlacementGroup, which moto lacks.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_PlacementGroup.html
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.responses import EC2Response
from moto.ec2.utils import filter_dict_attribute_mapping, generic_filter, random_resource_id

from infra.localaws.patching import around, method


class PlacementGroup(TaggedEC2Resource):
    """One placement group."""

    def __init__(self, backend: Any, name: str, strategy: str, partitions: Any, spread: str | None) -> None:
        self.ec2_backend = backend
        self.id = f"pg-{random_resource_id()}"
        self.group_name = name
        self.state = "available"
        self.strategy = strategy
        self.partition_count = int(partitions or 2) if strategy == "partition" else None
        self.spread_level = (spread or "rack") if strategy == "spread" else None

    def answer(self) -> dict[str, Any]:
        place = f"{self.ec2_backend.region_name}:{self.ec2_backend.account_id}"
        return {
            "GroupId": self.id,
            "GroupName": self.group_name,
            "GroupArn": f"arn:{self.ec2_backend.partition}:ec2:{place}:placement-group/{self.group_name}",
            "State": self.state,
            "Strategy": self.strategy,
            "PartitionCount": self.partition_count,
            "SpreadLevel": self.spread_level,
            "Tags": [{"Key": tag["key"], "Value": tag["value"]} for tag in self.get_tags()],
        }


def install() -> None:
    filter_dict_attribute_mapping["placement-group-name"] = "placement.group_name"

    @around(EC2Backend)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self.placement_groups = {}
        original(self, *args, **kwargs)

    @method(EC2Response)
    def create_placement_group(self: Any) -> ActionResult:
        name = self._get_param("GroupName")
        groups = self.ec2_backend.placement_groups
        if name in groups:
            raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The placement group {name} exists.")
        group = PlacementGroup(
            self.ec2_backend,
            name,
            self._get_param("Strategy") or "cluster",
            self._get_param("PartitionCount"),
            self._get_param("SpreadLevel"),
        )
        group.add_tags(self._parse_tag_specification().get("placement-group", {}))
        groups[name] = group
        return ActionResult({"PlacementGroup": group.answer()})

    @method(EC2Response)
    def describe_placement_groups(self: Any) -> ActionResult:
        groups = list(self.ec2_backend.placement_groups.values())
        for name in self._get_param("GroupNames", []):
            _named(self, name)
        if names := self._get_param("GroupNames", []):
            groups = [group for group in groups if group.group_name in names]
        if ids := self._get_param("GroupIds", []):
            groups = [group for group in groups if group.id in ids]
        groups = generic_filter(self._filters_from_querystring(), groups)
        return ActionResult({"PlacementGroups": [group.answer() for group in groups]})

    @method(EC2Response)
    def delete_placement_group(self: Any) -> ActionResult:
        name = self._get_param("GroupName")
        _named(self, name)
        if any(_in(instance, name) for instance in self.ec2_backend.all_instances()):
            raise EC2ClientError(
                "InvalidPlacementGroup.InUse", f"The placement group {name} is in use and may not be deleted."
            )
        del self.ec2_backend.placement_groups[name]
        return EmptyResult()


def _in(instance: Any, name: str) -> bool:
    """Whether an instance that is not terminated runs in a placement group."""
    return instance._placement.group_name == name and instance.state not in ("shutting-down", "terminated")


def _named(response: Any, name: str) -> None:
    if name not in response.ec2_backend.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
