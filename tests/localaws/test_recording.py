"""What the embedded AWS notes of calls for those who judge them as IAM does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from infra.drive import localaws as process
from infra.drive.localaws import Server
from localaws.control import Control
from localaws.recording import Recorded

REGION = "us-west-2"
OURS = [{"Key": "environment", "Value": "lab"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = process.start(tmp_path_factory.mktemp("recording") / "aws", "recording")
    yield server
    process.stop(server.folder)


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    for name, value in process.environment(server, REGION).items():
        monkeypatch.setenv(name, value)
    session = boto3.session.Session()
    return lambda service: session.client(service)


def tagged(kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": OURS}]


def last(server: Server) -> Recorded:
    return Control(server).calls()[-1]


def test_nothing_is_recorded_before_it_is_asked_for(server: Server, client: Callable[[str], Any]) -> None:
    client("ec2").describe_vpcs()
    assert Control(server).calls() == []
    Control(server).record_calls()
    client("sts").get_caller_identity()
    assert [(call.service, call.action, call.region) for call in Control(server).calls()] == [
        ("sts", "GetCallerIdentity", REGION)
    ]
    Control(server).record_calls()
    assert Control(server).calls() == []


def test_a_call_has_the_tags_of_what_it_names_as_they_were(
    server: Server, client: Callable[[str], Any]
) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    Control(server).record_calls()
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": "environment", "Value": "other"}])
    assert last(server).tags == {vpc: {"environment": "lab"}}
    ec2.delete_vpc(VpcId=vpc)
    assert last(server).tags == {vpc: {"environment": "other"}}


def test_associations_say_what_they_join(server: Server, client: Callable[[str], Any]) -> None:
    ec2, east = client("ec2"), boto3.session.Session(region_name="us-east-1").client("ec2")
    Control(server).record_calls()
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24", TagSpecifications=tagged("subnet"))
    subnet = subnet["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table"))
    table = table["RouteTable"]["RouteTableId"]
    joined = ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)["AssociationId"]
    ec2.disassociate_route_table(AssociationId=joined)
    assert last(server).joined == {joined: (table, subnet)}
    assert last(server).tags == {table: {"environment": "lab"}, subnet: {"environment": "lab"}}

    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))["AllocationId"]
    joined = ec2.associate_address(AllocationId=address, NetworkInterfaceId=interface)["AssociationId"]
    ec2.disassociate_address(AssociationId=joined)
    assert last(server).joined == {joined: (address, interface)}
    assert last(server).tags[address] == {"environment": "lab"}

    other = east.create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    asked = ec2.create_vpc_peering_connection(VpcId=vpc, PeerVpcId=other, PeerRegion="us-east-1")
    peering = asked["VpcPeeringConnection"]["VpcPeeringConnectionId"]
    east.accept_vpc_peering_connection(VpcPeeringConnectionId=peering)
    assert last(server).joined == {peering: (other,)}
    assert last(server).tags[other] == {"environment": "lab"}

    efs = client("efs")
    system = efs.create_file_system(CreationToken="a", Tags=OURS)["FileSystemId"]
    target = efs.create_mount_target(FileSystemId=system, SubnetId=subnet)["MountTargetId"]
    assert last(server).tags == {system: {"environment": "lab"}, subnet: {"environment": "lab"}}
    efs.delete_mount_target(MountTargetId=target)
    assert last(server).joined == {target: (system,)}
    assert last(server).tags == {system: {"environment": "lab"}}


def test_groups_are_known_by_name_and_by_what_they_launch(
    server: Server, client: Callable[[str], Any]
) -> None:
    ec2, scaling = client("ec2"), client("autoscaling")
    vpc = ec2.create_vpc(CidrBlock="10.3.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.3.0.0/24")["Subnet"]["SubnetId"]
    made = ec2.create_security_group(
        GroupName="nodes", Description="a", VpcId=vpc, TagSpecifications=tagged("security-group")
    )
    group = made["GroupId"]
    data = {"ImageId": "ami-1", "SecurityGroupIds": [group], "UserData": "aGlkZGVu"}
    made = ec2.create_launch_template(LaunchTemplateName="pool", LaunchTemplateData=data)
    template = made["LaunchTemplate"]["LaunchTemplateId"]
    ec2.create_placement_group(GroupName="near", TagSpecifications=tagged("placement-group"))
    Control(server).record_calls()
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="pool",
        MinSize=0,
        MaxSize=1,
        VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateId": template},
        Tags=[{"Key": "environment", "Value": "lab"}],
    )
    assert last(server).launches == {"ImageId": "ami-1", "SecurityGroupIds": [group]}
    assert last(server).tags[group] == {"environment": "lab"}
    scaling.delete_auto_scaling_group(AutoScalingGroupName="pool")
    assert last(server).tags == {"pool": {"environment": "lab"}}
    ec2.delete_placement_group(GroupName="near")
    assert last(server).tags == {"near": {"environment": "lab"}}
