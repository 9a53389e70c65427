"""A small virtual machine that stands in for an instance of EC2 or for a machine in a rack.

Debian or Ubuntu with systemd, a sshd that answers on port 22 of an address of 127.92.0.0/16, and the users
``ubuntu`` and ``causeway``, who may do everything with sudo. Each has a folder, which keeps its disk. It
ends with the process that it was started for::

    vm = Vm.make(folder, disk, address=..., public_key=..., hostname="titan-01")
    vm.start(os.getpid()); vm.shut_down(); vm.start(os.getpid()); vm.end()
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import qemu
from machines import boot
from machines.boot import File

_LEASH = Path(__file__).with_name("leash.py")
# On a busy computer a service may take longer to start than systemd waits by itself.
_ARGUMENTS = "systemd.default_timeout_start_sec=600"
_LEASHES: dict[Path, subprocess.Popen[bytes]] = {}
"""Of machines that this process started: folder → process."""
_UP_SECONDS = 600
_DOWN_SECONDS = 120


class Broken(Exception):  # noqa: N818 # told, not handled
    """The machine does not do what it should; the end of its console."""


@dataclass(frozen=True)
class Vm:
    """A machine, running or not."""

    folder: Path

    @classmethod
    def make(
        cls,
        folder: Path,
        disk: Path,
        *,
        address: str,
        public_key: str,
        hostname: str,
        user: str = "ubuntu",
        files: Mapping[str, File] | None = None,
        online: bool = False,
        private: str = "",
        data: str = "",
    ) -> Vm:
        """One that never ran. ``disk`` is left as it is; ``public_key`` lets ``user`` in; ``files`` are put
        on it at every start; ``online``: it may reach what this computer reaches; ``private``: an address
        that it has besides; ``data``: a second disk, /dev/vdb, of so much (``2G``)."""
        folder.mkdir(parents=True)
        backing: list[str | Path] = ["-F", "raw" if disk.suffix == ".raw" else "qcow2", "-b", disk.absolute()]
        own = folder / "disk.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, own], check=True)
        if data:
            create = ["qemu-img", "create", "-q", "-f", "qcow2", str(folder / "data.qcow2"), data]
            subprocess.run(create, check=True)
        key = folder / "host_key"
        keygen: list[str | Path] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", hostname, "-f", key]
        subprocess.run(keygen, check=True)
        name = hostname.partition(".")[0]
        names = f"{hostname} {name}" if name != hostname else name
        seed = {
            "/etc/hostname": File(f"{name}\n"),
            "/etc/hosts": File(f"127.0.0.1 localhost\n127.0.1.1 {names}\n"),
            "/etc/ssh/ssh_host_ed25519_key": File(key.read_text(), 0o600),
            "/etc/ssh/ssh_host_ed25519_key.pub": File(key.with_suffix(".pub").read_text()),
            f"/home/{user}/.ssh/authorized_keys": File(f"{public_key.strip()}\n", 0o600),
            **(files or {}),
        }
        (folder / "initramfs").write_bytes(boot.build(boot.kernel(), seed, private))
        (folder / "vm.json").write_text(json.dumps({"address": address, "online": online}))
        return cls(folder)

    @property
    def address(self) -> str:
        return str(json.loads((self.folder / "vm.json").read_text())["address"])

    @property
    def host_key(self) -> str:
        """A line of known_hosts."""
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        return f"{self.address} {kind} {key}"

    @property
    def console(self) -> str:
        """What it said while it started."""
        path = self.folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, owner: int) -> None:
        """Until its sshd answers. It ends with the process ``owner``.

        Raises:
            Broken: It does not come up.
        """
        for accelerator in qemu.accelerators():
            command = [
                sys.executable,
                "-I",
                _LEASH,
                str(owner),
                self.folder / "qemu.log",
                *self._qemu(accelerator),
            ]
            leash = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _LEASHES[self.folder] = leash
            (self.folder / "pid").write_text(str(leash.pid))
            deadline = time.monotonic() + _UP_SECONDS
            while leash.poll() is None and time.monotonic() < deadline:
                if self.answers():
                    return
                time.sleep(0.2)
            self.end()
        log = (self.folder / "qemu.log").read_text(errors="replace") + self.console
        raise Broken(f"{self.folder.name} does not start:\n{log[-3000:]}")

    def answers(self) -> bool:
        """Whether sshd does: QEMU takes connections long before the machine does."""
        try:
            with socket.create_connection((self.address, 22), timeout=5) as probe:
                probe.settimeout(5)
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def shut_down(self) -> None:
        """By its power button, until it is off.

        Raises:
            Broken: It stays on.
        """
        self._signal(signal.SIGTERM)
        if not self._gone(_DOWN_SECONDS):
            self.end()
            raise Broken(f"{self.folder.name} does not shut down:\n{self.console[-3000:]}")

    def end(self) -> None:
        """At once, as if its cable were pulled."""
        self._signal(signal.SIGKILL)
        self._gone(_DOWN_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        pid = self.folder / "pid"
        if pid.exists():
            try:
                os.kill(int(pid.read_text()), number)
            except ProcessLookupError:
                pid.unlink()

    def _gone(self, seconds: float) -> bool:
        pid = self.folder / "pid"
        deadline = time.monotonic() + seconds
        while pid.exists() and _alive(int(pid.read_text())):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        pid.unlink(missing_ok=True)
        if leash := _LEASHES.pop(self.folder, None):
            leash.wait()
        return True

    def _qemu(self, accelerator: str) -> list[str | Path]:
        image = boot.kernel()
        data = self.folder / "data.qcow2"
        restrict = "off" if json.loads((self.folder / "vm.json").read_text())["online"] else "on"
        memory_mib = int(os.environ.get("CAUSEWAY_VM_MIB", "1024"))
        return [
            *qemu.command(accelerator, image, self.folder / "initramfs", memory_mib, _ARGUMENTS),
            *("-serial", f"file:{self.folder / 'console'}"),
            # The power button.
            *("-chardev", "stdio,id=button,signal=off", "-serial", "chardev:button"),
            *(
                "-drive",
                f"file={self.folder / 'disk.qcow2'},if=virtio,format=qcow2,cache=unsafe,discard=unmap",
            ),
            *(["-drive", f"file={data},if=virtio,format=qcow2,cache=unsafe"] if data.exists() else []),
            *("-netdev", f"user,id=net,restrict={restrict},hostfwd=tcp:{self.address}:22-:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
            "-virtfs",
            f"local,path={_modules(image)},mount_tag=modules,security_model=none,readonly=on,multidevs=remap",
        ]


def _modules(image: Path) -> Path:
    """The folder with all kernels' modules; a machine loads those of its own."""
    folder = Path("/lib/modules").resolve()
    assert (folder / qemu.release(image)).is_dir()
    return folder


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
