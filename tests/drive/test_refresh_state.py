"""AWS does not find for a moment what it has: nothing leaves the state.

One embedded AWS and two applies of a dozen resources, then a plan for each round of faults.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from drive.applying import apply_saved, in_state
from localaws.control import Control
from localaws.faults import absent, refused, slow

from infra.drive import lifecycle, localaws, workspace
from infra.drive import refresh as settling
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job
from infra.drive.localaws import Server
from infra.drive.terraform import Silence, StoppedError, TerraformError
from infra.errors import ProtectedError

pytestmark = pytest.mark.timeout(1200)

PROVIDER = """\
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
  region = "us-west-2"
  default_tags {
    tags = { text = "TEXT" }
  }
}

"""

ROOT = """\
resource "aws_vpc" "this" {
  cidr_block           = "10.71.0.0/16"
  enable_dns_hostnames = true
  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_subnet" "this" {
  vpc_id     = aws_vpc.this.id
  cidr_block = "10.71.0.0/20"
}

resource "aws_security_group" "this" {
  name   = "settling"
  vpc_id = aws_vpc.this.id
}

resource "aws_vpc_security_group_ingress_rule" "this" {
  security_group_id = aws_security_group.this.id
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
  cidr_ipv4         = "10.0.0.0/8"
}

resource "aws_route_table" "this" {
  vpc_id = aws_vpc.this.id
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
}

resource "aws_route" "this" {
  route_table_id         = aws_route_table.this.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_eip" "this" {
  domain = "vpc"
}

resource "aws_s3_bucket" "this" {
  bucket = "settling-bucket"
}

resource "aws_iam_role" "this" {
  name               = "settling"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_launch_template" "this" {
  name          = "settling"
  image_id      = "ami-0123456789abcdef0"
  instance_type = "m5.large"
}

resource "aws_autoscaling_group" "this" {
  name                = "settling"
  min_size            = 0
  max_size            = 1
  vpc_zone_identifier = [aws_subnet.this.id]
  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }
}

resource "aws_route53_zone" "this" {
  name = "settling.example"
}
"""

WITHOUT_VPC = {
    f"aws_{kind}.this" for kind in ("eip", "s3_bucket", "iam_role", "launch_template", "route53_zone")
}
"""What does not wait for the VPC."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settling") / "lab"


def of(build: Path, cloud: Server, engine: Engine, resources: str, text: str = "one") -> Job:
    """A root of these resources; ``text``: a tag of each."""
    files = {"terraform/main.tf": PROVIDER.replace("TEXT", text) + resources}
    workspace.write(build, files)
    env = localaws.environment(cloud, "us-west-2")
    return Job("lab", build, engine, files, spec="", lock="", env=env)


def taint(job: Job, kind: str) -> str:
    """As an apply leaves a resource whose creation failed. Its id."""
    state = job.terraform().pull()
    (instance,) = next(one["instances"] for one in state["resources"] if one["type"] == kind)
    instance["status"] = "tainted"
    job.terraform().push({**state, "serial": state["serial"] + 1})
    return str(instance["attributes"]["id"])


def test_a_stopped_creation_is_completed_and_a_fault_loses_nothing(
    build: Path, cloud: Server, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "PAUSES", (0.01,))
    job = of(build, cloud, engine, ROOT)
    stopped_while_creating(job, cloud)
    reads = refreshed_under_faults(job, cloud)
    assert {"DescribeVpcs", "DescribeSubnets", "DescribeSecurityGroups", "GetRole", "HeadBucket"} <= reads
    applied_under_faults(job, of(build, cloud, engine, ROOT, "two"), cloud)


def stopped_while_creating(job: Job, cloud: Server) -> None:
    """Ctrl-C while the VPC exists and is not ready: it is completed, by no option at all."""
    lifecycle.plan(job)
    Control(cloud).order(slow("DescribeVpcs", 900, times=1))
    running: set[str] = set()
    done: set[str] = set()

    class Hasty(Silence):
        pressed = False

        def event(self, event: Mapping[str, Any]) -> None:
            address = event.get("hook", {}).get("resource", {}).get("addr", "")
            if event["type"] == "apply_start":
                running.add(address)
            elif event["type"] in ("apply_complete", "apply_errored"):
                running.discard(address)
                done.add(address)

        def beat(self) -> None:
            # The VPC is there, and asked for; nothing else is in the making, or about to be.
            if (
                not self.pressed
                and done == WITHOUT_VPC
                and running == {"aws_vpc.this"}
                and not Control(cloud).faults()
            ):
                self.pressed = True
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(StoppedError, match=r"(?m)^  aws_vpc\.this$"):
        apply_saved(job, listener=Hasty())
    Control(cloud).clear_faults()
    assert "aws_vpc.this" in in_state(job)
    planned = lifecycle.plan(job)
    assert planned.plan.protected == ()
    assert "aws_vpc.this" not in {one.address for one in planned.plan.changes if one.action == "create"}
    # A run that was killed could not say so: the next plan sees the mark, and keeps the VPC all the same.
    taint(job, "aws_vpc")
    planned = lifecycle.plan(job)
    assert planned.untainted == ("aws_vpc.this",)
    assert planned.plan.protected == ()
    assert apply_saved(job) == lifecycle.Outcome()
    assert len(cloud.control.inventory()["us-west-2"]["ec2.vpcs"]) == 1


