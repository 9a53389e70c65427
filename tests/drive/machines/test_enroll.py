"""What a bare machine is compared with, and a first contact over a real sshd."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from drive.machines.hosts import running
from msgspec import structs

from infra.drive.machines.enroll import differences
from infra.drive.machines.survey import Facts, survey
from infra.drive.ssh import CONFIG, HostKeyError, opened
from infra.model.kubernetes import Reserved, Share
from infra.model.places import Gpus, PhysicalDisk, PhysicalNode, SystemDisks

NODE = PhysicalNode(
    name="titan-01",
    fqdn="titan-01.test.internal",
    address=IPv4Address("10.200.0.11"),
    mac="0C:c4:7a:00:00:11",
    rack=None,
    cpus=32,
    memory_mib=128 * 1024,
    disks=(
        PhysicalDisk("/dev/sda", 480 * 1024, "system"),
        PhysicalDisk("/dev/disk/by-id/nvme-x", 1024 * 1024, "scratch"),
    ),
    gpus=Gpus(
        "titan-x-pascal", "NVIDIA TITAN X (Pascal)", 4, 12288, "old", 580, "pascal", open_kernel_modules=False
    ),
    roles=("gpu-worker",),
    run_list=("role[gpu-worker-pascal]",),
    labels={},
    ubuntu="24.04",
    router=IPv4Address("10.200.0.2"),
    resolvers=(),
    reserved=Reserved(kube=Share(140, 1465), system=Share(260, 2048)),
)

FACTS = Facts(
    os="ubuntu 24.04",
    kernel="6.8.0",
    architecture="x86_64",
    booted=None,
    behind=0.2,
    cpus=32,
    memory_mib=125_800,
    macs=frozenset({"0c:c4:7a:00:00:11", "0c:c4:7a:00:00:12"}),
    addresses=frozenset({"10.200.0.11"}),
    disks={"/dev/sda": 457_862},
    arrays={},
    gpu_count=4,
    gpus=None,
    gpu_trouble="",
    burn_in=None,
    packages={},
    reboot=False,
    secure_boot=False,
    report=None,
    rehearsal=None,
)


@pytest.mark.parametrize(
    ("facts", "what", "grave"),
    [
        (replace(FACTS, os="ubuntu 20.04"), "system", True),
        (replace(FACTS, os="ubuntu 22.04"), "system", False),
        (replace(FACTS, architecture="riscv64"), "architecture", True),
        (replace(FACTS, macs=frozenset({"0c:c4:7a:00:00:99"})), "MAC address", True),
        (replace(FACTS, addresses=frozenset({"192.0.2.7"})), "address", False),
        (replace(FACTS, cpus=16), "CPUs", False),
        (replace(FACTS, memory_mib=64 * 1024), "memory", False),
        (replace(FACTS, disks={"/dev/nvme0n1": 900_000}), "disk", False),
        (replace(FACTS, disks={"/dev/sda": 228_936}), "size of /dev/sda", False),
        (replace(FACTS, gpu_count=3), "GPUs", False),
        (replace(FACTS, behind=-3600.0), "clock", False),
        (replace(FACTS, secure_boot=True), "Secure Boot", False),
        (replace(FACTS, arrays={"md0": 1}), "RAID", False),
    ],
)
def test_each_difference_is_told(facts: Facts, what: str, grave: bool) -> None:
    assert [(each.what, each.grave) for each in differences(NODE, facts)] == [(what, grave)]


def test_what_does_not_matter_is_no_difference_and_the_gravest_come_first() -> None:
    assert differences(NODE, FACTS) == ()
    # Secure Boot matters to machines whose driver is built there.
    assert differences(structs.replace(NODE, gpus=None), replace(FACTS, gpu_count=0, secure_boot=True)) == ()
    mirrored = structs.replace(NODE, system=SystemDisks(mirrored=True))
    assert [each.what for each in differences(mirrored, FACTS)] == ["RAID"]
    assert differences(mirrored, replace(FACTS, arrays={"md0": 0})) == ()
    both = differences(NODE, replace(FACTS, gpu_count=3, os="debian 11"))
    assert [each.grave for each in both] == [True, False]


@pytest.mark.parametrize(
    ("value", "on"), [("\\006\\000\\000\\000\\001", True), ("\\006\\000\\000\\000\\000", False)]
)
def test_the_survey_reads_secure_boot_as_the_firmware_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, on: bool
) -> None:
    """The variable is a file of ours: this computer's firmware says what it says."""
    with running(tmp_path, "titan-01") as hosts:
        monkeypatch.setenv(CONFIG, str(hosts.config))
        efivars = "/sys/firmware/efi/efivars"
        hosts["titan-01"].shell(
            f"mount -t tmpfs none /sys/firmware && mkdir -p {efivars} && "
            f"printf '{value}' >{efivars}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        )
        with opened(NODE.fqdn) as remote:
            assert survey(remote).secure_boot is on


def test_the_survey_reads_arrays_as_the_kernel_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of ours in place of /sys/block; a striped array has no such file (kernel, "RAID arrays")."""
    with running(tmp_path, "titan-01") as hosts:
        monkeypatch.setenv(CONFIG, str(hosts.config))
        hosts["titan-01"].shell(
            "mount -t tmpfs none /sys/block && cd /sys/block && mkdir -p sda md0/md md1/md md2/md && "
            "echo 1 >md0/md/degraded && echo 0 >md1/md/degraded"
        )
        with opened(NODE.fqdn) as remote:
            assert survey(remote).arrays == {"md0": 1, "md1": 0}


def test_first_contact_shows_the_key_asks_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, "titan-01") as hosts:
        monkeypatch.setenv(CONFIG, str(hosts.config))
        hosts.known.write_text("")
        asked: list[str] = []

        def no(fingerprint: str) -> bool:
            asked.append(fingerprint)
            return False

        with pytest.raises(HostKeyError), opened(NODE.fqdn, confirm=no):
            pass
        assert asked
        assert asked[0].startswith("ED25519 SHA256:")
        assert hosts.known.read_text() == ""
        with opened(NODE.fqdn, confirm=lambda _: True) as remote:
            assert survey(remote).architecture
        assert hosts.known.read_text().startswith(f"{NODE.fqdn} ssh-ed25519 ")
