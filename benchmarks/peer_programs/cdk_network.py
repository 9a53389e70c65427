# mypy: ignore-errors
"""The network for the AWS CDK: one stack a region, from level-1 constructs."""

import sys

from aws_cdk import App, CfnTag, Environment, Fn, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2

REGIONS = {"us-west-2": "10.0.0.0/16", "us-east-1": "10.1.0.0/16", "eu-west-1": "10.2.0.0/16"}
ZONES = ("a", "b")


def network(app, region, block):
    stack = Stack(app, f"network-{region}", env=Environment(region=region))
    tags = [CfnTag(key="environment", value="bench"), CfnTag(key="site", value=region)]
    base = block.split(".")[1]
    vpc = ec2.CfnVPC(stack, "Vpc", cidr_block=block, enable_dns_hostnames=True, tags=tags)
    gateway = ec2.CfnInternetGateway(stack, "Gateway", tags=tags)
    ec2.CfnVPCGatewayAttachment(stack, "Attachment", vpc_id=vpc.ref, internet_gateway_id=gateway.ref)
    tables = {
        tier: ec2.CfnRouteTable(stack, f"{tier}Table", vpc_id=vpc.ref, tags=tags)
        for tier in ("Public", "Private")
    }
    subnets = {}
    for index, zone in enumerate(ZONES):
        for tier, offset in (("Public", 0), ("Private", 100)):
            subnet = ec2.CfnSubnet(
                stack,
                f"{tier}{zone.upper()}",
                vpc_id=vpc.ref,
                cidr_block=f"10.{base}.{offset + index}.0/24",
                availability_zone=f"{region}{zone}",
                tags=tags,
            )
            subnets[tier, zone] = subnet
            ec2.CfnSubnetRouteTableAssociation(
                stack, f"{tier}{zone.upper()}Table", subnet_id=subnet.ref, route_table_id=tables[tier].ref
            )
    address = ec2.CfnEIP(stack, "Address", domain="vpc")
    nat = ec2.CfnNatGateway(
        stack, "Nat", allocation_id=address.attr_allocation_id, subnet_id=subnets["Public", "a"].ref
    )
    everywhere = "0.0.0.0/0"
    ec2.CfnRoute(
        stack,
        "PublicRoute",
        route_table_id=tables["Public"].ref,
        destination_cidr_block=everywhere,
        gateway_id=gateway.ref,
    )
    ec2.CfnRoute(
        stack,
        "PrivateRoute",
        route_table_id=tables["Private"].ref,
        destination_cidr_block=everywhere,
        nat_gateway_id=nat.ref,
    )
    group = ec2.CfnSecurityGroup(
        stack,
        "Nodes",
        group_description="Nodes",
        vpc_id=vpc.ref,
        security_group_ingress=[ec2.CfnSecurityGroup.IngressProperty(ip_protocol="-1", cidr_ip="10.0.0.0/8")],
    )
    launch = ec2.CfnLaunchTemplate(
        stack,
        "Launch",
        launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
            image_id="ami-0123456789abcdef0",
            instance_type="m6i.xlarge",
            security_group_ids=[group.ref],
            user_data=Fn.base64("#cloud-config\n"),
            metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(http_tokens="required"),
        ),
    )
    autoscaling.CfnAutoScalingGroup(
        stack,
        "Pool",
        min_size="0",
        max_size="4",
        vpc_zone_identifier=[subnets["Private", zone].ref for zone in ZONES],
        launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
            launch_template_id=launch.ref, version=launch.attr_latest_version_number
        ),
    )
    for other in REGIONS:
        if other > region:
            ec2.CfnVPCPeeringConnection(
                stack, f"Peer{other}", vpc_id=vpc.ref, peer_vpc_id="vpc-0123456789abcdef0", peer_region=other
            )


app = App(outdir=sys.argv[1])
for name, block in REGIONS.items():
    network(app, name, block)
app.synth()
