"""A whole bake as a person starts it, and its image on a machine that boots. Nothing but the cloud is played.

Real Packer calls EC2's API of the embedded AWS, which puts a virtual machine behind the instance; SSH,
provisioners, systemd and the checks are real. Chef is where there is one (``disk.Chef``); else a stand-in on
the machine holds what it is given against what Chef would need, and says what it was run with.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from images.bake_environment import REGIONS, ROOT, SPEC
from machines.deb import with_client
from machines.disk import Chef, program
from machines.vm import Vm

from infra.drive import localaws
from infra.drive.aws import Aws
from infra.drive.images import packer
from infra.errors import DriveError

pytestmark = pytest.mark.timeout(3000)

MORE = """\
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], labels: {tier: batch}, regions: {us-east-1: {max: 4}}}
access:
  groups:
    engineers: {}
  users:
    ada: {name: Ada, email: ada@tiny.internal, uid: 10001, groups: [engineers], ssh_keys: ["@KEY@"]}
"""


class Project:
    """A folder of somebody's own: a spec, the project's cookbooks and scripts, and the commands."""

    def __init__(self, folder: Path, public_key: str, roles: str, chef: Chef | None) -> None:
        self.folder = folder
        (folder / "environments").mkdir(parents=True)
        image = "  cpu: {}\n"
        assert image in SPEC
        spec = SPEC.replace(image, f"  cpu: {{roles: [{roles}]}}\n") + MORE.replace("@KEY@", public_key)
        (folder / "environments" / "tiny.yaml").write_text(
            with_client(spec, folder / "build" / "tiny", program(chef))
        )
        for name in ("cookbooks", "packer"):
            shutil.copytree(ROOT / name, folder / name)

    def invoke(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *arguments, "--env", "tiny"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        assert done.returncode == 0, done.stderr + self._packer_said()
        return done.stdout

    def _packer_said(self) -> str:
        return "".join(path.read_text() for path in self.folder.glob("build/tiny/state/**/*.log"))[-10_000:]

    @property
    def images(self) -> Mapping[str, Any]:
        import yaml

        lock = yaml.safe_load((self.folder / "environments/tiny.lock.yaml").read_text())
        images: Mapping[str, Any] = lock.get("images", {})
        return images

    def server(self) -> localaws.Server:
        server = localaws.status(self.folder / "build/tiny/state/aws")
        assert server
        return server

    def pool(self, region: str, name: str) -> dict[str, Any]:
        """What Terraform is told of a pool."""
        told = json.loads((self.folder / "build/tiny/terraform/terraform.tfvars.json").read_text())
        pool: dict[str, Any] = told["regions"][region.replace("-", "_")]["node_pools"][name]
        return pool


@pytest.fixture
def project(tmp_path: Path, bodies: Path, key: Path, chef: Chef | None) -> Iterator[Project]:
    """A real Chef gets what needs the distribution's archive alone."""
    try:
        packer.find()
    except DriveError as fault:
        pytest.skip(str(fault))
    roles = "base" if chef else "base, worker"
    project = Project(tmp_path / "project", key.with_suffix(".pub").read_text().strip(), roles, chef)
    yield project
    project.invoke("local.down")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def test_an_image_is_baked_copied_and_boots(
    project: Project, bodies: Path, key: Path, chef: Chef | None
) -> None:
    baked = json.loads(project.invoke("bake", "--image", "cpu", "--json"))[0]
    assert baked["baked"]
    amis = baked["images"]
    assert tuple(amis) == REGIONS
    assert project.images == {"cpu": amis}

    server = project.server()
    aws = Aws(localaws.environment(server, REGIONS[0]))
    for region, ami in amis.items():
        (row,) = aws.client("ec2", region).describe_images(ImageIds=[ami])["Images"]
        tags = {tag["Key"]: tag["Value"] for tag in row["Tags"]}
        assert row["State"] == "available"
        assert tags["causeway:inputs"] == baked["inputs"]
    assert not any(path.exists() for path in bodies.glob("i-*/pid")), "the build instance is gone"

    again = json.loads(project.invoke("bake", "--image", "cpu", "--json"))[0]
    assert not again["baked"]
    assert again["images"] == amis

    facts = project.pool("us-east-1", "cpu")["user_data"] | ({"role": "base"} if chef else {})
    vm = launched(aws.client("ec2", "us-east-1"), amis["us-east-1"], facts, bodies, key)
    hostname = ssh(vm, key, "systemctl is-system-running --wait >/dev/null; hostname").strip()
    state = ssh(vm, key, "systemctl show -p ActiveState -p Result causeway-boot.service")
    assert sorted(state.split()) == ["ActiveState=active", "Result=success"]
    node = json.loads(ssh(vm, key, f"sudo cat /var/lib/causeway/chef/nodes/{hostname}.json"))
    assert node["normal"]["causeway"]["pool"] == "cpu"
    assert node["normal"]["kubernetes"]["labels"]["tier"] == "batch"
    report = json.loads(ssh(vm, key, "sudo cat /var/lib/causeway/report.json"))
    assert report["success"], report["exception"]

    if chef is None:
        bake, boot = map(json.loads, ssh(vm, key, "sudo cat /var/lib/stand-in-chef.jsonl").splitlines())
        assert bake["node"]["normal"]["causeway"]["baking"]
        assert boot["node"] == node
        assert boot["node"]["run_list"] == [f"role[{facts['role']}]"]
        assert set(boot["recipes"]) <= set(bake["recipes"]), "what a node does was done in the image"
        assert ssh(vm, key, "systemctl is-active containerd").strip() == "active"


def launched(ec2: Any, ami: str, facts: Mapping[str, Any], bodies: Path, key: Path) -> Vm:
    """An instance with the user data that templates/terraform/modules/region/locals.tf gives a pool's."""
    files = [{"path": "/etc/causeway/node.json", "permissions": "0644", "content": json.dumps(facts)}]
    ec2.import_key_pair(KeyName="somebody", PublicKeyMaterial=key.with_suffix(".pub").read_bytes())
    (row,) = ec2.run_instances(
        ImageId=ami,
        InstanceType="m6i.xlarge",
        MinCount=1,
        MaxCount=1,
        KeyName="somebody",
        UserData="#cloud-config\n" + json.dumps({"write_files": files}),
    )["Instances"]
    ec2.get_waiter("instance_running").wait(
        InstanceIds=[row["InstanceId"]], WaiterConfig={"Delay": 1, "MaxAttempts": 600}
    )
    return Vm(bodies / row["InstanceId"])


def ssh(vm: Vm, key: Path, command: str) -> str:
    known = vm.folder / "known_hosts"
    known.write_text(f"{vm.host_key}\n")
    options = [
        "-i",
        str(key),
        "-o",
        f"UserKnownHostsFile={known}",
        "-o",
        "BatchMode=yes",
        "-o",
        "LogLevel=ERROR",
    ]
    whole = ["ssh", *options, f"ubuntu@{vm.address}", command]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
