"""What a client of any protocol sees of faults, of what is missing, and of groups that wait for machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from infra.drive import localaws as process
from infra.drive.localaws import Server
from localaws.control import Control
from localaws.faults import no_capacity, refused

REGION = "us-west-2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = process.start(tmp_path_factory.mktemp("answers") / "aws", "answers")
    yield server
    process.stop(server.folder)


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Clients that do not try again."""
    for name, value in process.environment(server, REGION).items():
        monkeypatch.setenv(name, value)
    Control(server).clear_faults()
    config = Config(retries={"total_max_attempts": 1})
    session = boto3.session.Session()  # the default one may remember another test's environment
    return lambda service: session.client(service, config=config)


def code(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    ("service", "call", "arguments"),
    [
        ("ec2", "create_vpc", {"CidrBlock": "10.0.0.0/16"}),
        ("autoscaling", "put_lifecycle_hook", {"AutoScalingGroupName": "a", "LifecycleHookName": "b"}),
        ("elbv2", "create_load_balancer", {"Name": "a"}),
        ("iam", "create_role", {"RoleName": "a", "AssumeRolePolicyDocument": "{}"}),
        ("route53", "create_hosted_zone", {"Name": "a.example", "CallerReference": "1"}),
        ("s3", "create_bucket", {"Bucket": "some-bucket"}),
        ("s3", "put_bucket_policy", {"Bucket": "some-bucket", "Policy": "{}"}),
        ("efs", "create_file_system", {"CreationToken": "a"}),
        ("ssm", "put_parameter", {"Name": "a", "Value": "b", "Type": "String"}),
        ("kms", "create_key", {}),
        ("logs", "create_log_group", {"logGroupName": "a"}),
        ("sts", "get_caller_identity", {}),
    ],
)
def test_a_refusal_in_each_protocol(
    server: Server, client: Callable[[str], Any], service: str, call: str, arguments: dict[str, Any]
) -> None:
    action = "".join(word.title() for word in call.split("_"))
    Control(server).order(refused(action, "TooBad", "<luck>"))
    with pytest.raises(ClientError) as caught:
        getattr(client(service), call)(**arguments)
    assert caught.value.response["Error"] == {"Code": "TooBad", "Message": "<luck>"} | (
        {"Type": "Sender"} if "Type" in caught.value.response["Error"] else {}
    )
    assert Control(server).faults() == []


