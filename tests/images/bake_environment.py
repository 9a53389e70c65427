"""An embedded AWS whose instances are machines, and an environment on it with three regions."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from localaws.control import Control
from localaws.faults import Fault
from waiting import until

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.images import bake as baking
from infra.drive.images import packer
from infra.drive.images.amis import BAKE
from infra.drive.images.bake import Job
from infra.drive.progress import PackerProgress
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

CLIENT = """\
#!/bin/sh
# Stands in for CINC on a machine of these tests.
case "$*" in *--version*) echo "Cinc Client: 18.0.0"; exit 0 ;; esac
test -f /var/lib/causeway/chef/client.rb || exit 9
ls /var/lib/causeway/chef/nodes/bake-*.json || exit 8
touch /chef-was-here
if [ -e /slow ]; then sleep 300; fi
if [ -e /chef-fails ]; then echo "FATAL: recipe gpu::driver: no such package" >&2; exit 1; fi
printf '#!/bin/sh\\necho "Kubernetes v%s.0"\\n' "$(cat /kubernetes)" >/usr/local/bin/kubelet
printf '#!/bin/sh\\necho v%s.0\\n' "$(cat /kubernetes)" >/usr/local/bin/kubeadm
printf '#!/bin/sh\\necho SystemdCgroup = true\\necho nvidia\\n' >/usr/local/bin/containerd
chmod +x /usr/local/bin/kube* /usr/local/bin/containerd
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
    patience: float = 60.0

    def order(self, *faults: Fault) -> None:
        Control(self.server).order(*faults)

    def break_machines(self, *faults: str) -> None:
        (self.machines / "faults").write_text("\n".join(faults))

    def bake(self, *, spot: bool = False) -> dict[str, str]:
        faults = self.machines / "faults"
        silent = faults.exists() and "no-ssh" in faults.read_text()
        # A machine that never answers is waited for in vain; any other may be slow.
        job = replace(self.job, spot_patience=self.patience, ssh_timeout="5s" if silent else "120s")
        ready = baking.prepare(job, self.cluster.image("cpu"), self.aws)
        return baking.bake(job, ready, self.aws, packer.find(), PackerProgress("cpu"), spot=spot)

    def image(self, region: str, ami: str) -> dict[str, Any]:
        row: dict[str, Any] = self.aws.client("ec2", region).describe_images(ImageIds=[ami])["Images"][0]
        return row

    def instance(self, instance: str) -> dict[str, Any]:
        ec2 = self.aws.client("ec2", REGIONS[0])
        row: dict[str, Any] = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][
            0
        ]
        return row

    def images_of(self, region: str) -> set[str]:
        """Our AMIs and their snapshots."""
        rows = self.aws.client("ec2", region).describe_images(Owners=["self"])["Images"]
        snapshots = {row["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"] for row in rows}
        return {row["ImageId"] for row in rows} | snapshots

    def assert_nothing_is_left(self) -> None:
        assert self.left() == {}, self.left()
        tagged = {region: self.tagged(region) for region in REGIONS}
        assert not any(tagged.values()), tagged
        journal = {path.name.split(".", 1)[1] for path in (self.job.build / "state" / "bakes").iterdir()}
        assert journal <= {"log"}, "it has no open entry"
        assert self.machines_running() == []

    def machines_running(self) -> list[str]:
        for _ in range(300):  # they go beside the API's answer
            instances = [path.parent.name for path in self.machines.glob("i-*/pid")]
            if not instances:
                break
            time.sleep(0.1)
        return instances

    def calls(self, verb: str) -> list[dict[str, Any]]:
        """What the program that makes machines was asked."""
        file = self.machines / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
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
        """What there is that carries a bake's tag."""
        ec2 = self.aws.client("ec2", region)
        ours = [{"Name": "tag-key", "Values": [BAKE]}]
        living = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
        reservations = ec2.describe_instances(Filters=[*ours, living])["Reservations"]
        rows = {
            "InstanceId": [row for reservation in reservations for row in reservation["Instances"]],
            "VolumeId": ec2.describe_volumes(Filters=ours)["Volumes"],
            "GroupId": ec2.describe_security_groups(Filters=ours)["SecurityGroups"],
            "KeyPairId": ec2.describe_key_pairs(Filters=ours)["KeyPairs"],
            "LaunchTemplateId": ec2.describe_launch_templates(Filters=ours)["LaunchTemplates"],
            "ImageId": ec2.describe_images(Owners=["self"], Filters=ours)["Images"],
            "SnapshotId": ec2.describe_snapshots(Filters=ours)["Snapshots"],
        }
        return {row[key] for key, kind in rows.items() for row in kind}


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
    until(lambda: not Path(f"/proc/{pid}").exists())
