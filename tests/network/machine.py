"""The place where the lab's commands run: this machine, or a small VM on it. Both look alike to the lab.

`Direct` takes namespaces of this kernel, where it has ESP and XFRM interfaces and lets us make them. `Vm`
boots a distribution's kernel in QEMU, with the host's root folder (read-only) as its own, so that what is
installed here is installed there; what is started most (`resident`) is in its memory. In both, everything is
below one process that dies with ours: nothing is left to clean up.

`CAUSEWAY_LAB=direct` or `=vm` decides; else it is whichever works.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import qemu
from network import resident
from qemu import Unavailable

_AGENT = Path(__file__).with_name("agent.py")
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "virtio_console", "virtio-rng", "overlay")
"""Those that reach the host's root folder, and the agent."""
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
# Over what is the host's; but for /usr/local and /etc, over which each node has a layer of its own.
/bin/busybox cp -a /resident /host/run/lab/resident
/bin/busybox mkdir /host/run/lab/local
/bin/busybox mount -o bind /host/usr/local /host/run/lab/local
/bin/busybox mount -t overlay -o lowerdir=/host/run/lab/resident/usr:/host/usr lab /host/usr
/bin/busybox mount -o move /host/run/lab/local /host/usr/local
# The kernel asks for a module by each name of an interface that is not there. It is told so only once.
/bin/busybox mkdir /host/run/lab/no-module
/bin/busybox cat > /host/run/lab/modprobe <<'EOF'
#!/bin/busybox sh
no=/run/lab/no-module
case $3 in netdev-*) : > "$no/${3#netdev-}"; exit 1 ;; esac
[ ! -e "$no/$3" ] || exit 1
modprobe "$@" || { : > "$no/$3"; exit 1; }
EOF
/bin/busybox chmod 755 /host/run/lab/modprobe
echo /run/lab/modprobe > /host/proc/sys/kernel/modprobe
/bin/busybox ip link set lo up
/bin/busybox cat > /host/run/lab/first <<'EOF'
# Before several nodes ask for them at once: the kernel tells one of two that there is no such device.
modprobe -q -a bridge veth vxlan xfrm_interface
@PYTHON@ -I -S /run/lab/agent.py agent
echo o > /proc/sysrq-trigger
sleep 60
EOF
exec /bin/busybox switch_root /host /bin/sh /run/lab/first
"""
_MEMORY_MIB = 1536
_BOOT_SECONDS = 60
_BOOT_WAIT = 300
"""Seconds by the clock, however few of them a busy host gave."""
_SEND_SECONDS = 120
"""The other end reads nothing for so long: it has stopped."""
# Grace for a busy host: the agent keeps the time of a command, this only catches an agent that is gone.
_GRACE_SECONDS = 60

# Ends the child when its parent dies, however it dies.
LEASH = ("setpriv", "--pdeathsig", "KILL", "--")
# Timers of protocols run inside, so a VM on a busy machine goes first, where we may say so. What is said of a
# process may count within its session alone (sched(7), "The autogroup feature").
_FIRST = ("sh", "-c", 'echo -10 >/proc/self/autogroup; exec nice -n -10 "$@"', "first")

PATIENCE = 4
"""What a busy machine, on which other tests run, is given of the time that suffices on one that is not."""


class MachineFault(Exception):  # noqa: N818 # told, not handled
    """The machine could not do what was asked, or is gone."""


@dataclass(frozen=True)
class Result:
    """What a command left. `late`: it was killed since its time was up."""

    command: tuple[str, ...]
    code: int
    data: bytes
    stderr: str
    late: bool

    @property
    def stdout(self) -> str:
        return self.data.decode(errors="replace")

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.late

    def __str__(self) -> str:
        how = "took too long" if self.late else f"ended with {self.code}"
        return f"`{' '.join(self.command)}` {how}\n{self.stdout}{self.stderr}".rstrip()


class Machine:
    """An agent at the other end of a socket, and the process that ends it."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket) -> None:
        self._process = process
        self._line = line
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self._lock = threading.Lock()
        self._asked = 0
        self._waiting: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._hello = self._waiting[0]
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def kernel(self) -> str:
        """The release of the kernel that the lab runs on."""
        return str(self._hello.result()["kernel"])

    def ready(self, seconds: float) -> bool:
        """Waits for the agent's first word, until the process has used so many seconds of processors. A busy
        machine gives it few of them, so a clock would say little. One that uses none has stopped, and so has
        one that is not there after ``_BOOT_WAIT``."""
        until = time.monotonic() + _BOOT_WAIT
        while True:
            before = self.spent()
            try:
                self._hello.result(_BOOT_SECONDS)
            except MachineFault:
                return False
            except TimeoutError:
                if (spent := self.spent()) > seconds or spent - before < 1 or time.monotonic() > until:
                    return False
            else:
                return True

    def spent(self) -> float:
        """Seconds of processors that the process has used."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return float("inf")
        return float(times.user + times.system)

    def ask(self, op: str, timeout: float = 10, **request: Any) -> dict[str, Any]:
        """One request, one answer; any number at once from any thread.

        Raises:
            MachineFault: The agent failed to do it, or does not answer.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            self._asked += 1
            number = self._asked
            self._waiting[number] = answer
            message = {"id": number, "op": op, "timeout": timeout, **request}
            try:
                self._line.sendall(json.dumps(message).encode() + b"\n")
            except OSError as fault:
                raise MachineFault(f"the lab's machine is gone: {fault}") from fault
        try:
            reply = answer.result(timeout + _GRACE_SECONDS)
        except TimeoutError as fault:
            raise MachineFault(f"the lab's machine does not answer: {op} {request}") from fault
        if "fault" in reply:
            raise MachineFault(f"{op}: {reply['fault']}")
        return reply

    def run(
        self, command: Sequence[str], *, node: int | None = None, stdin: bytes = b"", timeout: float = 30
    ) -> Result:
        """Runs a command to its end; `timeout` in seconds on a machine that is not busy."""
        reply = self.ask(
            "run",
            timeout * PATIENCE,
            command=list(command),
            node=node,
            stdin=base64.b64encode(stdin).decode(),
        )
        stdout, stderr = (base64.b64decode(reply[name]) for name in ("stdout", "stderr"))
        return Result(tuple(command), reply["code"], stdout, stderr.decode(errors="replace"), reply["late"])

    def close(self) -> None:
        """Ends the machine with all that runs in it."""
        self._line.close()
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        waiting = b""
        while chunk := self._receive():
            *replies, waiting = (waiting + chunk).split(b"\n")
            for line in replies:
                reply = json.loads(line)
                self._waiting.pop(reply["id"]).set_result(reply)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(MachineFault("the lab's machine has ended"))

    def _receive(self) -> bytes:
        try:
            return self._line.recv(1 << 16)
        except OSError:  # closed by us
            return b""


