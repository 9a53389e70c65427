"""AWS does not find for a moment what it has: nothing leaves the state.

One embedded AWS and two applies of a dozen resources, then a plan for each round of faults.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from drive.applying import apply_saved, in_state

from infra.drive import lifecycle, localaws, workspace
from infra.drive import refresh as settling
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job
from infra.drive.localaws import Server
from infra.drive.terraform import Silence, StoppedError, TerraformError
from infra.localaws.faults import absent, slow

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
  region = "us-west-2"
  default_tags {
    tags = { text = "TEXT" }
  }
}

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = localaws.start(tmp_path_factory.mktemp("settling") / "aws", "settling")
    yield server
    localaws.stop(server.folder)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settling") / "lab"


def make(build: Path, server: Server, engine: Engine, text: str) -> Job:
    files = {"terraform/main.tf": ROOT.replace("TEXT", text)}
    workspace.write(build, files)
    env = localaws.environment(server, "us-west-2")
    return Job("lab", build, engine, files, spec="", lock="", env=env)


def test_a_stopped_creation_is_completed_and_a_fault_loses_nothing(
    build: Path, server: Server, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "PAUSES", (0.01,))
    job = make(build, server, engine, "one")
    stopped_while_creating(job, server)
    reads = refreshed_under_faults(job, server)
    assert {"DescribeVpcs", "DescribeSubnets", "DescribeSecurityGroups", "GetRole", "HeadBucket"} <= reads
    applied_under_faults(job, make(build, server, engine, "two"), server)


def stopped_while_creating(job: Job, server: Server) -> None:
    """Ctrl-C while the VPC exists and is not ready: it is completed, by no option at all."""
    lifecycle.plan(job)
    server.control.order(slow("DescribeVpcs", 120, times=1))
    running: set[str] = set()

    class Hasty(Silence):
        pressed = False

        def event(self, event: Mapping[str, Any]) -> None:
            address = event.get("hook", {}).get("resource", {}).get("addr", "")
            if event["type"] == "apply_start":
                running.add(address)
            elif event["type"] in ("apply_complete", "apply_errored"):
                running.discard(address)

        def beat(self) -> None:
            # The VPC is there, and asked for; nothing else is in the making.
            if not self.pressed and running == {"aws_vpc.this"} and not server.control.faults():
                self.pressed = True
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(StoppedError, match=r"completed by the next apply:(\n  .*)*\n  aws_vpc.this"):
        apply_saved(job, listener=Hasty())
    server.control.clear_faults()
    assert "aws_vpc.this" in in_state(job)
    planned = lifecycle.plan(job)
    assert planned.plan.protected == ()
    assert "aws_vpc.this" not in {one.address for one in planned.plan.changes if one.action == "create"}
    # A run that was killed could not say so: the next plan sees the mark, and keeps the VPC all the same.
    state = job.terraform().pull()
    (vpc,) = (one for one in state["resources"] if one["type"] == "aws_vpc")
    vpc["instances"][0]["status"] = "tainted"
    job.terraform().push({**state, "serial": state["serial"] + 1})
    planned = lifecycle.plan(job)
    assert planned.untainted == ("aws_vpc.this",)
    assert planned.plan.protected == ()
    assert apply_saved(job) == lifecycle.Outcome()
    assert len(server.control.inventory()["us-west-2"]["ec2.vpcs"]) == 1


def refreshed_under_faults(job: Job, server: Server) -> set[str]:
    """Each read of a refresh is hit in turn, as many at a time as are not behind each other; the actions."""
    held, waiting = in_state(job), set(READS)
    server.control.order(absent("DescribeVpcs"))
    settled = settling.settle(job.terraform(), job.folders.state / "fault.tfplan", pauses=())
    assert settled.unread == ("aws_vpc.this",)
    assert in_state(job) == held
    hit: set[str] = set()
    while True:
        server.control.order(*(absent(action) for action in sorted(waiting)))
        settled = settling.settle(job.terraform(), job.folders.state / "fault.tfplan", pauses=())
        assert in_state(job) == held, settled
        left = {fault.action for fault in server.control.faults()}
        server.control.clear_faults()
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


def applied_under_faults(before: Job, job: Job, server: Server) -> None:
    """Every resource is changed, and the VPC is not found when it is read again."""
    held = in_state(before)
    lifecycle.plan(job)
    server.control.order(absent("DescribeVpcs"))
    # The provider reports that its object is gone, and Terraform that this is a fault of the provider.
    with pytest.raises(TerraformError, match="was present, but now absent"):
        apply_saved(job)
    server.control.clear_faults()
    assert sorted(in_state(job)) == sorted(held)
    planned = lifecycle.plan(job)
    assert planned.plan.count("create") == planned.plan.count("replace") == planned.plan.count("delete") == 0
    apply_saved(job)
    # Tags of launch templates stay as they were created in the embedded AWS: that would change again.
    left = {one.type for one in lifecycle.plan(job).plan.changes}
    assert left <= {"aws_launch_template", "aws_autoscaling_group"}
