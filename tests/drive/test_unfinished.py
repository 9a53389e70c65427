"""Ctrl-C while AWS creates: the next plan finds what came about, and destroy leaves none of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drive.applying import apply_saved, in_state
from localaws.control import Control
from localaws.faults import late

from infra.drive import last_applied, lifecycle, localaws, unfinished, workspace
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job
from infra.drive.localaws import Server
from infra.drive.terraform import Silence, StoppedError, TerraformError
from infra.drive.unfinished import Creation
from infra.errors import DriveError

pytestmark = pytest.mark.timeout(1200)

REGION = "us-west-2"

ROOT = """\
terraform {
  backend "local" {
    path = "../state/terraform.tfstate"
  }
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

provider "aws" {
  alias  = "us_west_2"
  region = "us-west-2"
  default_tags {
    tags = { environment = "lab" }
  }
}

module "us_west_2" {
  source    = "./modules/site"
  providers = { aws = aws.us_west_2 }
}
"""

MODULE = """\
terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

resource "aws_launch_template" "this" {
  for_each      = toset(["lab-a.b"])
  name          = each.key
  image_id      = "ami-0123456789abcdef0"
  instance_type = "m5.large"
  tags          = { Name = each.key }
}
"""

MORE = """\

resource "aws_placement_group" "this" {
  name     = "lab"
  strategy = "cluster"
}

resource "aws_iam_role" "this" {
  name = "lab"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_openid_connect_provider" "this" {
  url             = "https://tokens.lab.example"
  client_id_list  = ["sts.amazonaws.com"]
  thumbprint_list = ["cf23df2207d99a74fbe169e3eba035e633b65d94"]
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/lab/flow-logs"
  retention_in_days = 7
}

resource "aws_s3_bucket" "this" {
  bucket = "lab-datasets"
  tags   = { Name = "lab-datasets" }
}

resource "aws_efs_file_system" "this" {
  creation_token = "lab-home"
  encrypted      = true
}

resource "aws_route53_zone" "this" {
  name    = "lab.example"
  comment = "Machines by name."
}

resource "aws_eip" "this" {
  domain = "vpc"
  tags   = { Name = "lab-nat" }
}

resource "aws_vpc" "this" {
  cidr_block = "10.71.0.0/16"
  tags       = { Name = "lab" }
}

resource "aws_security_group" "this" {
  name   = "lab-nodes"
  vpc_id = aws_vpc.this.id
  tags   = { Name = "lab-nodes" }
}
"""

CALLS = (
    "AllocateAddress", "CreateBucket", "CreateFileSystem", "CreateHostedZone", "CreateLaunchTemplate",
    "CreateLogGroup", "CreateOpenIDConnectProvider", "CreatePlacementGroup", "CreateRole", "CreateVpc",
)  # fmt: skip
"""As many as Terraform makes at once."""

DISTRIBUTION = {
    "CallerReference": "lab", "Comment": "", "Enabled": True,
    "Origins": {
        "Quantity": 1,
        "Items": [{
            "Id": "store", "DomainName": "lab-tokens.s3.us-west-2.amazonaws.com",
            "S3OriginConfig": {"OriginAccessIdentity": ""},
        }],
    },
    "DefaultCacheBehavior": {
        "TargetOriginId": "store", "ViewerProtocolPolicy": "https-only",
        "CachePolicyId": "658327ea-f89d-4fab-a63d-7e88639e58f6",
    },
}  # fmt: skip

SITE = "module.us_west_2"
TEMPLATE = f'{SITE}.aws_launch_template.this["lab-a.b"]'


def make(build: Path, cloud: Server, engine: Engine, module: str = MODULE) -> Job:
    files = {"terraform/main.tf": ROOT, "terraform/modules/site/main.tf": module}
    workspace.write(build, files)
    env = localaws.environment(cloud, REGION)
    return Job("lab", build, engine, files, spec="", lock="", env=env, sites={"us_west_2": REGION})


def stopped(job: Job, cloud: Server, *calls: str) -> None:
    """Ctrl-C, twice, once AWS has done these calls and answered none."""
    lifecycle.plan(job)
    Control(cloud).order(*(late(call, 900) for call in calls))

    class Hasty(Silence):
        pressed = 0

        def beat(self) -> None:
            if self.pressed < 2 and not Control(cloud).faults():
                self.pressed += 1
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(StoppedError):
        apply_saved(job, listener=Hasty())
    Control(cloud).clear_faults()


def test_what_aws_created_though_the_apply_was_stopped_is_taken_into_the_state(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    job = make(tmp_path / "lab", cloud, engine, MODULE + MORE)
    stopped(job, cloud, *CALLS)
    assert in_state(job) == []
    before = cloud.control.inventory()
    planned = lifecycle.plan(job)
    assert len(planned.adopted) == len(CALLS)
    assert TEMPLATE in planned.adopted
    left = [one.address for one in planned.plan.changes if one.action not in ("update", "read")]
    assert left == [f"{SITE}.aws_security_group.this"], "nothing is created again, and nothing replaced"
    apply_saved(job)
    assert cloud.control.inventory()["global"] == before["global"]
    planned = lifecycle.plan(job)
    assert (planned.exit_code, planned.adopted) == (0, ())
    lifecycle.plan(job, destroy=True)
    apply_saved(job)
    assert cloud.control.inventory() == {}


def test_destroy_finds_it_too_also_where_the_spec_has_it_no_more(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    job = make(tmp_path / "lab", cloud, engine, MODULE + MORE)
    stopped(job, cloud, *CALLS)
    lifecycle.plan(make(tmp_path / "lab", cloud, engine, MODULE), destroy=True)
    apply_saved(make(tmp_path / "lab", cloud, engine, MODULE))
    assert cloud.control.inventory() == {}
    assert last_applied.about(job.folders) is None


ROLE = MORE[MORE.index('resource "aws_iam_role"') : MORE.index('resource "aws_iam_openid')]
VPC = MORE[MORE.index('resource "aws_vpc"') : MORE.index('resource "aws_security_group"')]
ROLE_ADDRESS, VPC_ADDRESS = f"{SITE}.aws_iam_role.this", f"{SITE}.aws_vpc.this"


def test_what_is_not_ours_is_refused_by_name_and_never_adopted(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    """Somebody's; and another clone's, without a common state: the second must not take, and then destroy,
    what the first has."""
    module = MODULE + ROLE + VPC
    first, second = (make(tmp_path / name, cloud, engine, module) for name in ("first", "second"))
    ec2 = first.aws().client("ec2", REGION)
    data = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large"}
    made = ec2.create_launch_template(LaunchTemplateName="lab-a.b", LaunchTemplateData=data)
    identifier = made["LaunchTemplate"]["LaunchTemplateId"]
    lifecycle.plan(first)
    with pytest.raises(TerraformError, match="AlreadyExists"):
        apply_saved(first)
    with pytest.raises(DriveError) as caught:
        lifecycle.plan(first)
    assert TEMPLATE in str(caught.value)
    assert identifier in str(caught.value)
    assert TEMPLATE not in in_state(first)
    ec2.delete_launch_template(LaunchTemplateId=identifier)
    lifecycle.plan(first)
    apply_saved(first)
    assert in_state(first) == sorted((ROLE_ADDRESS, TEMPLATE, VPC_ADDRESS))
    before = cloud.control.inventory()

    lifecycle.plan(second)
    with pytest.raises(TerraformError, match="AlreadyExists"):
        apply_saved(second)
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    for _ in range(2):
        with pytest.raises(DriveError) as caught:
            lifecycle.plan(second)
        assert {TEMPLATE, ROLE_ADDRESS, template["LaunchTemplateId"]} <= {
            word.rstrip(":") for word in str(caught.value).split()
        }
        assert in_state(second) == [VPC_ADDRESS], "a second one of its own"

    assert lifecycle.plan(second, destroy=True).adopted == ()
    apply_saved(second)
    assert cloud.control.inventory() == before
    lifecycle.plan(first, destroy=True)
    apply_saved(first)
    assert cloud.control.inventory() == {}


def a(kind: str, tags: Mapping[str, str] | None = None, **values: Any) -> Creation:
    given = {"environment": "lab", **(tags or {})}
    return Creation(kind, "", kind, "this", None, "", 0, REGION, given, values)


def test_what_no_root_above_has_is_found_by_name_and_tag(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    aws = make(tmp_path / "lab", cloud, engine).aws()
    ec2, cloudfront = aws.client("ec2", REGION), aws.client("cloudfront", REGION)
    tags = [{"Key": "environment", "Value": "lab"}, {"Key": "Name", "Value": "lab-x"}]
    vpc = ec2.create_vpc(CidrBlock="10.72.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.72.0.0/20")["Subnet"]["SubnetId"]
    named = [{"ResourceType": "transit-gateway", "Tags": tags}]
    gateway = ec2.create_transit_gateway(TagSpecifications=named)["TransitGateway"]["TransitGatewayId"]
    named = [{"ResourceType": "transit-gateway-attachment", "Tags": tags}]
    attachment = ec2.create_transit_gateway_vpc_attachment(
        TransitGatewayId=gateway, VpcId=vpc, SubnetIds=[subnet], TagSpecifications=named
    )["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
    control = cloudfront.create_origin_access_control(
        OriginAccessControlConfig={
            "Name": "lab-tokens", "Description": "Ours.", "SigningProtocol": "sigv4",
            "SigningBehavior": "always", "OriginAccessControlOriginType": "s3",
        }
    )["OriginAccessControl"]["Id"]  # fmt: skip
    distribution = cloudfront.create_distribution_with_tags(
        DistributionConfigWithTags={"DistributionConfig": DISTRIBUTION, "Tags": {"Items": tags}}
    )["Distribution"]["Id"]
    aws.client("s3", REGION).create_bucket(
        Bucket="lab-full", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    aws.client("s3", REGION).put_object(Bucket="lab-full", Key="somebodys", Body=b"")

    name = {"Name": "lab-x"}
    found = unfinished.find(
        aws,
        [
            a("aws_ec2_transit_gateway", name),
            a("aws_ec2_transit_gateway_vpc_attachment", name),
            a("aws_cloudfront_origin_access_control", name="lab-tokens", description="Ours."),
            a("aws_cloudfront_distribution", name),
            a("aws_s3_bucket", bucket="lab-full"),
            a("aws_s3_bucket", bucket="lab-none"),
            a("aws_vpc", {"Name": "lab-none"}),
            a("aws_eip", {"Name": "lab-x", "environment": "another"}),
        ],
    )
    assert {one.type: identifier for one, identifier in found.ours} == {
        "aws_ec2_transit_gateway": gateway,
        "aws_ec2_transit_gateway_vpc_attachment": attachment,
        "aws_cloudfront_origin_access_control": control,
        "aws_cloudfront_distribution": distribution,
    }
    assert [identifier for _, identifier in found.foreign] == ["lab-full"]
    known = [("aws_ec2_transit_gateway", gateway)]
    assert unfinished.find(aws, [a("aws_ec2_transit_gateway", name)], known) == unfinished.Found()


def test_more_than_a_page_is_found(tmp_path: Path, cloud: Server, engine: Engine) -> None:
    aws = make(tmp_path / "lab", cloud, engine).aws()
    ec2, names = aws.client("ec2", REGION), [f"lab-page-{number}" for number in range(20)]
    tags = [{"Key": "environment", "Value": "lab"}]
    for name in names:
        ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={"InstanceType": "m5.large"},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
        )
    asked = [replace(a("aws_launch_template", name=name), address=name) for name in names]
    assert sorted(one.address for one, _ in unfinished.find(aws, asked).ours) == sorted(names)
