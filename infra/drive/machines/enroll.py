"""Onboards a bare machine: checks that it is the one in the spec and has what a converge needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from infra.drive.machines.client import Fetch, install
from infra.drive.machines.survey import Facts
from infra.drive.ssh import Remote
from infra.model.places import PhysicalNode
from infra.model.software import Client

RELEASES: Final = ("ubuntu 22.04", "ubuntu 24.04", "debian 12")
"""What the cookbooks hold on."""

_ARCHITECTURES: Final = ("x86_64", "aarch64")

_LESS: Final = 0.93
"""Firmware and kernel keep some of the memory that was bought; makers count disks in powers of ten."""

_CLOCK: Final = 60
"""Seconds a clock may be off: certificates and signed packages mind more than that."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as the spec says."""

    what: str
    spec: str
    found: str
    grave: bool
    """It is another machine than the one meant, or one that no cookbook holds on."""

    def __str__(self) -> str:
        return f"{self.what}: the spec says {self.spec}, the machine {self.found}"


def differences(node: PhysicalNode, facts: Facts) -> tuple[Difference, ...]:
    """Where a machine is not what the spec says, the gravest first."""
    return tuple(sorted(_differences(node, facts), key=lambda each: not each.grave))


def _differences(node: PhysicalNode, facts: Facts) -> Iterator[Difference]:
    if facts.os != f"ubuntu {node.ubuntu}":
        yield Difference("system", f"ubuntu {node.ubuntu}", facts.os, facts.os not in RELEASES)
    if facts.architecture not in _ARCHITECTURES:
        yield Difference("architecture", " or ".join(_ARCHITECTURES), facts.architecture, True)
    if node.mac is not None and node.mac.lower() not in facts.macs:
        yield Difference("MAC address", node.mac, ", ".join(sorted(facts.macs)) or "none", True)
    if str(node.address) not in facts.addresses:
        yield Difference("address", str(node.address), ", ".join(sorted(facts.addresses)) or "none", False)
    if facts.cpus < node.cpus:
        yield Difference("CPUs", str(node.cpus), str(facts.cpus), False)
    if facts.memory_mib < node.memory_mib * _LESS:
        yield Difference("memory", f"{node.memory_mib} MiB", f"{facts.memory_mib} MiB", False)
    for disk in node.disks:
        if disk.device.startswith("/dev/disk/"):
            continue  # a link of udev's; lsblk names the device itself
        size = facts.disks.get(disk.device)
        if size is None:
            yield Difference("disk", disk.device, ", ".join(sorted(facts.disks)) or "none", False)
        elif size < disk.size_mib * _LESS:
            yield Difference(f"size of {disk.device}", f"{disk.size_mib} MiB", f"{size} MiB", False)
    if node.system.mirrored and not facts.arrays:
        yield Difference("RAID", "level 1 for the system's disks", "has no array", False)
    for array, missing in facts.arrays.items():
        if missing:
            yield Difference("RAID", f"whole disks for {array}", f"lacks {missing} of them", False)
    wanted = node.gpus.count if node.gpus else 0
    if facts.gpu_count != wanted:
        yield Difference("GPUs", str(wanted), str(facts.gpu_count), False)
    if facts.secure_boot and node.gpus:
        # The driver's modules are built on the machine (node['gpu']['modules']), and nobody has signed them.
        found = "has Secure Boot, which loads only modules that Ubuntu signed"
        yield Difference("Secure Boot", "GPUs, whose driver is built on the machine", found, False)
    if abs(facts.behind) > _CLOCK:
        way = "behind" if facts.behind > 0 else "ahead"
        yield Difference("clock", "the time here", f"{abs(facts.behind):.0f} s {way}", False)


UPDATE: Final = """\
# A fresh machine upgrades itself meanwhile. APT waits for dpkg's lock alone (DPkg::Lock::Timeout), not for
# the one of its lists.
update() {
  tries=0
  until said=$(LC_ALL=C apt-get -qq update 2>&1); do
    tries=$((tries + 1))
    case $said in *"Could not get lock"*) [ "$tries" -lt 120 ] && sleep 5 && continue ;; esac
    echo "$said" >&2
    return 1
  done
}
"""

RSYNC: Final = f"""\
{UPDATE}
if ! command -v rsync >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  update && apt-get -o DPkg::Lock::Timeout=600 -qq install -y --no-install-recommends rsync >/dev/null
fi
"""


def equip(remote: Remote, client: Client, fetch: Fetch) -> None:
    """Install rsync and the client that runs cookbooks, where they are missing. ``DriveError`` with what the
    machine said."""
    remote.run(RSYNC)
    install(remote, client, fetch)
