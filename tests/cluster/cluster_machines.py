"""Machines of a cluster on this kernel, each with a root, a network and processes of its own, as a container.

What runs there is real: OpenSSH, containerd 2, runc, the kubelet, kubeadm, the control plane, kube-proxy with
iptables. A stand-in says so in its own file: Chef (``chef.rb``, which runs the real recipes), systemd,
crictl, flannel, kube-network-policies and DNS (``programs``), boto3 (``standins``). etcd is Debian's 3.4,
and its ``etcdutl`` a stand-in. The release to upgrade to is the same programs under another number.
Images hold a skeleton: their programs are this machine's.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_layout import add, add_folder, add_skeleton, layout

HERE = Path(__file__).parent
RELEASE = "v1.36.2"
"""What the shared programs are."""
AFTER = "v1.37.2"
"""The release to upgrade to: the same programs, made to say so."""
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio")
GATEWAY = "10.0.0.254"
"""Where engineers sit, and what balances the API servers."""
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
LEASH = ("setpriv", "--pdeathsig", "KILL", "--")
RUNS = {
    # It has its image alone: containerd does not give it what other containers get. kubeadm's check before an
    # upgrade is that it says its version and ends.
    "pause": ["/busybox", "sh", "-c", 'test "$0" = -v || exec /busybox sleep infinity'],
    "coredns": ["/usr/local/bin/healthy", "0.0.0.0:8080", "0.0.0.0:8181"],
    "k8s-dns-node-cache": ["/usr/local/bin/node-cache"],
}
"""What containers of an image run that are not given a command, by the last part of its name."""


@dataclass(slots=True)
class Machine:
    """A machine, switched on."""

    name: str
    process: subprocess.Popen[bytes]
    pid: int
    folder: Path

    def sh(self, script: str, *, check: bool = True, timeout: float = 120) -> str:
        done = self._enter("sh", "-c", script, timeout=timeout)
        assert not check or done.returncode == 0, f"{self.name}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def run(self, *command: str, text: str = "") -> str:
        """Standard output of a command that succeeds."""
        done = self._enter(*command, text=text, timeout=400)
        assert done.returncode == 0, f"{self.name}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _enter(self, *command: str, timeout: float, text: str = "") -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "--target", str(self.pid), "--all", "--root", "--wdns=/", "--", *command]
        return subprocess.run(
            enter,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": PATH},
            check=False,
        )


class Lab:
    """The machines, and a desk from which they are reached."""

    def __init__(self, folder: Path, tools: Path, kubectl: Path) -> None:
        self.folder = folder
        self.tools = tools
        self.kubectl = kubectl
        self.machines: dict[str, Machine] = {}
        self.ssh_config = folder / "lab" / "ssh_config"
        self._group = f"causeway-{os.getpid()}"
        self._addresses: Mapping[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- The desk -------------------------------------------------------------------------------------------

    def open(self, addresses: Mapping[str, str], domain: str) -> None:
        """Name → address of each machine. From then on there is a desk, and nothing is switched on."""
        self._addresses = addresses
        names = "".join(f"{address} {name}.{domain} {name}\n" for name, address in addresses.items())
        lab = self.folder / "lab"
        for each in ("programs", "files", "standins"):
            shutil.copytree(HERE / each, lab / each)
        (lab / "s3").mkdir()
        _relabel(self.tools, lab / "after")
        (lab / "hosts").write_text(f"127.0.0.1 localhost\n{GATEWAY} api.{domain}\n{names}")
        for program in (lab / "programs").iterdir():
            program.chmod(0o755)
        for key in (lab / "user", lab / "files" / "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(lab / "user.pub", lab / "files" / "authorized")
        (lab / "files" / "sshd_config").write_text(
            "HostKey /etc/lab/host\nPidFile none\nUsePAM no\nAuthorizedKeysFile /etc/lab/authorized\n"
            "StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n"
            "Subsystem sftp internal-sftp\n"
            f"SetEnv PATH={PATH}\n"
        )
        shown = " ".join((lab / "files" / "host.pub").read_text().split()[:2])
        (lab / "known_hosts").write_text("".join(f"{name}.{domain} {shown}\n" for name in addresses))
        self.ssh_config.write_text(
            f"Host *\n  User root\n  IdentityFile {lab}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {lab}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        )
        script = (
            f"mount --make-rprivate / && mount --bind {lab}/hosts /etc/hosts && ip link set lo up && "
            f"ip link add switch type bridge && ip address add {GATEWAY}/32 dev switch && "
            "ip link set switch up && echo 1 > /proc/sys/net/ipv4/ip_forward && "
            "echo ready && exec sleep infinity"
        )
        unshare = ["unshare", "--net", "--mount", "--fork", "--kill-child", "--", "sh", "-c", script]
        desk = self._process([*LEASH, *unshare], stdout=subprocess.PIPE)
        assert desk.stdout is not None
        with desk.stdout as output:
            assert output.readline() == b"ready\n"
        self._desk = _child(desk.pid)

    def start(self, images: Iterable[str]) -> None:
        """Switch all machines on. ``images``: those that they have, one of which is ``pause``."""
        images = set(images)
        containerd = self.folder / "lab" / "files" / "containerd.toml"
        (sandbox,) = (each for each in images if "/pause:" in each)
        containerd.write_text(containerd.read_text().replace("SANDBOX", sandbox))
        (self.folder / "lab" / "files" / "images.tar").write_bytes(_images(images))
        self._stack.callback(self._remove_groups)
        for name, address in self._addresses.items():
            self._start(name, address)
        for name in self._addresses:
            self._until_on(name)
        # As AWS' load balancer for the API does: a connection goes to a master that takes it.
        masters = [address for name, address in self._addresses.items() if name.startswith("master")]
        balancer = [sys.executable, str(HERE / "balancer.py"), f"{GATEWAY}:6443", *masters]
        self._process([*LEASH, *self.at_desk(*balancer)])

    def at_desk(self, *command: str, folder: Path = HERE) -> list[str]:
        """The command line of a command that runs at the desk."""
        return ["nsenter", "--target", str(self._desk), "--net", "--mount", f"--wd={folder}", "--", *command]

    def logs(self) -> str:
        """The last lines of what ran on machines."""
        return "".join(
            f"--- {name}\n" + machine.sh("tail -n 6 /var/log/*.log", check=False)
            for name, machine in self.machines.items()
        )

    def _process(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, **options)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    # -- Machines -------------------------------------------------------------------------------------------

    def _start(self, name: str, address: str) -> None:
        folder = self.folder / "machines" / name
        folder.mkdir(parents=True, exist_ok=True)
        group = f"{self._group}/{name}"
        for each in CONTROLLERS:
            cgroup = CGROUPS / each / group
            cgroup.mkdir(parents=True, exist_ok=True)
            if each == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    for below in (cgroup.parent, cgroup):
                        (below / file).write_text((CGROUPS / each / file).read_text())
        enter = " && ".join(f"echo $$ > {CGROUPS / each / group}/cgroup.procs" for each in CONTROLLERS)
        spaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
        script = f"{enter} && exec unshare {' '.join(spaces)} -- sh {HERE}/node.sh"
        log = self._stack.enter_context((folder / "log").open("wb"))
        process = self._process(
            [*LEASH, "sh", "-c", script],
            env={
                "PATH": PATH,
                "NAME": name, "ADDRESS": address, "GATEWAY": GATEWAY, "STATE": str(folder / "state"),
                "TOOLS": str(self.tools), "RELEASE": RELEASE, "AFTER": AFTER, "KUBECTL": str(self.kubectl),
                "LAB": str(self.folder / "lab"),
            },
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        (folder / "state").mkdir(exist_ok=True)
        pid = _child(process.pid)
        self.machines[name] = Machine(name, process, pid, folder)
        port = f"p-{name}"[:14]
        subprocess.run(
            self.at_desk(
                "sh", "-c",
                f"ip link add {port} type veth peer name eth0 netns {pid} && "
                f"ip link set {port} master switch up && ip route add {address}/32 dev switch",
            ), check=True,
        )  # fmt: skip

    def _until_on(self, name: str, seconds: float = 300) -> None:
        machine = self.machines[name]
        end = time.monotonic() + seconds
        while machine.sh("cat /run/lab/ready", check=False) != "ready\n":
            log = (machine.folder / "log").read_text()
            assert machine.process.poll() is None, log
            assert time.monotonic() < end, log + machine.sh("tail -n 20 /var/log/*.log", check=False)
            time.sleep(0.3)

    def _remove_groups(self) -> None:
        for each in CONTROLLERS:
            _remove(CGROUPS / each / self._group)


def missing() -> str:
    """Why there can be no machines here; empty where there can."""
    if os.geteuid():
        return "machines on this kernel: needs root"
    if not all((CGROUPS / each).is_dir() for each in CONTROLLERS):
        return "machines on this kernel: needs the controllers of cgroups v1"
    programs = ("unshare", "nsenter", "runc", "iptables", "etcd", "etcdctl", "ruby", "busybox", "ssh-keygen")
    lacking = [each for each in programs if shutil.which(each) is None]
    lacking += [] if Path("/usr/lib/cni/bridge").exists() else ["containernetworking-plugins"]
    return f"machines on this kernel: {', '.join(lacking)} not found" if lacking else ""


def _relabel(tools: Path, folder: Path) -> None:
    """Kubernetes' programs as those of ``AFTER``, whose number takes the place of theirs."""
    folder.mkdir()
    for name in ("kubeadm", "kubelet", *SERVERS):
        program = (tools / name).resolve()
        copy = folder / program.name
        if not copy.exists():
            copy.write_bytes(program.read_bytes().replace(RELEASE.encode(), AFTER.encode()))
            copy.chmod(0o755)
        if name != copy.name:
            (folder / name).symlink_to(copy.name)