def refreshed_under_faults(job: Job, cloud: Server) -> set[str]:
    """Each read of a refresh is hit in turn, as many at a time as are not behind each other; the actions."""
    held, waiting = in_state(job), set(READS)
    Control(cloud).order(absent("DescribeVpcs"))
    settled = settling.settle(job.terraform(), job.folders.state / "fault.tfplan", pauses=())
    assert settled.unread == ("aws_vpc.this",)
    assert in_state(job) == held
    hit: set[str] = set()
    while True:
        Control(cloud).order(*(absent(action) for action in sorted(waiting)))
        settled = settling.settle(job.terraform(), job.folders.state / "fault.tfplan", pauses=())
        assert in_state(job) == held, settled
        left = {fault.action for fault in Control(cloud).faults()}
        Control(cloud).clear_faults()
        if left == waiting:
            return hit
        hit |= waiting - left
        waiting = left


READS = (
    "DescribeVpcs", "DescribeVpcAttribute", "DescribeNetworkAcls", "DescribeRouteTables",
    "DescribeSecurityGroups", "DescribeSecurityGroupRules", "DescribeSubnets", "DescribeInternetGateways",
    "DescribeAddresses", "DescribeAddressesAttribute", "DescribeLaunchTemplates",
    "DescribeLaunchTemplateVersions", "DescribeAutoScalingGroups", "DescribeTags", "DescribeWarmPool",
    "GetRole", "ListRolePolicies", "ListAttachedRolePolicies", "GetHostedZone", "ListTagsForResource",
    "ListResourceRecordSets", "HeadBucket", "GetBucketPolicy", "GetBucketAcl", "GetBucketCors",
    "GetBucketWebsite", "GetBucketVersioning", "GetBucketAccelerateConfiguration", "GetBucketRequestPayment",
    "GetBucketLogging", "GetBucketLifecycleConfiguration", "GetBucketReplication", "GetBucketEncryption",
    "GetObjectLockConfiguration", "GetBucketLocation", "GetBucketTagging",
)  # fmt: skip
"""What the provider asks of these resources."""


def applied_under_faults(before: Job, job: Job, cloud: Server) -> None:
    """Every resource is changed, and the VPC is not found when it is read again."""
    held = in_state(before)
    lifecycle.plan(job)
    Control(cloud).order(absent("DescribeVpcs"))
    # The provider reports that its object is gone, and Terraform that this is a fault of the provider.
    with pytest.raises(TerraformError, match="now absent"):
        apply_saved(job)
    Control(cloud).clear_faults()
    assert sorted(in_state(job)) == sorted(held)
    planned = lifecycle.plan(job)
    assert planned.plan.count("create") == planned.plan.count("replace") == planned.plan.count("delete") == 0
    apply_saved(job)
    # Tags of launch templates stay as they were created in the embedded AWS: that would change again.
    left = {one.type for one in lifecycle.plan(job).plan.changes}
    assert left <= {"aws_launch_template", "aws_autoscaling_group"}


CREATED_FIRST = """\
resource "aws_customer_gateway" "this" {
  type        = "ipsec.1"
  ip_address  = "198.51.100.7"
  bgp_asn     = 65010
  device_name = "lab"
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_iam_role" "this" {
  name               = "cut-off"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
  lifecycle {
    create_before_destroy = true
  }
}
"""


