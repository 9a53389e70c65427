"""The first file system of the lab's VM: busybox, the modules that reach the host's files, and a script.

All else comes from the host's root folder, which the VM mounts over 9p, read-only.
"""

from __future__ import annotations

import lzma
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

MODULES = ("virtio_pci", "9pnet_virtio", "9p", "virtio_console", "virtio-rng")

Entry: TypeAlias = tuple[str, int, bytes]
"""Path, mode with the kind of file, content."""

_INIT = """\
#!/bin/busybox sh
export PATH=/bin:/usr/sbin:/usr/bin:/sbin
/bin/busybox mkdir -p /proc /host
while read -r module; do /bin/busybox insmod "/modules/$module"; done < /modules/order
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host || exit
/bin/busybox mount -t proc proc /host/proc
/bin/busybox mount -t sysfs sysfs /host/sys
/bin/busybox mount -t devtmpfs devtmpfs /host/dev
/bin/busybox mkdir -p /host/dev/shm /host/dev/pts
# What udev links: shells read from /dev/fd.
/bin/busybox ln -s /proc/self/fd /host/dev/fd
/bin/busybox ln -s /proc/self/fd/0 /host/dev/stdin
/bin/busybox mount -t tmpfs tmpfs /host/dev/shm
/bin/busybox mount -t devpts devpts /host/dev/pts
for folder in run tmp var/tmp; do /bin/busybox mount -t tmpfs -o mode=1777 tmpfs "/host/$folder"; done
/bin/busybox mkdir -p /host/run/lab
/bin/busybox cp /agent.py /host/run/lab/agent.py
/bin/busybox ip link set lo up
/bin/busybox cat > /host/run/lab/first <<'EOF'
@PYTHON@ -I -S /run/lab/agent.py agent
echo o > /proc/sysrq-trigger
sleep 60
EOF
exec /bin/busybox switch_root /host /bin/sh /run/lab/first
"""


def modules(kernel: str, wanted: Iterable[str] = MODULES) -> list[Path]:
    """The files of the modules that reach the host's root folder, or other ones, in the order of loading.

    Raises:
        LookupError: This kernel was built without one of them.
    """
    found: dict[Path, None] = {}
    for module in wanted:
        told = subprocess.run(
            ["modprobe", "--set-version", kernel, "--show-depends", module], capture_output=True, text=True
        )
        if told.returncode:
            raise LookupError(f"kernel {kernel} has no module {module}")
        found.update(
            (Path(line.split()[1]), None) for line in told.stdout.splitlines() if line[:6] == "insmod"
        )
    return list(found)


def build(kernel: str, busybox: Path, agent: Path) -> bytes:
    """The archive of the lab's VM."""
    files = modules(kernel)
    # Not the virtual environment's: it may lie where the VM has a folder of its own, as /tmp is.
    python = str(Path(sys.executable).resolve())
    order = "".join(f"{number:02}.ko\n" for number, _ in enumerate(files))
    return archive([
        *((name, 0o040755, b"") for name in ("bin", "modules", "dev")),
        ("bin/busybox", 0o100755, busybox.read_bytes()),
        ("init", 0o100755, _INIT.replace("@PYTHON@", python).encode()),
        ("agent.py", 0o100644, agent.read_bytes()),
        ("modules/order", 0o100644, order.encode()),
        *((f"modules/{number:02}.ko", 0o100644, plain(path)) for number, path in enumerate(files)),
    ])  # fmt: skip


def archive(entries: Iterable[Entry]) -> bytes:
    """A cpio archive in the `newc` format. Several in a row are one initramfs: the later ones add to it.

    Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    whole = [*entries, ("TRAILER!!!", 0, b"")]
    return b"".join(_entry(number, *entry) for number, entry in enumerate(whole, 1))


def plain(module: Path) -> bytes:
    """A module's file without the compression that some distributions ship it with."""
    match module.suffix:
        case ".xz":
            return lzma.decompress(module.read_bytes())
        case ".zst":
            return subprocess.run(["zstd", "-dc", module], check=True, capture_output=True).stdout
        case _:
            return module.read_bytes()


def _entry(inode: int, name: str, mode: int, data: bytes) -> bytes:
    numbers = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
