# mypy: ignore-errors
"""The same network, written for others: ``peer_networks.py PEER FOLDER`` writes what PEER makes of it.

Three regions, each with a VPC over two zones: an internet gateway, four subnets, a public and a private route
table, a NAT gateway with its address, a security group, a launch template and an Auto Scaling group; and all
regions peered. About 60 resources. ``benchmarks/peers.py`` runs it where a peer is installed.
"""

import sys
from pathlib import Path

REGIONS = {"us-west-2": "10.0.0.0/16", "us-east-1": "10.1.0.0/16", "eu-west-1": "10.2.0.0/16"}
ZONES = ("a", "b")


def troposphere(folder):
    """One CloudFormation template a region."""
    from troposphere import Base64, GetAtt, Ref, Tags, Template, autoscaling, ec2

    def network(region, block):
        template = Template(Description=f"Network of {region}")
        add = template.add_resource
        tags = Tags(environment="bench", site=region)
        base = block.split(".")[1]
        vpc = add(ec2.VPC("Vpc", CidrBlock=block, EnableDnsHostnames=True, Tags=tags))
        gateway = add(ec2.InternetGateway("Gateway", Tags=tags))
        add(ec2.VPCGatewayAttachment("Attachment", VpcId=Ref(vpc), InternetGatewayId=Ref(gateway)))
        tables = {
            tier: add(ec2.RouteTable(f"{tier}Table", VpcId=Ref(vpc), Tags=tags))
            for tier in ("Public", "Private")
        }
        subnets = {}
        for index, zone in enumerate(ZONES):
            for tier, offset in (("Public", 0), ("Private", 100)):
                subnet = add(
                    ec2.Subnet(
                        f"{tier}{zone.upper()}",
                        VpcId=Ref(vpc),
                        CidrBlock=f"10.{base}.{offset + index}.0/24",
                        AvailabilityZone=f"{region}{zone}",
                        Tags=tags,
                    )
                )
                subnets[tier, zone] = subnet
                add(
                    ec2.SubnetRouteTableAssociation(
                        f"{tier}{zone.upper()}Table", SubnetId=Ref(subnet), RouteTableId=Ref(tables[tier])
                    )
                )
        address = add(ec2.EIP("Address", Domain="vpc"))
        nat = add(
            ec2.NatGateway(
                "Nat", AllocationId=GetAtt(address, "AllocationId"), SubnetId=Ref(subnets["Public", "a"])
            )
        )
        everywhere = "0.0.0.0/0"
        add(
            ec2.Route(
                "PublicRoute",
                RouteTableId=Ref(tables["Public"]),
                DestinationCidrBlock=everywhere,
                GatewayId=Ref(gateway),
            )
        )
        add(
            ec2.Route(
                "PrivateRoute",
                RouteTableId=Ref(tables["Private"]),
                DestinationCidrBlock=everywhere,
                NatGatewayId=Ref(nat),
            )
        )
        group = add(
            ec2.SecurityGroup(
                "Nodes",
                GroupDescription="Nodes",
                VpcId=Ref(vpc),
                SecurityGroupIngress=[ec2.SecurityGroupRule(IpProtocol="-1", CidrIp="10.0.0.0/8")],
            )
        )
        launch = add(
            ec2.LaunchTemplate(
                "Launch",
                LaunchTemplateData=ec2.LaunchTemplateData(
                    ImageId="ami-0123456789abcdef0",
                    InstanceType="m6i.xlarge",
                    SecurityGroupIds=[Ref(group)],
                    UserData=Base64("#cloud-config\n"),
                    MetadataOptions=ec2.MetadataOptions(HttpTokens="required"),
                ),
            )
        )
        add(
            autoscaling.AutoScalingGroup(
                "Pool",
                MinSize="0",
                MaxSize="4",
                VPCZoneIdentifier=[Ref(subnets["Private", zone]) for zone in ZONES],
                LaunchTemplate=autoscaling.LaunchTemplateSpecification(
                    LaunchTemplateId=Ref(launch), Version=GetAtt(launch, "LatestVersionNumber")
                ),
            )
        )
        for other in REGIONS:
            if other > region:
                add(
                    ec2.VPCPeeringConnection(
                        "Peer" + other.title().replace("-", ""),
                        VpcId=Ref(vpc),
                        PeerVpcId="vpc-0123456789abcdef0",
                        PeerRegion=other,
                    )
                )
        return template

    for name, block in REGIONS.items():
        (Path(folder) / f"{name}.json").write_text(network(name, block).to_json())


def cdk(folder):
    """The AWS CDK: one stack a region, from level-1 constructs."""
    from aws_cdk import App, CfnTag, Environment, Fn, Stack
    from aws_cdk import aws_autoscaling as autoscaling
    from aws_cdk import aws_ec2 as ec2

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
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(ip_protocol="-1", cidr_ip="10.0.0.0/8")
            ],
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
                    stack,
                    f"Peer{other}",
                    vpc_id=vpc.ref,
                    peer_vpc_id="vpc-0123456789abcdef0",
                    peer_region=other,
                )

    app = App(outdir=folder)
    for name, block in REGIONS.items():
        network(app, name, block)
    app.synth()


def cdktf(folder):
    """The CDK for Terraform with prebuilt AWS bindings: one stack, a provider a region."""
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

    def network(stack, region, block):
        provider = AwsProvider(stack, f"aws-{region}", region=region, alias=region)
        tags = {"environment": "bench", "site": region}
        common = {"provider": provider, "tags": tags}
        base = block.split(".")[1]
        vpc = Vpc(stack, f"{region}-vpc", cidr_block=block, enable_dns_hostnames=True, **common)
        gateway = InternetGateway(stack, f"{region}-gateway", vpc_id=vpc.id, **common)
        tables = {
            tier: RouteTable(stack, f"{region}-{tier}", vpc_id=vpc.id, **common)
            for tier in ("public", "private")
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

    app = App(outdir=folder)
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


{"troposphere": troposphere, "cdk": cdk, "cdktf": cdktf}[sys.argv[1]](sys.argv[2])
