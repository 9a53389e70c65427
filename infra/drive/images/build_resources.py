"""The resources of a build instance: a subnet with internet access, a security group, a key pair.

They are created here rather than by Packer so that they have the bake's tags from creation, whatever
Packer's version: those left by a killed bake can be found. The key is ed25519: Packer 1.6 would create an
RSA key and sign with SHA-1, which OpenSSH since 8.8, and so Ubuntu since 22.04, refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.drive.aws import Aws, aws_errors
from infra.drive.secret_files import write_file
from infra.errors import DriveError

CHECKIP: Final = "https://checkip.amazonaws.com"
"""Returns the caller's public address (AWS, "IP address ranges")."""

_NEEDS: Final = (
    "ec2:DescribeVpcs", "ec2:DescribeSubnets", "ec2:CreateSecurityGroup", "ec2:AuthorizeSecurityGroupIngress",
    "ec2:ImportKeyPair", "ec2:CreateTags",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a build instance is placed."""

    vpc: str
    subnet: str


@dataclass(frozen=True, slots=True)
class BuildResources:
    """The resources created for one bake."""

    place: Place
    security_group: str
    key_pair: str
    private_key_file: Path


def place(aws: Aws, region: str, environment: str, instance_type: str, subnet: str = "") -> Place:
    """The given subnet; else a public one of the environment; else one of the default VPC.

    In a zone that offers the instance type. Raises ``DriveError`` if there is none.
    """
    ec2 = aws.client("ec2", region)
    with aws_errors(f"look for a subnet in {region}", needs=_NEEDS, quoting=True):
        if subnet:
            return _place(ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0])
        offers = ec2.describe_instance_type_offerings(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [instance_type]}]
        )["InstanceTypeOfferings"]
        zones = {offer["Location"] for offer in offers}
        for filters in (
            {"tag:environment": environment, "tag:managed-by": "causeway", "tag:tier": "public"},
            {"default-for-az": "true"},
        ):
            rows = ec2.describe_subnets(
                Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()]
            )["Subnets"]
            fitting = [row for row in rows if row["AvailabilityZone"] in zones]
            if fitting:
                return _place(min(fitting, key=lambda row: str(row["AvailabilityZone"])))
    if not zones:
        raise DriveError(f"{instance_type} is not offered in {region}; give the image another build type")
    there = ", ".join(sorted(zones))
    raise DriveError(
        f"no subnet in {region} for a build instance: the account has no default VPC there, and no public "
        f"subnet of {environment} is in a zone that offers {instance_type} ({there}); apply {environment} "
        "first, or name a subnet that reaches the internet: --subnet"
    )


def _place(row: Mapping[str, Any]) -> Place:
    return Place(row["VpcId"], row["SubnetId"])


def own_address(env: Mapping[str, str]) -> str:
    """The address of this computer as AWS sees it, as a /32 block."""
    if env.get("AWS_ENDPOINT_URL"):
        return "127.0.0.0/8"  # a custom endpoint is on this computer
    from ipaddress import IPv4Address
    from urllib.request import urlopen

    try:
        with urlopen(CHECKIP, timeout=10) as answer:
            return f"{IPv4Address(answer.read().decode().strip())}/32"
    except (OSError, ValueError) as problem:
        raise DriveError(
            f"{CHECKIP} does not tell our own public address ({problem}), from which alone SSH would be let "
            "in; name the block you come from: --ssh-from"
        ) from None


def make(
    aws: Aws, region: str, where: Place, bake: str, ssh_from: str, tags: Mapping[str, str], folder: Path
) -> BuildResources:
    """Create the resources of the instance; the private key is written to ``folder`` with mode 0600."""
    name = f"causeway-{bake}"
    ec2 = aws.client("ec2", region)
    private, public = key()
    file = folder / f"{bake}.key"
    write_file(file, private)
    with aws_errors(f"prepare a build instance in {region}", needs=_NEEDS, quoting=True):
        ec2.import_key_pair(
            KeyName=name, PublicKeyMaterial=public, TagSpecifications=_tagged("key-pair", tags)
        )
        group = ec2.create_security_group(
            GroupName=name,
            Description="SSH to a build instance of Causeway, while it is baked",
            VpcId=where.vpc,
            TagSpecifications=_tagged("security-group", tags),
        )["GroupId"]
        ec2.authorize_security_group_ingress(
            GroupId=group,
            IpPermissions=[
                {
                    "IpProtocol": "tcp",
                    "FromPort": 22,
                    "ToPort": 22,
                    "IpRanges": [{"CidrIp": ssh_from, "Description": "who bakes"}],
                }
            ],
        )
    return BuildResources(where, group, name, file)


def key() -> tuple[bytes, bytes]:
    """A new ed25519 key pair in OpenSSH's formats: private, public."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    made = Ed25519PrivateKey.generate()
    return (
        made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        made.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
    )


def _tagged(kind: str, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
