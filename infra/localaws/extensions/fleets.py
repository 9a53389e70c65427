"""EC2: launch templates, and launches by them."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.responses.fleets import Fleets
from moto.ec2.utils import convert_tag_spec, random_fleet_id, random_spot_request_id

from infra.localaws.patching import around


def instant_fleets() -> None:
    """CreateFleet of type ``instant``: one launch, by its launch template, of the first type with capacity.

    moto ignores the template's interfaces, disks and key, and raises if there is no capacity: EC2 then
    returns no instances, and an error for each type.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html
    """

    @around(Fleets)
    def create_fleet(original: Any, self: Any) -> ActionResult:
        if self._get_param("Type") != "instant":
            answer: ActionResult = original(self)
            return answer
        self.error_on_dryrun()
        return ActionResult(_instant(self))


def _instant(response: Any) -> dict[str, Any]:
    backend = response.ec2_backend
    target = response._get_param("TargetCapacitySpecification", {})
    lifecycle = target.get("DefaultTargetCapacityType") or "on-demand"
    fleet: dict[str, Any] = {"FleetId": random_fleet_id(), "Instances": [], "Errors": []}
    for config in response._get_param("LaunchTemplateConfigs", []):
        asked = config["LaunchTemplateSpecification"]
        template = backend._get_template_from_args(asked).data
        for override in config.get("Overrides") or [{}]:
            about = {
                "Lifecycle": lifecycle,
                "LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": asked, "Overrides": override},
            }
            try:
                instance = _launch(backend, {**template, **override}, lifecycle)
            except EC2ClientError as problem:
                why = {"ErrorCode": problem.code, "ErrorMessage": str(problem.message)}
                fleet["Errors"].append({**about, **why})
                continue
            launched = {"InstanceIds": [instance.id], "InstanceType": instance.instance_type}
            fleet["Instances"].append({**about, **launched})
            return fleet
    return fleet


def _launch(backend: Any, wanted: dict[str, Any], lifecycle: str) -> Any:
    interfaces = wanted.get("NetworkInterfaces") or []
    user_data = wanted.get("UserData")
    reservation = backend.run_instances(
        wanted["ImageId"],
        1,
        Base64EncodedString(user_data) if isinstance(user_data, str) and user_data else user_data or None,
        [],
        instance_type=wanted["InstanceType"],
        is_instance_type_default=False,
        region_name=backend.region_name,
        placement=(wanted.get("Placement") or {}).get("AvailabilityZone") or None,
        subnet_id=None if interfaces else wanted.get("SubnetId"),
        security_group_ids=[] if interfaces else wanted.get("SecurityGroupIds") or [],
        key_name=wanted.get("KeyName"),
        nics=interfaces,
        block_device_mappings=wanted.get("BlockDeviceMappings") or None,
        tags=convert_tag_spec(wanted.get("TagSpecifications") or []),
        lifecycle="spot" if lifecycle == "spot" else None,
    )
    instance = reservation.instances[0]
    if lifecycle == "spot":
        instance.instance_lifecycle = "spot"
        instance.spot_instance_request_id = random_spot_request_id()
    return instance


def launch_templates() -> None:
    """CreateLaunchTemplate keeps the tags of the template apart from those of its instances.

    moto adds them to the template's data, where Terraform finds a tag specification that is not configured,
    and keeps a copy of them that CreateTags does not change.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateLaunchTemplate.html
    """

    setattr(  # noqa: B010, mypy
        LaunchTemplate, "tags", property(lambda self: self.get_tags(), lambda _self, _copy: None)
    )

    @around(EC2Backend)
    def create_launch_template(
        original: Any, self: Any, name: str, description: str, template_data: dict[str, Any], tag_spec: Any
    ) -> Any:
        specifications = template_data.get("TagSpecifications", [])
        kept = [row for row in specifications if row["ResourceType"] != "launch-template"]
        if kept:
            template_data["TagSpecifications"] = kept
        else:
            template_data.pop("TagSpecifications", None)
        return original(self, name, description, template_data, tag_spec)


def spot_requests() -> None:
    """DescribeSpotInstanceRequests by status code, with the time of the status, which interruption notices
    need.

    moto has neither the filter nor the time. A test marks a request by its attributes ``_status_code`` and
    ``updated``.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSpotInstanceRequests.html
    """

    @around(SpotInstanceRequest)
    def get_filter_value(original: Any, self: Any, filter_name: str, method_name: str | None = None) -> Any:
        return self._status_code if filter_name == "status-code" else original(self, filter_name, method_name)

    moto: Any = SpotInstanceRequest
    theirs = moto.status.fget

    def status(self: Any) -> dict[str, Any]:
        row: dict[str, Any] = theirs(self)
        return row | {"UpdateTime": getattr(self, "updated", row["UpdateTime"])}

    setattr(SpotInstanceRequest, "status", property(status))  # noqa: B010, mypy
