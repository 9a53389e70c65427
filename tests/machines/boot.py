"""A machine's first file system: it reaches the disk and the network, and brings what is this machine's own.

That is what cloud-init would bring: a name, host keys, somebody's key, files. The modules of the kernel,
which comes from this computer, are mounted from here over 9p.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import qemu

MODULES = ("virtio_pci", "virtio_blk", "ext4", "virtio_net", "9pnet_virtio", "9p", "virtio-rng")

_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /machine
while read -r module; do $b insmod "/modules/$module"; done </modules/order
$b mount -t devtmpfs devtmpfs /dev
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/vda ] && break; $b sleep 0.2; done
$b mount -t ext4 -o noatime /dev/vda /machine || exit
$b mkdir -p /machine/usr/lib/modules
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose modules /machine/usr/lib/modules
$b ip link set eth0 up
$b ip address add 10.0.2.15/24 dev eth0
$b ip route add default via 10.0.2.2
[ ! -s /private ] || $b ip address add "$($b cat /private)/32" dev eth0
$b cp -a /seed/. /machine/
for user in ubuntu causeway; do $b chroot /machine chown -R "$user:$user" "/home/$user"; done
$b umount /dev
exec $b switch_root /machine /sbin/init
"""


@dataclass(frozen=True)
class File:
    """A file that a machine finds when it starts."""

    text: str
    mode: int = 0o644


def kernel() -> Path:
    """The kernel that machines run.

    Raises:
        qemu.Unavailable: There is none.
    """
    return qemu.kernel(MODULES)


def build(image: Path, seed: Mapping[str, File], private: str = "") -> bytes:
    """The initramfs for a kernel's file; ``seed``: absolute path → file; ``private``: one more address."""
    folders = sorted({str(each) for path in seed for each in Path(path).parents if str(each) != "/"})
    return qemu.initramfs(image, MODULES, _INIT, [
        ("seed", 0o040755, b""),
        ("private", 0o100644, private.encode()),
        *((f"seed{folder}", 0o040700 if folder.endswith("/.ssh") else 0o040755, b"") for folder in folders),
        *((f"seed{path}", 0o100000 | file.mode, file.text.encode()) for path, file in seed.items()),
    ])  # fmt: skip
