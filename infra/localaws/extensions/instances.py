"""EC2: instances."""

from __future__ import annotations

from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.monitoring import Monitoring
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix

from infra.localaws import plugin
from infra.localaws.patching import around, method

_ROOT: Final = "/dev/sda1"
_GP3_THROUGHPUT: Final = 125
"""The default in MiB/s."""


def run_instances() -> None:
    """RunInstances with the requested disks, options and interfaces.

    moto ignores a disk's throughput and IOPS, fails on instance stores, keeps the interface of a terminated
    instance, and ignores DisableApiTermination, maintenance options and placement. A plugin may refuse any
    launch here.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
    """

    _backend()
    _interfaces()
    _request()


def _backend() -> None:
    @around(EC2Backend)
    def _create_default_encryption_key(original: Any, self: Any) -> Any:
        from moto.kms.models import kms_backends

        arn = original(self)
        kms_backends[self.account_id][self.region_name].describe_key(arn).key_manager = "AWS"
        return arn

    @around(EC2Backend)
    def run_instances(original: Any, self: Any, image_id: Any, *args: Any, **kwargs: Any) -> Any:
        _ask_plugin(self, kwargs)
        disks = _disks(self, kwargs)
        kwargs["block_device_mappings"] = disks
        reservation = original(self, image_id, *args, **kwargs)
        for instance in reservation.instances:
            for disk in disks:
                attachment = instance.block_device_mapping.get(disk["DeviceName"])
                if attachment is None:
                    continue
                volume = self.volumes[attachment.volume_id]
                if iops := disk["Ebs"].get("Iops"):
                    volume.iops = int(iops)
                if volume.volume_type == "gp3":
                    volume.throughput = int(disk["Ebs"].get("Throughput") or _GP3_THROUGHPUT)
        return reservation


def _interfaces() -> None:
    @around(Instance)
    def prep_nics(original: Any, self: Any, nic_spec: Any, *args: Any, **kwargs: Any) -> None:
        for interface in nic_spec:
            if "NetworkInterfaceId" not in interface:
                interface.setdefault("DeleteOnTermination", True)
        theirs = {row.get("NetworkInterfaceId") for row in nic_spec}
        original(self, nic_spec, *args, **kwargs)
        if not nic_spec or theirs == {None}:
            for interface in self.nics.values():
                interface.delete_on_termination = True
        if not self.security_groups and 0 in self.nics:  # the groups of the interface are the instance's too
            self.security_groups = list(self.nics[0].group_set)


def _request() -> None:
    @around(InstanceResponse)
    def _parse_block_device_mapping(original: Any, self: Any) -> list[dict[str, Any]]:
        parsed: list[dict[str, Any]] = original(self)
        for row, asked in zip(parsed, self._get_param("BlockDeviceMappings", []), strict=True):
            row["Ebs"]["Throughput"] = asked.get("Ebs", {}).get("Throughput")
            # AWS's default for instances, which differs from that for images.
            row["Ebs"]["DeleteOnTermination"] = asked.get("Ebs", {}).get("DeleteOnTermination", True)
        return parsed

    @around(InstanceResponse)
    def _security_grp_instance_attribute_handler(original: Any, self: Any) -> bool:
        # moto removes the groups if a call changes another attribute that it does not know.
        return bool(self._get_param("Groups", [])) and original(self)

    @around(InstanceResponse)
    def run_instances(original: Any, self: Any) -> ActionResult:
        answer: Any = original(self)
        for instance in answer.result.instances:
            instance.disable_api_termination = bool(self._get_param("DisableApiTermination", False))
            instance.maintenance_options = {
                "AutoRecovery": self._get_param("MaintenanceOptions.AutoRecovery") or "default"
            }
            instance._placement.group_name = self._get_param("Placement.GroupName") or ""
            instance._placement.tenancy = self._get_param("Placement.Tenancy") or "default"
        return ActionResult(answer.result)


def _disks(backend: Any, kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    """The EBS disks of a launch: its own, its template's or its configuration's; a root disk if there are
    none."""
    given = kwargs.get("block_device_mappings")
    if given is None and kwargs.get("launch_template"):
        given = backend._get_template_from_args(kwargs["launch_template"]).data.get("BlockDeviceMappings")
    if given is None and kwargs.get("launch_config"):
        given = kwargs["launch_config"].block_device_mapping_dict
    disks = [
        {**row, "Ebs": {"DeleteOnTermination": True, **row["Ebs"]}}
        for row in given or []
        if row.get("Ebs") and not row.get("VirtualName")
    ]
    for disk in disks:
        disk["Ebs"]["VolumeSize"] = disk["Ebs"].get("VolumeSize") or 8
    if all(disk["DeviceName"] not in (_ROOT, "/dev/xvda") for disk in disks):
        disks.insert(0, {"DeviceName": _ROOT, "Ebs": {"VolumeSize": 8, "DeleteOnTermination": True}})
    return disks


def _ask_plugin(backend: Any, kwargs: dict[str, Any]) -> None:
    zone = kwargs.get("placement") or ""
    if kwargs.get("subnet_id"):
        zone = backend.get_subnet(kwargs["subnet_id"]).availability_zone
    market = kwargs.get("lifecycle") or "on-demand"
    launch = f"{kwargs.get('instance_type')} {zone} {market}"
    if refusal := plugin.active.refusal(backend.region_name, launch):
        raise EC2ClientError(*refusal)


def instance_groups() -> None:
    """ModifyNetworkInterfaceAttribute and ModifyInstanceAttribute: an instance has its interface's groups.

    moto stores them separately, so Terraform would not read its change of one from the other.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyNetworkInterfaceAttribute.html
    """

    @around(EC2Backend)
    def modify_network_interface_attribute(
        original: Any, self: Any, eni_id: str, *args: Any, **kwargs: Any
    ) -> None:
        original(self, eni_id, *args, **kwargs)
        interface = self.get_network_interface(eni_id)
        instance = interface.instance
        if instance is not None and instance.nics.get(0) is interface:
            instance.security_groups = list(interface._group_set)

    @around(EC2Backend)
    def modify_instance_security_groups(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        instance = original(self, *args, **kwargs)
        if 0 in instance.nics:
            instance.nics[0]._group_set = list(instance.security_groups)
        return instance


def monitoring() -> None:
    """MonitorInstances and UnmonitorInstances, which moto lacks.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_MonitorInstances.html
    """

    @method(Monitoring)
    def monitor_instances(self: Any) -> ActionResult:
        return _switch(self, "enabled")

    @method(Monitoring)
    def unmonitor_instances(self: Any) -> ActionResult:
        return _switch(self, "disabled")


def _switch(response: Any, state: str) -> ActionResult:
    rows = []
    for name in response._get_param("InstanceIds", []):
        response.ec2_backend.get_instance(name).monitoring_state = state
        rows.append({"InstanceId": name, "Monitoring": {"State": state}})
    return ActionResult({"InstanceMonitorings": rows})


def resource_tags() -> None:
    """Looks up the tags of a resource by its id; moto matches the ids of all tagged resources with a
    pattern, in each call.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeTags.html
    """

    @method(TaggedEC2Resource)
    def get_tags(self: Any) -> list[dict[str, str]]:
        if not self.id:
            return []
        kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(self.id), "")
        return [
            {"resource_id": self.id, "key": key, "value": value, "resource_type": kind}
            for key, value in self.ec2_backend.tags.get(self.id, {}).items()
        ]