class Direct(Machine):
    """Namespaces of this kernel: network, mounts and processes of our own, below one process."""

    # What a tunnel needs of the kernel, tried where it harms nobody.
    _TRIAL = (
        "ip link add t0 type xfrm dev lo if_id 1 && ip link add t1 type vxlan id 1 dstport 8472 dev lo && "
        "ip xfrm state add src 127.0.0.1 dst 127.0.0.1 proto esp spi 1 mode tunnel if_id 1 "
        "aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 128 && "
        "nft add table inet t && test -c /dev/net/tun"
    )
    _SETUP = "mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys && ip link set lo up"

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            agent = f'{self._SETUP} && exec "$0" -I -S "$1" {number}'
            command = [*LEASH, *self._unshared(agent), str(Path(sys.executable).resolve()), str(_AGENT)]
            process = subprocess.Popen(command, pass_fds=[number], start_new_session=True)
        super().__init__(process, ours)
        if not self.ready(_BOOT_SECONDS):
            self.close()
            raise Unavailable("this kernel lets us make no namespaces")

    @classmethod
    def missing(cls) -> str:
        """Why it can't be, or nothing."""
        told = subprocess.run(cls._unshared(cls._TRIAL), capture_output=True, text=True)
        return f"this kernel lacks what a tunnel needs ({told.stderr.strip()})" if told.returncode else ""

    @staticmethod
    def _unshared(script: str) -> list[str]:
        user = [] if os.geteuid() == 0 else ["--map-root-user", "--map-auto"]
        spaces = ["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
        return ["unshare", *user, *spaces, "--", "sh", "-c", script]


class Vm(Machine):
    """A kernel of its own, with the host's root folder over 9p. Boots in a few seconds without KVM."""

    def __init__(self, *, memory_mib: int = _MEMORY_MIB, devices: Sequence[str] = ()) -> None:
        """`devices`: further arguments of QEMU."""
        image = qemu.kernel(_MODULES)
        with tempfile.TemporaryDirectory(prefix="causeway-lab-") as folder:
            archive = Path(folder) / "initramfs"
            archive.write_bytes(_first_files(image))
            for accelerator in qemu.accelerators():
                ours, theirs = socket.socketpair()
                with theirs, (Path(folder) / "console").open("wb") as console:
                    machine = _qemu(accelerator, image, archive, theirs.fileno(), memory_mib)
                    command = [*_FIRST, *LEASH, *machine, *devices]
                    process = subprocess.Popen(
                        command,
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=console,
                        stderr=console,
                        start_new_session=True,
                    )
                super().__init__(process, ours)
                if self.ready(_BOOT_SECONDS):
                    return
                self.close()
            told = (Path(folder) / "console").read_text(errors="replace")
            raise MachineFault(f"the lab's VM did not start\n{told[-3000:]}")

    @staticmethod
    def missing() -> str:
        """Why it can't be, or nothing."""
        for tool, package in (("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")):
            if shutil.which(tool) is None:
                return f"{tool} is missing (package {package})"
        try:
            qemu.kernel(_MODULES)
        except Unavailable as fault:
            return str(fault)
        return ""


def machine() -> Machine:
    """The machine that this host can offer.

    Raises:
        Unavailable: There is none; says what to install.
    """
    wanted = os.environ.get("CAUSEWAY_LAB", "")
    reasons = []
    for name, kind in (("direct", Direct), ("vm", Vm)):
        if wanted in ("", name):
            if not (reason := kind.missing()):
                return kind()
            reasons.append(reason)
    raise Unavailable("; ".join(reasons) or f"CAUSEWAY_LAB={wanted} is neither direct nor vm")


def _qemu(accelerator: str, image: Path, initramfs: Path, line: int, memory_mib: int) -> list[str | Path]:
    return [
        *qemu.command(accelerator, image, initramfs, memory_mib),
        *("-serial", "stdio", "-monitor", "none"),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=agent,fd={line}", "-device", "virtserialport,chardev=agent,name=agent"),
    ]


def _first_files(image: Path) -> bytes:
    # Not the virtual environment's: it may lie where the VM has a folder of its own, as /tmp is.
    init = _INIT.replace("@PYTHON@", str(Path(sys.executable).resolve()))
    agent = ("agent.py", 0o100644, _AGENT.read_bytes())
    return qemu.initramfs(image, _MODULES, init, [agent, *resident.entries("resident")])
