"""Where a machine's seed puts Ubuntu: what the installer does to disks.

One disk alone is the installer's own ``layout: direct``. RAID 1 and LVM need curtin's actions, which are the
same for BIOS and UEFI: each disk has a place for GRUB's core image, an EFI system partition, and GRUB on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from infra.model.disks import installer_match
from infra.model.places import SystemDisks

_ARRAY: Final = "md0"
_GROUP: Final = "system"
_VOLUME: Final = "root"

_ESP: Final = "umask=0077,nofail,x-systemd.device-timeout=10s"
"""Without ``nofail``, a machine whose first disk has died starts into emergency mode: its ESP is missing."""


def layout(devices: Sequence[str], system: SystemDisks) -> dict[str, Any] | None:
    """The installer's own layout of one disk; None where there are ``actions``, or nothing to install on."""
    if not devices or _needs_actions(system):
        return None
    return {"name": "direct", "match": installer_match(devices[0])}


def actions(devices: Sequence[str], system: SystemDisks) -> Iterator[dict[str, Any]]:
    """Curtin's storage configuration, with sizes as the installer reads them: -1 is the rest (Ubuntu,
    "Autoinstall configuration reference manual"). Disks that are not in it are not touched."""
    if not devices or not _needs_actions(system):
        return
    parts = []
    for number, device in enumerate(devices[: 2 if system.mirrored else 1], start=1):
        disk = f"disk-{number}"
        parts.append(f"system-{number}")
        yield {
            "type": "disk",
            "id": disk,
            "match": installer_match(device),
            "ptable": "gpt",
            "wipe": "superblock-recursive",
            "grub_device": True,
        }
        yield _partition(f"grub-{number}", disk, 1, "1M", flag="bios_grub")
        yield _partition(f"esp-{number}", disk, 2, "1G", flag="boot", grub_device=True)
        yield _partition(parts[-1], disk, 3, -1)
        yield {"type": "format", "id": f"esp-{number}-fs", "volume": f"esp-{number}", "fstype": "fat32"}
    [root] = parts[:1]
    if system.mirrored:
        root = _ARRAY
        yield {"type": "raid", "id": root, "name": root, "raidlevel": 1, "devices": parts}
    if system.lvm:
        yield {"type": "lvm_volgroup", "id": _GROUP, "name": _GROUP, "devices": [root]}
        size = "100%" if system.root_mib is None else f"{system.root_mib}M"
        root = _VOLUME
        yield {"type": "lvm_partition", "id": root, "name": root, "volgroup": _GROUP, "size": size}
    yield {"type": "format", "id": "root-fs", "volume": root, "fstype": "ext4"}
    yield {"type": "mount", "id": "root-mount", "device": "root-fs", "path": "/"}
    yield {"type": "mount", "id": "esp-mount", "device": "esp-1-fs", "path": "/boot/efi", "options": _ESP}


def _needs_actions(system: SystemDisks) -> bool:
    return system.mirrored or system.lvm


def _partition(name: str, disk: str, number: int, size: str | int, **more: Any) -> dict[str, Any]:
    return {"type": "partition", "id": name, "device": disk, "number": number, "size": size, **more}