def test_what_is_missing_is_said_and_not_tried_again(client: Callable[[str], Any]) -> None:
    with pytest.raises(ClientError) as caught:
        client("ec2").create_capacity_reservation_fleet(
            InstanceTypeSpecifications=[{"InstanceType": "m5.large"}], TotalTargetCapacity=1
        )
    assert caught.value.response["Error"]["Code"] == "EmbeddedAwsLacks"
    assert "ec2 CreateCapacityReservationFleet" in caught.value.response["Error"]["Message"]
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_group_waits_for_machines_and_gets_them(server: Server, client: Callable[[str], Any]) -> None:
    ec2, groups = client("ec2"), client("autoscaling")
    subnet = ec2.describe_subnets()["Subnets"][0]
    template = ec2.create_launch_template(
        LaunchTemplateName="pool", LaunchTemplateData={"ImageId": "ami-1", "InstanceType": "p5.48xlarge"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    Control(server).order(no_capacity("p5.48xlarge", subnet["AvailabilityZone"]))
    groups.create_auto_scaling_group(
        AutoScalingGroupName="pool",
        MinSize=2,
        MaxSize=4,
        VPCZoneIdentifier=subnet["SubnetId"],
        LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
    )

    def machines() -> int:
        return len(groups.describe_auto_scaling_groups()["AutoScalingGroups"][0]["Instances"])

    assert machines() == 0
    (activity, *_) = groups.describe_scaling_activities(AutoScalingGroupName="pool")["Activities"]
    assert activity["StatusCode"] == "Failed"
    assert "p5.48xlarge" in activity["StatusMessage"]
    launch = {"MinCount": 1, "MaxCount": 1, "ImageId": "ami-1", "SubnetId": subnet["SubnetId"]}
    assert code(ec2.run_instances, InstanceType="p5.48xlarge", **launch) == "InsufficientInstanceCapacity"
    ec2.run_instances(InstanceType="m5.large", **launch)  # there are others
    Control(server).clear_faults()
    assert machines() == 2
    (activity, *_) = groups.describe_scaling_activities(AutoScalingGroupName="pool")["Activities"]
    assert activity["StatusCode"] == "Successful"
    kinds = process.inventory(server)[REGION]
    assert kinds["autoscaling.autoscaling_groups"] == ["pool"]
    assert kinds["ec2.launch_templates"] == [template]


def test_an_identical_customer_gateway_is_the_one_that_exists(client: Callable[[str], Any]) -> None:
    ec2 = client("ec2")

    def made(name: str | None = "rack-a", **more: Any) -> str:
        row = {"Type": "ipsec.1", "IpAddress": "198.51.100.10", "BgpAsn": 65010} | more
        answer = ec2.create_customer_gateway(**row, **({"DeviceName": name} if name else {}))
        return str(answer["CustomerGateway"]["CustomerGatewayId"])

    first = made()
    assert made() == first
    others = [made("rack-b"), made(None), made(BgpAsn=65011), made(IpAddress="198.51.100.11")]
    assert len({first, *others}) == 5
    ec2.delete_customer_gateway(CustomerGatewayId=first)
    assert made() != first


@pytest.mark.parametrize("deleted_as", ["*.dns.example", r"\052.dns.example."])
def test_a_deleted_record_can_be_created_again(client: Callable[[str], Any], deleted_as: str) -> None:
    dns = client("route53")
    zone = dns.create_hosted_zone(Name="dns.example", CallerReference=deleted_as)["HostedZone"]["Id"]

    def change(action: str, name: str, address: str = "192.0.2.1") -> None:
        record = {"Name": name, "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": address}]}
        batch = {"Changes": [{"Action": action, "ResourceRecordSet": record}]}
        dns.change_resource_record_sets(HostedZoneId=zone, ChangeBatch=batch)

    change("CREATE", "www.dns.example")
    change("CREATE", "*.dns.example")
    with pytest.raises(ClientError, match="InvalidChangeBatch"):
        change("CREATE", "*.dns.example", "192.0.2.2")
    if deleted_as.startswith("*"):
        change("DELETE", deleted_as)
    else:
        change("UPSERT", deleted_as)  # names it so, as Terraform's provider does after a read
        change("DELETE", deleted_as)
    change("CREATE", "*.dns.example")
    there = dns.list_resource_record_sets(HostedZoneId=zone)["ResourceRecordSets"]
    assert sorted(each["Name"] for each in there if each["Type"] == "A") == [
        "*.dns.example.",
        "www.dns.example.",
    ]


def test_a_network_load_balancers_arn_says_so_and_keeps_its_tags(client: Callable[[str], Any]) -> None:
    ec2, elb = client("ec2"), client("elbv2")
    vpc = ec2.create_vpc(CidrBlock="10.90.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.90.0.0/24")["Subnet"]["SubnetId"]
    for kind, name in {"network": "net", "application": "app"}.items():
        tags = [{"Key": "kind", "Value": kind}]
        [made] = elb.create_load_balancer(Name=name, Type=kind, Subnets=[subnet], Tags=tags)["LoadBalancers"]
        assert f":loadbalancer/{name}/{name}/" in made["LoadBalancerArn"]
        [described] = elb.describe_load_balancers(Names=[name])["LoadBalancers"]
        assert described["LoadBalancerArn"] == made["LoadBalancerArn"]
        [row] = elb.describe_tags(ResourceArns=[made["LoadBalancerArn"]])["TagDescriptions"]
        assert row["Tags"] == tags