def _child(pid: int) -> int:
    for _ in range(200):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.05)
    raise AssertionError("the machine did not start")


def _remove(group: Path) -> None:
    """A cgroup and those in it, as soon as their processes have ended."""
    for _ in range(50):
        if not group.is_dir():
            return
        with suppress(OSError):
            for each in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
                each.rmdir()
            group.rmdir()
        time.sleep(0.1)


def _images(images: Iterable[str]) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add_skeleton(tar)
        for folder in ("opt", "opt/bin", "run"):
            add_folder(tar, folder)
        programs = {f"opt/bin/{name}": f"/usr/local/bin/{name}" for name in ("flanneld", "install-conf")}
        for name, target in {**programs, "var/run": "/run"}.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        # Two that are copied out of their images.
        for name, program in (("flannel", "flannel-plugin"), ("usr/local/bin/etcdutl", "etcdutl")):
            add(tar, name, (HERE / "programs" / program).read_bytes(), 0o755)
    configs = {
        name: {
            "Env": _environment(name),
            "Entrypoint": RUNS.get(name.rpartition(":")[0].rpartition("/")[2], []),
        }
        for name in sorted(images)
    }
    return layout(layer.getvalue(), configs)


def _last(image: str) -> str:
    """Of an image's name, the last part without its tag."""
    return image.rpartition(":")[0].rpartition("/")[2]


def _environment(image: str) -> list[str]:
    programs = f"/usr/local/lib/kubernetes/{image.rpartition(':')[2]}"
    return [f"PATH=/usr/local/bin:{programs}:/usr/sbin:/usr/bin:/sbin:/bin", f"KUBERNETES={programs}"]