def test_what_would_be_created_first_again_is_not_in_its_own_way(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    """A role whose creation was cut off: Terraform would create it again before it destroys it, and AWS
    refuses that, at each apply. A customer gateway would be found, and then deleted."""
    job = of(tmp_path / "lab", cloud, engine, CREATED_FIRST)
    lifecycle.plan(job)
    Control(cloud).order(absent("ListRolePolicies"))
    with pytest.raises(TerraformError, match=r"(?m)^  aws_iam_role\.this$"):
        apply_saved(job)
    Control(cloud).clear_faults()
    assert lifecycle.plan(job).plan.changes == ()
    apply_saved(job)
    # A run that was killed could not say so.
    identifier, _ = taint(job, "aws_customer_gateway"), taint(job, "aws_iam_role")
    planned = lifecycle.plan(job)
    assert planned.untainted == ("aws_customer_gateway.this", "aws_iam_role.this")
    assert planned.plan.changes == ()
    apply_saved(job)
    ec2 = job.aws().client("ec2", "us-west-2")
    rows = ec2.describe_customer_gateways(CustomerGatewayIds=[identifier])["CustomerGateways"]
    assert [row["State"] for row in rows] == ["available"]


INSTANCES = """\
resource "aws_vpc" "this" {
  cidr_block = "10.BLOCK.0.0/16"
  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_subnet" "this" {
  vpc_id     = aws_vpc.this.id
  cidr_block = "10.BLOCK.0.0/20"
}

resource "aws_launch_template" "this" {
  name          = "refusing"
  image_id      = "ami-0123456789abcdef0"
  instance_type = "m5.large"
}

resource "aws_autoscaling_group" "this" {
  name                = "refusing-BLOCK"
  min_size            = 1
  max_size            = 1
  vpc_zone_identifier = [aws_subnet.this.id]
  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }
}
"""


def test_what_could_not_be_made_again_is_not_put_back_and_a_refusal_names_groups_with_instances(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    build, resources = tmp_path / "lab", INSTANCES.replace("BLOCK", "72")
    job = of(build, cloud, engine, resources[: resources.index('resource "aws_launch_template"')])
    lifecycle.plan(job)
    apply_saved(job)
    state = job.terraform().pull()
    subnet = next(one for one in state["resources"] if one["type"] == "aws_subnet")
    job.aws().client("ec2", "us-west-2").delete_subnet(SubnetId=subnet["instances"][0]["attributes"]["id"])
    lifecycle.plan(job)
    Control(cloud).order(refused("CreateSubnet", "SubnetLimitExceeded", "no more subnets"))
    with pytest.raises(TerraformError):
        apply_saved(job)
    Control(cloud).clear_faults()
    assert in_state(job) == ["aws_vpc.this"]
    job = of(build, cloud, engine, resources)
    planned = lifecycle.plan(job)
    assert [(one.action, one.address) for one in planned.plan.changes] == [
        ("create", f"aws_{kind}.this") for kind in ("autoscaling_group", "launch_template", "subnet")
    ]
    apply_saved(job)
    # What Terraform refuses is the VPC; whoever names that alone would be refused again.
    with pytest.raises(ProtectedError) as caught:
        lifecycle.plan(of(build, cloud, engine, INSTANCES.replace("BLOCK", "74")))
    (command,) = (line for line in str(caught.value).splitlines() if "invoke plan" in line)
    assert {"aws_vpc.this", "aws_autoscaling_group.this"} <= set(command.split())


DRIFTS = """\
resource "aws_vpc" "this" {
  cidr_block           = "10.75.0.0/16"
  enable_dns_hostnames = true
  tags                 = { edit = "EDIT" }
  lifecycle {
    ignore_changes = [enable_dns_hostnames]
  }
}
"""


def test_drift_that_an_apply_leaves_is_named_until_it_is_gone(
    tmp_path: Path, cloud: Server, engine: Engine
) -> None:
    def edited(text: str) -> Job:
        return of(tmp_path / "lab", cloud, engine, DRIFTS.replace("EDIT", text))

    job = edited("one")
    lifecycle.plan(job)
    apply_saved(job)
    ec2 = job.aws().client("ec2", "us-west-2")
    (row,) = (one for one in job.terraform().pull()["resources"] if one["type"] == "aws_vpc")
    vpc = row["instances"][0]["attributes"]["id"]

    def told() -> list[str]:
        found = lifecycle.drift(edited("two"))
        assert found.exit_code == (2 if found.changes else 0)
        return [each.path for one in found.changes for each in one.attributes]

    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": False})
    assert [each.path for one in lifecycle.drift(job).changes for each in one.attributes] == [
        "enable_dns_hostnames"
    ]
    job = edited("two")
    planned = lifecycle.plan(job)
    assert [(one.address, one.attributes[0].path) for one in planned.lasting] == [
        ("aws_vpc.this", "enable_dns_hostnames")
    ]
    apply_saved(job)
    assert told() == ["enable_dns_hostnames"], "though the state has it now"
    planned = lifecycle.plan(job)
    assert (planned.exit_code, len(planned.lasting)) == (0, 1)
    apply_saved(job)
    assert told() == ["enable_dns_hostnames"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    assert told() == []
    assert lifecycle.plan(job).lasting == ()
