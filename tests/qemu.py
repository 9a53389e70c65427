"""What virtual machines of the tests share: the kernel, its first file system, QEMU's command line."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

Entry: TypeAlias = tuple[str, int, bytes]
"""Path, mode with the kind of file, content."""

# The same addresses in each process (norandmaps): without KVM, QEMU keeps the code it translated by address,
# and starting a program takes a fifth of the time. A clock (tsc) that is read without leaving the VM. No test
# of the timer (no_timer_check): it fails, and the kernel panics, where the host is too busy to run the VM.
_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off norandmaps"
    " tsc=reliable clocksource=tsc no_timer_check random.trust_cpu=on"
)
_EMULATED = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+aes,+pclmulqdq,+rdrand"
"""What QEMU emulates where it has to: x86-64-v2 and what ciphers use. With all that it can (``max``), each
switch between processes saves and loads vector registers, and a process costs a fifth more to start."""


class Unavailable(Exception):  # noqa: N818 # what a skipped test says
    """No virtual machine on this machine. The message names what is missing."""


def release(kernel: Path) -> str:
    """The version of a kernel's file, as its modules' folder is called."""
    return kernel.name.removeprefix("vmlinuz-") if kernel.name != "vmlinuz" else kernel.parent.name


def kernel(wanted: Sequence[str]) -> Path:
    """The newest kernel that we may read and that has these modules.

    Raises:
        Unavailable: There is none.
    """
    found = [*Path("/boot").glob("vmlinuz-*"), *Path("/lib/modules").glob("*/vmlinuz")]
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        if not os.access(path, os.R_OK):
            continue
        try:
            modules(path, wanted)
        except LookupError:
            continue
        return path
    names = ", ".join(wanted)
    raise Unavailable(f"no kernel with {names} that we may read in /boot (package linux-image-amd64)")


def accelerators() -> list[str]:
    """What QEMU may run a kernel with here, the fastest first."""
    # Some hosts offer a /dev/kvm that can't run a kernel; their processor shows no virtualisation.
    flags = Path("/proc/cpuinfo").read_text().split()
    kvm = ["kvm"] if os.access("/dev/kvm", os.R_OK | os.W_OK) and {"vmx", "svm"} & set(flags) else []
    return [*kvm, "tcg,thread=multi"]


def command(
    accelerator: str, image: Path, initramfs: Path, memory_mib: int, arguments: str = ""
) -> list[str | Path]:
    """QEMU, without any device but random numbers. ``arguments``: further ones of the kernel."""
    cpu = _EMULATED if accelerator.startswith("tcg") else "max,la57=off"
    return [
        "qemu-system-x86_64",
        *("-accel", accelerator, "-cpu", cpu, "-smp", "2", "-m", str(memory_mib)),
        *("-machine", "pc,usb=off", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-kernel", image, "-initrd", initramfs, "-append", f"{_ARGUMENTS} {arguments}".rstrip()),
        *("-device", "virtio-rng-pci"),
    ]


def initramfs(image: Path, wanted: Sequence[str], init: str, entries: Iterable[Entry]) -> bytes:
    """The first file system: busybox, modules in /modules, in the order of /modules/order, /init, and more.

    Raises:
        Unavailable: There is no busybox.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Unavailable("busybox is missing (package busybox-static)")
    files = modules(image, wanted)
    order = "".join(f"{number:02}.ko\n" for number, _ in enumerate(files))
    return _archive([
        *((name, 0o040755, b"") for name in ("bin", "modules", "dev")),
        ("bin/busybox", 0o100755, Path(busybox).read_bytes()),
        ("init", 0o100755, init.encode()),
        ("modules/order", 0o100644, order.encode()),
        *((f"modules/{number:02}.ko", 0o100644, _plain(path)) for number, path in enumerate(files)),
        *entries,
    ])  # fmt: skip


def modules(image: Path, wanted: Iterable[str]) -> list[Path]:
    """The files of a kernel's modules, and of those that they need, in the order of loading.

    Raises:
        LookupError: This kernel was built without one of them.
    """
    found: dict[Path, None] = {}
    for module in wanted:
        told = subprocess.run(
            ["modprobe", "--set-version", release(image), "--show-depends", module],
            capture_output=True,
            text=True,
        )
        if told.returncode:
            raise LookupError(f"kernel {release(image)} has no module {module}")
        found.update(
            (Path(line.split()[1]), None) for line in told.stdout.splitlines() if line[:6] == "insmod"
        )
    return list(found)


def _archive(entries: Iterable[Entry]) -> bytes:
    """A cpio archive in the `newc` format. Several in a row are one initramfs: the later ones add to it.

    Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    whole = [*entries, ("TRAILER!!!", 0, b"")]
    return b"".join(_entry(number, *entry) for number, entry in enumerate(whole, 1))


def _plain(module: Path) -> bytes:
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
