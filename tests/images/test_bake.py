"""A whole bake: real Packer, the embedded AWS, SSH to a machine that stands in for the instance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from images.bake_environment import REGIONS, World
from localaws.faults import Fault, no_capacity, refused

from infra.drive.images import bake as baking
from infra.drive.images.amis import BAKE, INPUTS, SOURCE
from infra.drive.images.bake import BakeError
from infra.drive.images.packer import phase_of
from infra.errors import DriveError


def test_an_image_in_every_region_sealed_and_nothing_else(world: World) -> None:
    amis = world.bake()
    assert list(amis) == list(REGIONS)
    ready = baking.prepare(world.job, world.cluster.image("cpu"), world.aws)
    for region, ami in amis.items():
        image = world.image(region, ami)
        tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
        assert image["State"] == "available"
        assert image["ImdsSupport"] == "v2.0"
        assert tags[INPUTS] == ready.inputs.digest
        assert tags[SOURCE] == ready.inputs.source
        assert tags["causeway:revision"] == "0" * 40
        assert "base=0.1.0" in tags["causeway:cookbooks"]
        assert (tags["image"], tags["environment"], tags["managed-by"]) == ("cpu", "tiny", "causeway")
        disk = image["BlockDeviceMappings"][0]["Ebs"]
        assert (disk["VolumeSize"], disk["Encrypted"]) == (40, True)
        snapshot = world.aws.client("ec2", region).describe_snapshots(SnapshotIds=[disk["SnapshotId"]])
        assert {tag["Key"] for tag in snapshot["Snapshots"][0]["Tags"]} >= {BAKE, INPUTS}
        assert world.tagged(region) == {ami, disk["SnapshotId"]}
    assert {kind.split(".")[-1] for kind in world.left()} <= {"amis", "snapshots"}
    assert ready.present == amis, "what is baked is found again by its inputs"
    # What is on its disk.
    root = world.machines / amis[REGIONS[0]]
    assert (root / "chef-was-here").exists(), "the roles ran"
    assert (root / "etc/machine-id").read_text() == ""
    assert not list((root / "etc/ssh").glob("ssh_host_*"))
    assert not (root / "home/ubuntu/.ssh/authorized_keys").exists()
    assert not (root / "home/ubuntu/.bash_history").exists()
    assert not (root / "var/lib/causeway/image").exists(), "what only the bake needs is gone"
    assert (root / "var/lib/causeway/chef/cookbooks/base/metadata.rb").exists()
    assert [path.name for path in (root / "var/lib/causeway/chef/images").iterdir()] == ["cpu.json"]
    assert not list((root / "var/lib/causeway/chef/nodes").iterdir())
    assert (root / "usr/local/lib/causeway/boot").stat().st_mode & 0o777 == 0o755
    assert (root / "etc/systemd/system/causeway-boot.service").exists()
    # The instance that it was made on.
    (asked,) = world.calls("start")
    assert asked["public_key"].startswith("ssh-ed25519 ")
    assert asked["instance_type"] == "m6i.xlarge"
    instance = world.instance(asked["instance"])
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["State"]["Name"] == "terminated"


def test_a_spot_instance_does_it(world: World) -> None:
    assert list(world.bake(spot=True)) == list(REGIONS)
    (asked,) = world.calls("start")
    assert world.instance(asked["instance"])["InstanceLifecycle"] == "spot"
    assert world.tagged(REGIONS[0]) == world.images_of(REGIONS[0])
    assert {kind.split(".")[-1] for kind in world.left()} <= {"amis", "snapshots"}


def test_without_spot_capacity_one_on_demand_does_it(world: World) -> None:
    world.order(replace(no_capacity("m6i.xlarge"), holding=("m6i.xlarge", "spot")))
    world.patience = 1.0  # Packer 1.6 would go on trying for two minutes
    assert list(world.bake(spot=True)) == list(REGIONS)
    (asked,) = world.calls("start")
    assert "InstanceLifecycle" not in world.instance(asked["instance"])
    assert {kind.split(".")[-1] for kind in world.left()} <= {"amis", "snapshots"}


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ("no-machine", "Waiting for instance"),
        ("no-ssh", "Waiting for SSH"),
        ("cloud-init-fails", "Provisioning with shell script: wait-for-cloud-init"),
        ("chef-fails", "Provisioning with shell script: converge"),
        ("check-fails", "Provisioning with shell script: check"),
        ("image-fails", "Creating AMI tiny-cpu-1 from instance"),
    ],
)
def test_a_machine_that_fails_leaves_nothing(world: World, broken: str, line: str) -> None:
    """``line``: what Packer says at the start of the phase that fails."""
    world.break_machines(broken)
    with pytest.raises(BakeError) as raised:
        world.bake()
    assert raised.value.phase == phase_of(line)
    assert broken != "chef-fails" or "gpu::driver" in str(raised.value), "what the client said last"
    world.assert_nothing_is_left()


@pytest.mark.parametrize(
    "fault",
    [
        refused("AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded", "no more"),
        refused("RunInstances", "InsufficientInstanceCapacity", "no more"),
        refused("CreateImage", "InvalidParameter", "no more"),
        Fault("CopyImage", region="eu-west-1", status=400, code="ResourceLimitExceeded", message="no more"),
        refused("CreateTags", "InternalError", "no more", skip=1),
    ],
    ids=lambda fault: fault.action,
)
def test_a_refusal_of_aws_leaves_nothing(world: World, fault: Fault) -> None:
    world.order(fault)
    with pytest.raises(DriveError, match="no more"):
        world.bake()
    world.assert_nothing_is_left()
