"""Physical machines that are installed from the network or a USB stick (SITE)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.catalogue import drivers
from infra.checks.facts import Facts, Node
from infra.checks.registry import Finding, check
from infra.errors import Level, dotted
from infra.model.disks import installer_match
from infra.schema import defaults
from infra.schema.sites import SystemDisks

_BESIDE_ROOT: Final = 2 * 1024
"""MiB of a disk that are not the volume group's: what boots, and the array's and LVM's own records."""


@check("SITE025", Level.WARNING, "A GPU's driver is older than the kernels of its Ubuntu release.")
def release_of_driver(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        branch = _driver(node)
        known = drivers.find(branch) if branch is not None else None
        ubuntu = node.node.ubuntu or facts.physical_sites[node.site].ubuntu
        if known is not None and known.last_ubuntu is not None and ubuntu > known.last_ubuntu:
            path = node.at("ubuntu") if node.node.ubuntu else node.at("gpus")
            message = f"driver {known.branch} is not built for the later kernels of Ubuntu {ubuntu}"
            yield Finding(path, message, f"give the node 'ubuntu: {known.last_ubuntu}'")


def _driver(node: Node) -> int | None:
    """The driver branch of a node; None if another rule reports a problem with it."""
    if node.gpu is None or node.node.gpus is None:
        return None
    stated = node.node.gpus.driver
    if stated is not None:
        return stated if node.gpu.runs(stated) else None
    best = drivers.newest_for([node.gpu])
    return best.branch if best is not None else None


@check("SITE026", Level.WARNING, "A physical node has two disks for its system, and no RAID 1.")
def one_system_disk(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        system = _system_disks(node)
        for index in system[1:] if _system(facts, node).raid is None else ():
            first = dotted(node.at("disks", system[0])[-2:])
            message = f"Ubuntu is installed on {first} alone"
            hint = "make it scratch, or give the node 'system: {raid: 1}'"
            yield Finding(node.at("disks", index, "use"), message, hint)


@check("SITE041", Level.ERROR, "RAID 1 without two disks for the system.")
def two_mirrored_disks(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        count = len(_system_disks(node))
        if _system(facts, node).raid is not None and count != 2:
            path = node.at("system", "raid") if node.node.system else node.at()
            message = f"RAID 1 needs two disks with 'use: system', and {node.name} has {count}"
            yield Finding(path, message, "list both in 'disks', or give the node 'system: {}'")


@check("SITE042", Level.ERROR, "The root volume does not fit on its disk, or there is no LVM for it.")
def root_volume(facts: Facts) -> Iterator[Finding]:
    # A site's value is said once, however many nodes have it.
    yield from {finding.path: finding for finding in _root_volumes(facts)}.values()


def _root_volumes(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        system = _system(facts, node)
        if system.root is None:
            continue
        path = node.at("system", "root") if node.node.system else ("sites", node.site, "system", "root")
        sizes = [node.node.disks[index].size for index in _system_disks(node)]
        if not system.lvm:
            message = "only a logical volume has a size of its own"
            yield Finding(path, message, "add 'lvm: true', or remove root")
        elif sizes and system.root + _BESIDE_ROOT > min(sizes):
            message = f"{system.root // 1024} GiB for root do not fit on a disk of {min(sizes) // 1024} GiB"
            yield Finding(path, message, f"{_BESIDE_ROOT // 1024} GiB of the disk are for booting: take less")


@check("SITE043", Level.ERROR, "Ubuntu's installer does not find a disk by the link that names it.")
def disk_of_seed(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        seeded = facts.physical_sites[node.site].autoinstall and node.node.mac is not None
        for index in _system_disks(node) if seeded else ():
            device = node.node.disks[index].device
            if device.startswith("/dev/disk/") and "path" in installer_match(device):
                message = f"the installer finds disks by serial number, port or kernel name, not by {device}"
                hint = "use its link in /dev/disk/by-id with the model and serial number (ata-…, nvme-…)"
                yield Finding(node.at("disks", index, "device"), message, hint)


def _system(facts: Facts, node: Node) -> SystemDisks:
    return defaults.system_disks(facts.physical_sites[node.site], node.node)


def _system_disks(node: Node) -> list[int]:
    return [index for index, disk in enumerate(node.node.disks) if disk.use == "system"]


@check("SITE027", Level.ERROR, "A site's router is not on its LAN.")
def router_on_lan(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        if site.router is not None and site.router not in site.cidr:
            path = ("sites", name, "router")
            yield Finding(path, f"{site.router} is not in {site.cidr}", "name an address of the LAN")


@check("SITE029", Level.WARNING, "A site has autoinstall, but no MAC address is known.")
def mac_of_seed(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        if site.autoinstall and site.nodes and not any(node.mac for node in site.nodes.values()):
            message = "a machine finds its seed by its MAC address, and no node has one"
            yield Finding(("sites", name, "autoinstall"), message, "add 'mac:' to its nodes")


@check("SITE028", Level.WARNING, "Nobody could log in to a physical machine that is installed by its seed.")
def someone_enters(facts: Facts) -> Iterator[Finding]:
    groups = facts.spec.access.groups
    seeded = any(site.autoinstall for site in facts.physical_sites.values())
    if seeded and groups and not any(group.sudo for group in groups.values()):
        message = "machines let in the SSH keys of users who may become root, and there are none"
        yield Finding(("access", "groups"), message, "give a group 'sudo: true'")
