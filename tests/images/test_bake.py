"""A whole bake: real Packer, the embedded AWS, SSH to a machine that stands in for the instance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from images.bake_environment import REGIONS, World
from localaws.faults import Fault, no_capacity, refused

from infra.drive.images import bake as baking
from infra.drive.images.amis import BAKE, INPUTS, SOURCE
from infra.drive.images.bake import BakeError


def test_an_image_in_every_region_and_nothing_else(world: World) -> None:
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


def test_the_image_is_sealed_and_its_instance_was_closed(world: World) -> None:
    amis = world.bake()
    disk = world.machines / amis[REGIONS[0]]
    assert (disk / "chef-was-here").exists(), "the roles ran"
    assert (disk / "etc/machine-id").read_text() == ""
    assert not list((disk / "etc/ssh").glob("ssh_host_*"))
    assert not (disk / "home/ubuntu/.ssh/authorized_keys").exists()
    assert not (disk / "home/ubuntu/.bash_history").exists()
    assert not (disk / "var/lib/causeway/image").exists(), "what only the bake needs is gone"
    assert (disk / "var/lib/causeway/chef/cookbooks/base/metadata.rb").exists()
    assert [path.name for path in (disk / "var/lib/causeway/chef/images").iterdir()] == ["cpu.json"]
    assert not list((disk / "var/lib/causeway/chef/nodes").iterdir())
    assert (disk / "usr/local/lib/causeway/boot").stat().st_mode & 0o777 == 0o755
    assert (disk / "etc/systemd/system/causeway-boot.service").exists()
    (asked,) = world.calls("start")
    assert asked["public_key"].startswith("ssh-ed25519 ")
    assert asked["instance_type"] == "m6i.xlarge"
    instance = world.instance(asked["instance"])
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["State"]["Name"] == "terminated"


def test_other_inputs_are_another_image(world: World) -> None:
    first = baking.prepare(world.job, world.cluster.image("cpu"), world.aws)
    again = baking.prepare(world.job, world.cluster.image("cpu"), world.aws)
    assert first.inputs == again.inputs
    assert first.present is None


def test_a_spot_instance_does_it(world: World) -> None:
    assert list(world.bake(spot=True)) == list(REGIONS)
    (asked,) = world.calls("start")
    assert world.instance(asked["instance"])["InstanceLifecycle"] == "spot"
    assert world.tagged(REGIONS[0]) == world.images_of(REGIONS[0])
    assert {kind.split(".")[-1] for kind in world.left()} <= {"amis", "snapshots"}


def test_without_spot_capacity_one_on_demand_does_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.order(replace(no_capacity("m6i.xlarge"), holding=("m6i.xlarge", "spot")))
    world.patience = 1.0  # Packer 1.6 would go on trying for two minutes
    assert list(world.bake(spot=True)) == list(REGIONS)
    assert "one on demand" in capsys.readouterr().err
    (asked,) = world.calls("start")
    assert "InstanceLifecycle" not in world.instance(asked["instance"])
    assert {kind.split(".")[-1] for kind in world.left()} <= {"amis", "snapshots"}


@pytest.mark.parametrize(
    ("broken", "phase", "said"),
    [
        ("no-machine", "waiting for the build instance", "there is no machine of this kind left"),
        ("no-ssh", "waiting for SSH", "Timeout waiting for SSH"),
        ("cloud-init-fails", "waiting for cloud-init", "cloud-init of the source image failed (1)"),
        ("chef-fails", "running the cookbooks", "FATAL: recipe gpu::driver: no such package"),
        ("check-fails", "checking what was built", "not ok: kubelet is"),
        ("image-fails", "making the AMI", "Error waiting for AMI"),
    ],
)
def test_a_machine_that_fails_leaves_nothing(world: World, broken: str, phase: str, said: str) -> None:
    world.break_machines(broken)
    with pytest.raises(BakeError) as raised:
        world.bake()
    assert f"cpu was not baked: {phase} failed" in str(raised.value)
    assert said in str(raised.value)
    world.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (refused("RunInstances", "InsufficientInstanceCapacity", "none left"), "none left"),
        (refused("CreateImage", "InvalidParameter", "no image today"), "no image today"),
        (
            Fault(
                "CopyImage", region="eu-west-1", status=400, code="ResourceLimitExceeded", message="too many"
            ),
            "too many",
        ),
        (refused("CreateTags", "InternalError", "no tags today", skip=1), "no tags today"),
    ],
    ids=lambda value: value.action if isinstance(value, Fault) else "",
)
def test_a_refusal_of_aws_leaves_nothing(world: World, fault: Fault, said: str) -> None:
    world.order(fault)
    with pytest.raises(BakeError, match=said):
        world.bake()
    world.assert_nothing_is_left()


def test_a_refusal_before_packer_starts_leaves_nothing(world: World) -> None:
    world.order(refused("AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded", "no rules"))
    with pytest.raises(Exception, match="no rules"):
        world.bake()
    world.assert_nothing_is_left()
