# mypy: ignore-errors
"""The network for troposphere: one CloudFormation template a region."""

import sys
from pathlib import Path

from troposphere import Base64, GetAtt, Ref, Tags, Template, autoscaling, ec2

REGIONS = {"us-west-2": "10.0.0.0/16", "us-east-1": "10.1.0.0/16", "eu-west-1": "10.2.0.0/16"}
ZONES = ("a", "b")


def network(region, block):
    template = Template(Description=f"Network of {region}")
    add = template.add_resource
    tags = Tags(environment="bench", site=region)
    base = block.split(".")[1]
    vpc = add(ec2.VPC("Vpc", CidrBlock=block, EnableDnsHostnames=True, Tags=tags))
    gateway = add(ec2.InternetGateway("Gateway", Tags=tags))
    add(ec2.VPCGatewayAttachment("Attachment", VpcId=Ref(vpc), InternetGatewayId=Ref(gateway)))
    tables = {
        tier: add(ec2.RouteTable(f"{tier}Table", VpcId=Ref(vpc), Tags=tags)) for tier in ("Public", "Private")
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
    (Path(sys.argv[1]) / f"{name}.json").write_text(network(name, block).to_json())
