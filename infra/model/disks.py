"""How others find a disk by the device that the spec names."""

from __future__ import annotations

import glob
import re
from typing import Final

_BY_ID: Final = re.compile(r"/dev/disk/by-id/(ata|nvme|scsi|usb|virtio)-(?!eui\.|nvme\.|0x)(.+)")
"""Links that udev names by a disk's ID_SERIAL (systemd, 60-persistent-storage.rules)."""

_BY_PATH: Final = "/dev/disk/by-path/"
"""Links that udev names by a disk's ID_PATH."""

_PARTITION: Final = re.compile(
    r"(/dev/disk/.+)-part\d+|(/dev/(?:sd|vd|xvd)[a-z]+)\d+|(/dev/(?:nvme|mmcblk).*\d)p\d+"
)


def installer_match(device: str) -> dict[str, str]:
    """The ``match`` by which Ubuntu's installer finds a disk, with wildcards (fnmatch): one of udev's
    properties, or the kernel's name as ``path``, since the installer follows no links."""
    if device.startswith(_BY_PATH):
        return {"id_path": glob.escape(device.removeprefix(_BY_PATH))}
    named = _BY_ID.fullmatch(device)
    if named is None:
        return {"path": glob.escape(device)}
    # Since systemd 252 an NVMe disk has two such links; its ID_SERIAL is the one that ends in the namespace.
    return {"serial": glob.escape(named[2]) + ("*" if named[1] == "nvme" else "")}


def whole_disk(device: str) -> str:
    """The disk that a partition is on, by the kernel's or udev's names; a disk is itself."""
    found = _PARTITION.fullmatch(device)
    return next(filter(None, found.groups()), device) if found else device
