# mypy: ignore-errors
"""The network for the CDK for Terraform with prebuilt AWS bindings: one stack, a provider a region."""

import sys

from cdktf import App, TerraformStack
from cdktf_cdktf_provider_aws.autoscaling_group import AutoscalingGroup, AutoscalingGroupLaunchTemplate
from cdktf_cdktf_provider_aws.eip import Eip
from cdktf_cdktf_provider_aws.internet_gateway import InternetGateway
from cdktf_cdktf_provider_aws.launch_template import LaunchTemplate, LaunchTemplateMetadataOptions
from cdktf_cdktf_provider_aws.nat_gateway import NatGateway
from cdktf_cdktf_provider_aws.provider import AwsProvider
from cdktf_cdktf_provider_aws.route import Route
from cdktf_cdktf_provider_aws.route_table import RouteTable
from cdktf_cdktf_provider_aws.route_table_association import RouteTableAssociation
from cdktf_cdktf_provider_aws.security_group import SecurityGroup, SecurityGroupIngress
from cdktf_cdktf_provider_aws.subnet import Subnet
from cdktf_cdktf_provider_aws.vpc import Vpc
from cdktf_cdktf_provider_aws.vpc_peering_connection import VpcPeeringConnection

REGIONS = {"us-west-2": "10.0.0.0/16", "us-east-1": "10.1.0.0/16", "eu-west-1": "10.2.0.0/16"}
ZONES = ("a", "b")


def network(stack, region, block):
    provider = AwsProvider(stack, f"aws-{region}", region=region, alias=region)
    tags = {"environment": "bench", "site": region}
    common = {"provider": provider, "tags": tags}
    base = block.split(".")[1]
    vpc = Vpc(stack, f"{region}-vpc", cidr_block=block, enable_dns_hostnames=True, **common)
    gateway = InternetGateway(stack, f"{region}-gateway", vpc_id=vpc.id, **common)
    tables = {
        tier: RouteTable(stack, f"{region}-{tier}", vpc_id=vpc.id, **common) for tier in ("public", "private")
    }
    subnets = {}
    for index, zone in enumerate(ZONES):
        for tier, offset in (("public", 0), ("private", 100)):
            subnet = Subnet(
                stack,
                f"{region}-{tier}-{zone}",
                vpc_id=vpc.id,
                cidr_block=f"10.{base}.{offset + index}.0/24",
                availability_zone=f"{region}{zone}",
                **common,
            )
            subnets[tier, zone] = subnet
            RouteTableAssociation(
                stack,
                f"{region}-{tier}-{zone}-table",
                subnet_id=subnet.id,
                route_table_id=tables[tier].id,
                provider=provider,
            )
    address = Eip(stack, f"{region}-address", domain="vpc", **common)
    nat = NatGateway(
        stack, f"{region}-nat", allocation_id=address.id, subnet_id=subnets["public", "a"].id, **common
    )
    everywhere = "0.0.0.0/0"
    Route(
        stack,
        f"{region}-public-route",
        route_table_id=tables["public"].id,
        destination_cidr_block=everywhere,
        gateway_id=gateway.id,
        provider=provider,
    )
    Route(
        stack,
        f"{region}-private-route",
        route_table_id=tables["private"].id,
        destination_cidr_block=everywhere,
        nat_gateway_id=nat.id,
        provider=provider,
    )
    group = SecurityGroup(
        stack,
        f"{region}-nodes",
        vpc_id=vpc.id,
        ingress=[SecurityGroupIngress(from_port=0, to_port=0, protocol="-1", cidr_blocks=["10.0.0.0/8"])],
        **common,
    )
    launch = LaunchTemplate(
        stack,
        f"{region}-launch",
        image_id="ami-0123456789abcdef0",
        instance_type="m6i.xlarge",
        vpc_security_group_ids=[group.id],
        metadata_options=LaunchTemplateMetadataOptions(http_tokens="required"),
        **common,
    )
    AutoscalingGroup(
        stack,
        f"{region}-pool",
        min_size=0,
        max_size=4,
        vpc_zone_identifier=[subnets["private", zone].id for zone in ZONES],
        launch_template=AutoscalingGroupLaunchTemplate(id=launch.id, version="$Latest"),
        provider=provider,
    )
    return vpc, provider


app = App(outdir=sys.argv[1])
stack = TerraformStack(app, "network")
vpcs = {name: network(stack, name, block) for name, block in REGIONS.items()}
for requester, (vpc, provider) in vpcs.items():
    for accepter, (other, _) in vpcs.items():
        if accepter > requester:
            VpcPeeringConnection(
                stack,
                f"{requester}-{accepter}",
                vpc_id=vpc.id,
                peer_vpc_id=other.id,
                peer_region=accepter,
                provider=provider,
            )
app.synth()
