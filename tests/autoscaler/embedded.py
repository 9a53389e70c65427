"""An embedded AWS inside of the tests' process: real boto3 over HTTP, and moto's backends within reach."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest import mock
from uuid import uuid4

from localaws import faults, plugin

from infra.autoscaler.config import Group

ACCOUNT = "123456789012"


@dataclass
class EmbeddedAws:
    """A server, and what tests do to its groups behind our back."""

    address: str
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(region, action) of every call."""
    holding: dict[tuple[str, str], threading.Event] = field(default_factory=dict)
    _session: Any = None
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict)

    def writes(self) -> list[str]:
        """The actions among the calls that change something."""
        return [action for _, action in self.calls if not action.startswith("Describe")]

    def order(self, *some: faults.Fault) -> None:
        faults.FAULTS.order(some)

    @contextmanager
    def held(self, region: str, action: str) -> Iterator[None]:
        """Calls of an action in a region get no answer until this is over."""
        self.holding[region, action] = threading.Event()
        try:
            yield
        finally:
            self.holding.pop((region, action)).set()

    def reset(self) -> None:
        """Nothing is there, nothing is wrong."""
        from moto.autoscaling.models import autoscaling_backends
        from moto.ec2.models import ec2_backends

        faults.FAULTS.clear()
        for groups in autoscaling_backends[ACCOUNT].values():
            groups.autoscaling_groups.clear()
            groups.lifecycle_hooks.clear()
        for machines in ec2_backends[ACCOUNT].values():  # all of it, with its networks, takes half a second
            for part in (
                "reservations",
                "launch_templates",
                "launch_template_name_to_ids",
                "spot_instance_requests",
            ):
                getattr(machines, part).clear()
        self.calls.clear()

    def autoscaling(self, region: str) -> Any:
        from moto.autoscaling.models import autoscaling_backends

        return autoscaling_backends[ACCOUNT][region]

    def ec2(self, region: str) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[ACCOUNT][region]

    def client(self, service: str, region: str) -> Any:
        import boto3

        if (service, region) not in self._clients:
            library: Any = boto3
            self._session = self._session or library.session.Session()
            self._clients[service, region] = self._session.client(service, region_name=region)
        return self._clients[service, region]

    def make(self, *groups: Group, cluster: str | None = "research", desired: int = 0) -> None:
        """The groups of a configuration, protected and without zone rebalancing, as we render them."""
        for group in groups:
            client, ec2 = self.client("autoscaling", group.region), self.client("ec2", group.region)
            subnets = ec2.describe_subnets()["Subnets"]
            ec2.create_launch_template(
                LaunchTemplateName=group.name,
                LaunchTemplateData={"ImageId": "ami-1", "InstanceType": group.types[0].name},
            )
            template = {"LaunchTemplateName": group.name, "Version": "1"}
            weighted = any(each.weight != 1 for each in group.types)
            launch: dict[str, Any] = {"LaunchTemplate": template}
            if len(group.types) > 1 or weighted:
                overrides = [
                    {"InstanceType": each.name} | ({"WeightedCapacity": str(each.weight)} if weighted else {})
                    for each in group.types
                ]
                launch = {
                    "MixedInstancesPolicy": {
                        "LaunchTemplate": {"LaunchTemplateSpecification": template, "Overrides": overrides}
                    }
                }
            client.create_auto_scaling_group(
                AutoScalingGroupName=group.name,
                MinSize=group.min,
                MaxSize=group.max,
                DesiredCapacity=max(desired, group.min),
                VPCZoneIdentifier=subnets[0]["SubnetId"],
                NewInstancesProtectedFromScaleIn=True,
                Tags=[{"Key": "cluster", "Value": cluster, "PropagateAtLaunch": True}] if cluster else [],
                **launch,
            )
            client.suspend_processes(AutoScalingGroupName=group.name, ScalingProcesses=["AZRebalance"])
            client.put_lifecycle_hook(
                AutoScalingGroupName=group.name,
                LifecycleHookName=group.hook,
                LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
                HeartbeatTimeout=300,
            )
        self.calls.clear()

    def group(self, group: Group) -> Any:
        """moto's own."""
        return self.autoscaling(group.region).autoscaling_groups[group.name]

    def instances(self, group: Group) -> list[str]:
        """Ids of a group's instances."""
        return sorted(state.instance.id for state in self.group(group).instance_states)

    def lifecycle(self, group: Group, instance: str, state: str) -> None:
        """Put an instance into a state of its group's."""
        for each in self.group(group).instance_states:
            if each.instance.id == instance:
                each.lifecycle_state = state

    def failed(self, group: Group, message: str, *, start: float, **more: Any) -> None:
        """A launch that failed."""
        moment = datetime.fromtimestamp(start, UTC)
        self.group(group).activities.insert(0, {
            "ActivityId": str(uuid4()),
            "AutoScalingGroupName": group.name,
            "Description": "Launching a new EC2 instance.  Status Reason: " + message,
            "Cause": "an instance was started in response to a difference in capacity",
            "StartTime": moment,
            "EndTime": moment,
            "StatusCode": "Failed",
            "StatusMessage": message,
            "Progress": 100,
            "Details": "{}",
            **more,
        })  # fmt: skip

    def interrupt(self, group: Group, instance: str, moment: float) -> None:
        """Mark a spot instance to end, as of ``moment``."""
        from types import SimpleNamespace

        from moto.ec2.models.spot_requests import SpotInstanceRequest

        backend = self.ec2(group.region)
        with mock.patch.object(
            SpotInstanceRequest, "launch_instance", return_value=SimpleNamespace(id=instance)
        ):
            (request,) = backend.request_spot_instances(
                price=None, image_id="ami-1", count=1, spot_instance_type="one-time", valid_from=None,
                valid_until=None, launch_group=None, availability_zone_group=None, key_name="",
                security_groups=[], user_data=None, instance_type=group.types[0].name, placement=None,
                kernel_id=None, ramdisk_id=None, monitoring_enabled=False, subnet_id="",
            )  # fmt: skip
        request._status_code = "marked-for-termination"
        request.updated = datetime.fromtimestamp(moment, UTC)


def environment(address: str) -> Mapping[str, str]:
    """What boto3 is to see, and nothing of the developer's."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "AKIALOCALAWSLOCALAWS",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@contextmanager
def running() -> Iterator[EmbeddedAws]:
    """A server on a port of its own. Its backends are this process's: one at a time."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
    with mock.patch.dict(os.environ, clean, clear=True):
        from moto.moto_server.werkzeug_app import MotoRequestHandler
        from werkzeug.serving import make_server

        from infra.localaws.request import identify, read_body
        from infra.localaws.server import Application, Identity

        class Quiet(MotoRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002, werkzeug's
                pass

        application = Application(Identity("tests", "research", 0.0))
        aws = EmbeddedAws("")

        def recording(environ: Any, start_response: Any) -> Any:
            call = identify(environ, read_body(environ))
            aws.calls.append((call.region, call.action))
            if held := aws.holding.get((call.region, call.action)):
                held.wait(60)
            return application(environ, start_response)

        server = make_server("127.0.0.1", 0, recording, threaded=True, request_handler=Quiet)
        server.daemon_threads = True  # type: ignore[attr-defined]
        aws.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        with (
            mock.patch("infra.localaws.plugin.active", plugin.PLUGIN),
            mock.patch.dict(os.environ, environment(aws.address)),
        ):
            yield aws
        server.shutdown()
        thread.join()
        server.server_close()
