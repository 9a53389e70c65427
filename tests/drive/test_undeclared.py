"""What nobody declared, on an embedded AWS: each kind is found and named, removed, and then gone."""

from __future__ import annotations

from typing import Any

import pytest
from drive.behind_terraforms_back import CHANGES, World, tcp

from infra.drive import localaws, undeclared
from infra.drive.aws import Aws
from infra.drive.localaws import Server
from infra.drive.undeclared.model import declared

REGION = "us-west-2"
SITES = {"us_west_2": "us-west-2"}
REGIONS = {"us-west-2": REGION}


@pytest.fixture(scope="module")
def aws(cloud: Server) -> Aws:
    return Aws(localaws.environment(cloud, REGION))


class State:
    """A state, resource by resource, as Terraform writes it."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []

    def add(self, kind: str, key: str, **values: Any) -> None:
        self.resources.append(
            {
                "module": "module.us_west_2.module.network",
                "mode": "managed",
                "type": kind,
                "name": "this",
                "provider": 'provider["registry.terraform.io/hashicorp/aws"].us_west_2',
                "instances": [{"index_key": key, "attributes": values}],
            }
        )

    def found(self, aws: Aws) -> tuple[undeclared.Undeclared, ...]:
        return undeclared.find(aws, declared({"resources": self.resources}, SITES, REGIONS))


def changed(aws: Aws, state: State, *names: str) -> tuple[undeclared.Undeclared, ...]:
    """What is found after these changes of ``behind_terraforms_back``, each of which is among it."""
    assert state.found(aws) == ()
    world = World(aws, declared({"resources": state.resources}, SITES, REGIONS))
    for name in names:
        CHANGES[name][0](world)
    found = state.found(aws)
    texts = [f"{one.kind} {one.what}" for one in found]
    wanted = [CHANGES[name][1][1] for name in names]
    assert [what for what in wanted if not any(what in text for text in texts)] == [], texts
    return found


def is_fixed(aws: Aws, state: State) -> None:
    """Removing what can be removed leaves nothing but what is only reported."""
    undeclared.remove(aws, state.found(aws))
    assert [one for one in state.found(aws) if one.removal] == []


def test_rules_routes_and_ways_into_a_vpc(aws: Aws) -> None:
    ec2, state, at = aws.client("ec2", REGION), State(), "private-us-west-2a"
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24")["Subnet"]["SubnetId"]
    private, public = (ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=vpc)
    [main] = ec2.describe_route_tables(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
    )["RouteTables"]
    association = ec2.associate_route_table(RouteTableId=private, SubnetId=subnet)["AssociationId"]
    state.add("aws_vpc", "v", id=vpc, main_route_table_id=main["RouteTableId"])
    state.add("aws_subnet", at, id=subnet)
    state.add("aws_route_table", at, id=private)
    state.add("aws_route_table", "public", id=public)
    state.add("aws_route_table_association", at, id=association)
    state.add("aws_internet_gateway", "i", id=internet)
    for name in ("vpn", "efs"):
        group = ec2.create_security_group(GroupName=name, Description="d", VpcId=vpc)["GroupId"]
        everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        ec2.revoke_security_group_egress(GroupId=group, IpPermissions=everything)
        state.add("aws_security_group", name, id=group)
    [ours] = ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=tcp(443, "10.0.0.0/8"))[
        "SecurityGroupRules"
    ]
    state.add("aws_vpc_security_group_ingress_rule", "r", security_group_rule_id=ours["SecurityGroupRuleId"])
    ec2.create_route(RouteTableId=public, DestinationCidrBlock="0.0.0.0/0", GatewayId=internet)
    state.add("aws_route", "0", route_table_id=public, destination_cidr_block="0.0.0.0/0")

    removable = (
        "a_door",
        "a_way_out",
        "another_network_acl",
        "a_private_subnet_that_is_public",
        "a_route",
        "a_route_in_the_main_table",
        "a_gateway_that_propagates",
    )
    found = changed(aws, state, *removable)
    assert len([one for one in found if one.removal]) == len(found) == len(removable)
    assert {one.holder.rpartition(".")[2] for one in found if one.kind.endswith("rule")} == {
        'this["vpn"]',
        'this["efs"]',
    }
    other = ec2.create_vpc(CidrBlock="10.2.0.0/16")["Vpc"]["VpcId"]
    peering = ec2.create_vpc_peering_connection(VpcId=other, PeerVpcId=vpc)["VpcPeeringConnection"]
    stray = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.9.0/24")["Subnet"]["SubnetId"]
    assert {(one.kind, one.id) for one in state.found(aws) if not one.removal} == {
        ("peering connection", peering["VpcPeeringConnectionId"]),
        ("subnet", stray),
    }
    with pytest.raises(ec2.exceptions.ClientError, match="AlreadyAssociated"):
        ec2.associate_route_table(RouteTableId=private, SubnetId=subnet)
    is_fixed(aws, state)
    assert ec2.associate_route_table(RouteTableId=private, SubnetId=subnet)["AssociationId"]


def test_vpn_connections_of_others_are_reported(aws: Aws) -> None:
    ec2, state = aws.client("ec2", REGION), State()
    customer = ec2.create_customer_gateway(Type="ipsec.1", BgpAsn=65010, PublicIp="198.51.100.7")[
        "CustomerGateway"
    ]["CustomerGatewayId"]
    private = ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    transit = ec2.create_transit_gateway()["TransitGateway"]
    for gateway in ({"VpnGatewayId": private}, {"TransitGatewayId": transit["TransitGatewayId"]}):
        made = [
            ec2.create_vpn_connection(Type="ipsec.1", CustomerGatewayId=customer, **gateway)["VpnConnection"]
            for _ in range(2)
        ]
        state.add("aws_vpn_connection", "ours", id=made[0]["VpnConnectionId"])
    state.add("aws_vpn_gateway", "g", id=private)
    state.add(
        "aws_ec2_transit_gateway",
        "t",
        id=transit["TransitGatewayId"],
        association_default_route_table_id=transit["Options"]["AssociationDefaultRouteTableId"],
    )
    found = state.found(aws)
    assert [(one.kind, one.removal) for one in found] == [("VPN connection", None)] * 2
    assert {one.holder.split(".")[-2] for one in found} == {"aws_vpn_gateway", "aws_ec2_transit_gateway"}


def test_listeners_and_targets(aws: Aws) -> None:
    ec2, elb, state = aws.client("ec2", REGION), aws.client("elbv2", REGION), State()
    vpc = ec2.create_vpc(CidrBlock="10.3.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.3.0.0/24")["Subnet"]["SubnetId"]
    [balancer] = elb.create_load_balancer(Name="api", Subnets=[subnet], Type="network")["LoadBalancers"]
    [group] = elb.create_target_group(Name="api", Protocol="TCP", Port=6443, VpcId=vpc, TargetType="ip")[
        "TargetGroups"
    ]
    state.add("aws_lb", "l", arn=balancer["LoadBalancerArn"])
    state.add("aws_lb_target_group", "g", arn=group["TargetGroupArn"])
    [listener] = elb.create_listener(
        LoadBalancerArn=balancer["LoadBalancerArn"],
        Protocol="TCP",
        Port=6443,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": group["TargetGroupArn"]}],
    )["Listeners"]
    state.add("aws_lb_listener", "a", arn=listener["ListenerArn"])
    changed(aws, state, "a_listener")
    elb.register_targets(TargetGroupArn=group["TargetGroupArn"], Targets=[{"Id": "10.3.0.9", "Port": 6443}])
    assert {one.what for one in state.found(aws) if one.kind == "target"} == {"10.3.0.9:6443"}
    is_fixed(aws, state)


def test_what_else_scales_a_group(aws: Aws) -> None:
    scaling, state = aws.client("autoscaling", REGION), State()
    scaling.create_launch_configuration(
        LaunchConfigurationName="c", ImageId="ami-12345678", InstanceType="m6i.large"
    )
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="cpu",
        LaunchConfigurationName="c",
        MinSize=0,
        MaxSize=1,
        AvailabilityZones=[f"{REGION}a"],
    )
    state.add("aws_autoscaling_group", "cpu", name="cpu")
    found = changed(aws, state, "a_scaling_policy", "a_scheduled_action", "a_lifecycle_hook", "ears")
    assert {one.kind: one.what for one in found} == {
        "scaling policy": "halve (SimpleScaling)",
        "scheduled action": "night (max 0, at 0 22 * * *)",
        "lifecycle hook": "wait on EC2_INSTANCE_LAUNCHING",
        "notification": "EC2_INSTANCE_LAUNCH to arn:aws:sns:us-west-2:123456789012:ears",
    }
    is_fixed(aws, state)


def test_records_and_who_may_ask(aws: Aws) -> None:
    route53, ec2, state = aws.client("route53"), aws.client("ec2", REGION), State()
    ours = ec2.create_vpc(CidrBlock="10.4.0.0/16")["Vpc"]["VpcId"]
    zone = route53.create_hosted_zone(
        Name="lab.internal", CallerReference="1", VPC={"VPCRegion": REGION, "VPCId": ours}
    )["HostedZone"]["Id"].rpartition("/")[2]
    state.add("aws_vpc", "v", id=ours)
    state.add("aws_route53_zone", "z", zone_id=zone, name="lab.internal")
    records = {
        "*.lab.internal": {"TTL": 60, "ResourceRecords": [{"Value": "10.4.0.1"}]},
        "half.lab.internal": {"TTL": 60, "ResourceRecords": [{"Value": "10.4.0.2"}]},
        "read.lab.internal": {"TTL": 60, "ResourceRecords": [{"Value": "10.4.0.3"}]},
    }
    for name, values in records.items():
        record = {"Name": name, "Type": "A", **values}
        route53.change_resource_record_sets(
            HostedZoneId=zone, ChangeBatch={"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
        )
    state.add("aws_route53_record", "w", zone_id=zone, fqdn="*.lab.internal", type="A", set_identifier="")
    # Created, and not read: what AWS decides is not in the state.
    for name in ("half", "read.lab.internal"):
        state.add(
            "aws_route53_record", name, zone_id=zone, fqdn=None, name=name, type="A", set_identifier=None
        )
    state.add("aws_route53_zone", "half", id="Z1", zone_id=None, name="half.internal")
    found = changed(aws, state, "a_record", "who_may_ask")
    assert "api2.lab.internal A 203.0.113.9" in {one.what for one in found}
    assert len(found) == 2
    is_fixed(aws, state)


def test_settings_of_a_bucket(aws: Aws) -> None:
    s3, state = aws.client("s3", REGION), State()
    s3.create_bucket(Bucket="some-data", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.create_bucket(Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_versioning(Bucket="some-data", VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_versioning(Bucket="elsewhere", VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="some-data", Key="one", Body=b"1")
    state.add("aws_s3_bucket", "datasets", bucket="some-data")
    changed(aws, state, "cors", "a_website", "an_inventory")
    topic = aws.client("sns", REGION).create_topic(Name="objects")["TopicArn"]
    topics = {"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]}
    s3.put_bucket_accelerate_configuration(Bucket="some-data", AccelerateConfiguration={"Status": "Enabled"})
    s3.put_bucket_notification_configuration(Bucket="some-data", NotificationConfiguration=topics)
    s3.put_bucket_replication(
        Bucket="some-data",
        ReplicationConfiguration={
            "Role": "arn:aws:iam::123456789012:role/copy",
            "Rules": [
                {"Status": "Enabled", "Prefix": "", "Destination": {"Bucket": "arn:aws:s3:::elsewhere"}}
            ],
        },
    )
    assert {one.id for one in state.found(aws)} == {
        "CORS",
        "website",
        "everything",
        "acceleration",
        "notification",
        "replication",
    }
    is_fixed(aws, state)
    assert s3.get_object(Bucket="some-data", Key="one")["Body"].read() == b"1"


def test_who_else_reads_logs(aws: Aws) -> None:
    logs, state = aws.client("logs", REGION), State()
    for name in ("flows", "gone"):
        state.add("aws_cloudwatch_log_group", name, name=name)
    logs.create_log_group(logGroupName="flows")
    assert len(changed(aws, state, "a_metric_of_flow_logs")) == 1
    is_fixed(aws, state)


def test_blocks_and_dhcp_options_of_a_vpc(aws: Aws) -> None:
    ec2, state = aws.client("ec2", REGION), State()
    vpc = ec2.create_vpc(CidrBlock="10.3.0.0/16")["Vpc"]["VpcId"]
    state.add("aws_vpc", "v", id=vpc, cidr_block="10.3.0.0/16")
    assert state.found(aws) == ()
    added = ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="10.4.0.0/16")["CidrBlockAssociation"]

    def options(server: str) -> str:
        made = ec2.create_dhcp_options(
            DhcpConfigurations=[
                {"Key": "domain-name", "Values": ["us-west-2.compute.internal"]},
                {"Key": "domain-name-servers", "Values": [server]},
            ]
        )["DhcpOptions"]["DhcpOptionsId"]
        ec2.associate_dhcp_options(DhcpOptionsId=made, VpcId=vpc)
        return str(made)

    theirs = options("198.51.100.53")
    found = {one.kind: one for one in state.found(aws)}
    assert {kind: one.id for kind, one in found.items()} == {
        "VPC block": added["AssociationId"],
        "DHCP options": theirs,
    }
    assert "198.51.100.53" in found["DHCP options"].what
    options("AmazonProvidedDNS")
    ec2.disassociate_vpc_cidr_block(AssociationId=added["AssociationId"])
    assert state.found(aws) == ()


def test_a_second_interface_of_an_instance(aws: Aws) -> None:
    ec2, state = aws.client("ec2", REGION), State()
    vpc = ec2.create_vpc(CidrBlock="10.5.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.5.0.0/24")["Subnet"]["SubnetId"]
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    [instance] = ec2.run_instances(
        ImageId=image, InstanceType="t3.medium", MinCount=1, MaxCount=1, SubnetId=subnet
    )["Instances"]
    state.add("aws_instance", "m", id=instance["InstanceId"])
    assert state.found(aws) == ()
    more = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    ec2.attach_network_interface(NetworkInterfaceId=more, InstanceId=instance["InstanceId"], DeviceIndex=1)
    assert [(one.kind, one.id) for one in state.found(aws)] == [("network interface", more)]


def test_doors_into_a_file_system(aws: Aws) -> None:
    """Those that the driver of volumes makes are its own business, but for one to all of the file system."""
    efs, state = aws.client("efs", REGION), State()
    system = efs.create_file_system(CreationToken="doors")["FileSystemId"]

    def door(path: str, uid: int, tags: list[dict[str, str]]) -> str:
        made = efs.create_access_point(
            ClientToken=f"{path}{uid}{len(tags)}",
            FileSystemId=system,
            PosixUser={"Uid": uid, "Gid": uid},
            RootDirectory={"Path": path},
            Tags=tags,
        )
        return str(made["AccessPointId"])

    state.add("aws_efs_file_system", "f", id=system)
    state.add("aws_efs_access_point", "a", id=door("/home", 0, []))
    driver = [{"Key": "efs.csi.aws.com/cluster", "Value": "true"}]
    door("/volumes/team/data", 50000, driver)
    assert state.found(aws) == ()
    wide = {door("/", 0, []), door("/", 0, driver)}
    found = state.found(aws)
    assert {one.id for one in found} == wide
    assert all(" / as uid 0" in one.what and one.removal is None for one in found)


def test_nothing_is_asked_of_what_is_not_there(aws: Aws) -> None:
    assert State().found(aws) == ()
    assert undeclared.find(aws, declared({}, SITES, REGIONS)) == ()


def test_what_is_gone_is_left_to_terraform(aws: Aws) -> None:
    state = State()
    arn = f"arn:aws:elasticloadbalancing:{REGION}:123456789012"
    state.add("aws_lb", "l", arn=f"{arn}:loadbalancer/net/a/0123456789abcdef")
    state.add("aws_lb_target_group", "g", arn=f"{arn}:targetgroup/a/0123456789abcdef")
    state.add("aws_autoscaling_group", "p", name="gone")
    state.add("aws_route53_zone", "z", zone_id="Z0123456789ABCDEFGHIJ", name="gone.internal")
    state.add("aws_s3_bucket", "b", bucket="gone-bucket")
    state.add("aws_efs_file_system", "f", id="fs-0123456789abcdef0")
    state.add("aws_vpc", "v", id="vpc-0123456789abcdef0")
    state.add("aws_security_group", "s", id="sg-0123456789abcdef0")
    state.add("aws_vpn_gateway", "w", id="vgw-0123456789abcdef0")
    assert state.found(aws) == ()