def test_a_vpn_connection_gets_another_gateway_and_keeps_its_tunnels(client: Callable[[str], Any]) -> None:
    ec2 = client("ec2")
    ours = ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    first, second = (
        ec2.create_customer_gateway(Type="ipsec.1", IpAddress=address, BgpAsn=65077, DeviceName=address)[
            "CustomerGateway"
        ]["CustomerGatewayId"]
        for address in ("198.51.100.71", "198.51.100.72")
    )
    before = ec2.create_vpn_connection(Type="ipsec.1", CustomerGatewayId=first, VpnGatewayId=ours)
    connection = before["VpnConnection"]["VpnConnectionId"]
    ec2.modify_vpn_connection(VpnConnectionId=connection, CustomerGatewayId=second)
    (after,) = ec2.describe_vpn_connections(VpnConnectionIds=[connection])["VpnConnections"]
    assert (after["CustomerGatewayId"], after["VpnGatewayId"]) == (second, ours)
    assert after["Options"]["TunnelOptions"] == before["VpnConnection"]["Options"]["TunnelOptions"]
    unknown = {"VpnConnectionId": connection, "TransitGatewayId": "tgw-0123456789abcdef0"}
    assert code(ec2.modify_vpn_connection, **unknown) == "InvalidTransitGatewayID.NotFound"


def test_a_gateway_endpoints_routes_follow_its_tables(client: Callable[[str], Any]) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    one, two = (ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    made = ec2.create_vpc_endpoint(
        VpcId=vpc, ServiceName=f"com.amazonaws.{REGION}.s3", RouteTableIds=[one], VpcEndpointType="Gateway"
    )
    endpoint = made["VpcEndpoint"]["VpcEndpointId"]

    def routed() -> set[str]:
        tables = ec2.describe_route_tables(RouteTableIds=[one, two])["RouteTables"]
        return {
            table["RouteTableId"]
            for table in tables
            if any(route.get("GatewayId") == endpoint for route in table["Routes"])
        }

    assert routed() == {one}
    ec2.modify_vpc_endpoint(VpcEndpointId=endpoint, AddRouteTableIds=[two])
    assert routed() == {one, two}
    ec2.modify_vpc_endpoint(VpcEndpointId=endpoint, RemoveRouteTableIds=[one])
    assert routed() == {two}
    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint])
    assert routed() == set()


def test_ranges_of_an_object_are_of_what_was_written_last(client: Callable[[str], Any]) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="ranges", CreateBucketConfiguration={"LocationConstraint": REGION})

    def read(key: str, wanted: str) -> bytes:
        found: bytes = s3.get_object(Bucket="ranges", Key=key, Range=f"bytes={wanted}")["Body"].read()
        return found

    for text in (b"0123456789", b"abcdefghij"):
        s3.put_object(Bucket="ranges", Key="x", Body=text)
        s3.put_object(Bucket="ranges", Key="y", Body=text[::-1])
        assert [read("x", "0-3"), read("y", "0-3"), read("x", "4-")] == [text[:4], text[:-5:-1], text[4:]]
    s3.copy_object(Bucket="ranges", Key="x", CopySource="ranges/y")
    assert read("x", "0-1") == b"ji"


def test_an_object_is_read_once_for_all_of_its_ranges() -> None:
    """In a process of its own: what it changes stays changed."""
    program = """
from moto.s3.models import FakeKey
from infra.localaws import speed
speed.install()
key = FakeKey("x", b"0123456789", account_id="123456789012", region_name="us-west-2")
reads, read = [], key._value_buffer.read
key._value_buffer.read = lambda *size: reads.append(size) or read(*size)
assert (key.value[:4], key.value[4:], len(reads)) == (b"0123", b"456789", 1)
key.value = b"new"
assert (key.value, key.value, len(reads)) == (b"new", b"new", 2)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
