"""An embedded AWS whose instances are machines, and an environment on it with three regions."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.images import bake as baking
from infra.drive.images import packer
from infra.drive.images.bake import Job
from infra.drive.images.phases import Progress
from infra.drive.images.shelf import BAKE
from infra.localaws.faults import Fault
from infra.model import Cluster

ROOT = Path(__file__).parents[2]
REGIONS = ("us-west-2", "us-east-1", "eu-west-1")
SPEC = """\
version: 1
name: tiny
domain: tiny.internal
aws: {embedded: true}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a, us-west-2b]}
  us-east-1: {kind: aws, overflow: 1, zones: [us-east-1a, us-east-1b]}
  eu-west-1: {kind: aws, overflow: 2, zones: [eu-west-1a, eu-west-1b]}
images:
  cpu: {}
"""


@dataclass
class World:
    """A cloud and an environment on it."""

    job: Job
    cluster: Cluster
    aws: Aws
    server: localaws.Server
    machines: Path
    before: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def order(self, *faults: Fault) -> None:
        self.server.control.order(*faults)

    def break_machines(self, *faults: str) -> None:
        (self.machines / "faults").write_text("\n".join(faults))

    def bake(self, *, spot: bool = False) -> dict[str, str]:
        ready = baking.prepare(self.job, self.cluster.image("cpu"), self.aws)
        return baking.bake(self.job, ready, self.aws, packer.find(), Progress("cpu"), spot=spot)

    def calls(self, verb: str) -> list[dict[str, Any]]:
        """What the program that makes machines was asked."""
        lines = (
            (self.machines / "calls").read_text().splitlines() if (self.machines / "calls").exists() else []
        )
        return [row for row in map(json.loads, lines) if row["verb"] == verb]

    def left(self) -> dict[str, list[str]]:
        """What is in the cloud, that was not there before: by region and kind."""
        now = localaws.inventory(self.server)
        return {
            f"{region} {kind}": new
            for region, kinds in now.items()
            for kind, ids in kinds.items()
            if (new := sorted(set(ids) - set(self.before.get(region, {}).get(kind, []))))
        }

    def tagged(self, region: str) -> set[str]:
        """What still carries a bake's tag."""
        ec2 = self.aws.client("ec2", region)
        rows = ec2.describe_tags(Filters=[{"Name": "key", "Values": [BAKE]}])["Tags"]
        return {row["ResourceId"] for row in rows}


def require() -> None:
    """Skip, and say why, where there can be no machines."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the stand-in machine is made of namespaces")
    for program, package in (("packer", "packer"), ("sshd", "openssh-server"), ("unshare", "util-linux")):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"needs {package}")
    with socket.socket() as probe:
        try:
            probe.bind(("127.91.255.1", 22))
        except OSError as problem:
            pytest.skip(f"needs port 22 of 127.91.0.0/16: {problem}")


def touched(world: World) -> dict[str, dict[str, list[str]]]:
    """The inventory, once every region has what a look at it makes."""
    for region in REGIONS:
        world.aws.client("ec2", region).describe_subnets()
        world.aws.client("ec2", region).describe_images(Owners=["self"])
    return localaws.inventory(world.server)


def wait_until_gone(pid: int) -> None:
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"the machine {pid} outlives its server")
