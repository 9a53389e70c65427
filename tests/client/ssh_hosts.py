"""Machines without a cluster: namespaces of this kernel, with a real sshd and a real systemd for each user.

Each has a network, a host name, processes, homes and a /run of its own; a cable joins two. The laptop is this
machine: its ssh reaches an sshd by a ``ProxyCommand`` that enters the namespaces, as one to a jump host
would. There are no GPUs here, so ``nvidia-smi`` is a script that prints what a file says. It is the only
stand-in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from client.process import Laptop

GPU = "NVIDIA TITAN X (Pascal)"
"""What machines have two of."""
USERS = {"ada": 54101, "bob": 54102}
ADDRESSES = ("10.77.0.1", "10.77.0.2")
RUNS = ".local/share/causeway/machines/runs"
_CGROUPS = Path("/sys/fs/cgroup")
_NVIDIA_SMI = """\
#!/usr/bin/python3 -I
import json, sys
values = json.load(open("/run/gpus.json"))
given = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
if values.get("fault"):
    sys.exit(values["fault"])
if "query-compute-apps" in given:
    for row in values["apps"]:
        print(", ".join(map(str, row)))
    sys.exit()
fields = ("index", "uuid", "name", "memory.total")
for row, busy in zip(values["gpus"], values["busy"]):
    if str(row[0]) in given.get("id", str(row[0])).split(","):
        known = {"utilization.gpu": busy, "memory.used": 512, "driver_version": "550.54.14"}
        known.update(zip(fields, row))
        print(", ".join(str(known[field]) for field in given["query-gpu"].split(",")))
"""
_BOOT = """
set -e
ip link set lo up
hostname "$NAME"
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/sshd /run/systemd/system /run/user /run/lock
chmod 1777 /run/lock
cp "$OWN/gpus.json" /run/gpus.json
cp -r "$OWN/programs" /run/programs
mount --bind "$OWN/etc/passwd" /etc/passwd
mount --bind "$OWN/etc/group" /etc/group
mount --bind "$OWN/etc/hosts" /etc/hosts
mount --bind "$OWN/linger" /var/lib/systemd
mount --bind "$OWN/homes" /home
mount --bind "$OWN/boot_id" /proc/sys/kernel/random/boot_id
touch /run/booted
exec sleep infinity
"""


def missing() -> str:
    """Why there can be none here, or nothing."""
    if os.geteuid() != 0:
        return "needs root: each machine has namespaces of its own"
    for program, package in (("sshd", "openssh-server"), ("ssh", "openssh-client"), ("ip", "iproute2")):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program} not found (package {package})"
    for path, package in (
        ("/usr/lib/systemd/systemd", "systemd"),
        ("/usr/bin/systemd-run", "systemd"),
        ("/usr/bin/python3", "python3"),
    ):
        if not Path(path).exists():
            return f"{path} not found (package {package})"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "this kernel lets us make no namespaces" if tried.returncode else ""


@dataclass
class Host:
    """A machine."""

    name: str
    folder: Path
    cgroup: Path
    """Below each hierarchy of control groups."""
    process: subprocess.Popen[bytes] | None = None
    managers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Of its first process, which is in all of its namespaces."""
        assert self.process is not None
        return int(self._children().split()[0])

    def _children(self) -> str:
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()

    def boot(self) -> None:
        """Until the users' systemds run."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        spaces = ["--net", "--mount", "--uts", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "unshare", *spaces, "sh", "-c", _BOOT],
            env={**os.environ, "NAME": self.name, "OWN": str(self.folder)}, start_new_session=True,
        )  # fmt: skip
        self._until(lambda: bool(self._children()))
        self._until(lambda: self._in(["test", "-e", "/run/booted"]).returncode == 0)
        (self.folder / "pid").write_text(str(self.pid))
        for user, uid in USERS.items():
            self._manager(user, uid)

    def kill(self) -> None:
        """As if its cable were pulled: all of its processes are gone at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        for manager in self.managers:
            manager.kill()
            manager.wait()
        self.managers = []
        for path in self._cgroups():
            for inner in sorted(path.rglob("*"), key=lambda group: -len(group.parts)):
                if inner.is_dir():
                    self._until(lambda inner=inner: _gone(inner))  # type: ignore[misc]
            if path.is_dir():
                path.rmdir()

    def gpus(self, count: int, name: str = GPU, apps: Sequence[tuple[int, int]] = ()) -> None:
        """What ``nvidia-smi`` shows from now on. ``apps``: (index, process id) of programs."""
        rows = [[at, f"GPU-{self.name}-{at}", name, 12288] for at in range(count)]
        programs = [[f"GPU-{self.name}-{at}", pid] for at, pid in apps]
        # The others of a machine work.
        text = json.dumps({"gpus": rows, "apps": programs, "busy": [0] + [90] * count})
        (self.folder / "gpus.json").write_text(text)
        if self.process is not None:
            self._in(["sh", "-c", f"cp {self.folder}/gpus.json /run/gpus.json"])

    def linger(self, user: str, *, on: bool) -> None:
        path = self.folder / "linger/linger" / user
        path.touch() if on else path.unlink()

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """As root, over there."""
        return self._in(["sh", "-c", command])

    def systemctl(self, user: str, command: str) -> subprocess.CompletedProcess[str]:
        """``systemctl --user`` of a user."""
        return self.become(user, f"systemctl --user {command}")

    def become(self, user: str, command: str) -> subprocess.CompletedProcess[str]:
        """A command as a user."""
        variables = (
            f"HOME=/home/{user} USER={user} PATH=/usr/bin:/bin XDG_RUNTIME_DIR=/run/user/{USERS[user]}"
        )
        ids = f"--reuid {user} --regid {user} --clear-groups"
        return self.run(f"cd /; setpriv {ids} env -i {variables} {command}")

    def home(self, user: str) -> Path:
        return self.folder / "homes" / user

    def _in(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "--target", str(self.pid), "--all", "--", *command]
        return subprocess.run(enter, capture_output=True, text=True)

    def _manager(self, user: str, uid: int) -> None:
        """``user@.service``, as systemd's process 1 would start it: as the user, in a group of their own."""
        groups = []
        for path in self._cgroups():
            own = path / user
            own.mkdir(parents=True, exist_ok=True)
            for inner in (own, *own.iterdir()):
                os.chown(inner, uid, uid)
            groups.append(own / "cgroup.procs")
        join = "; ".join(f"echo $$ > {path}" for path in groups)
        start = (
            f"mkdir -m 700 /run/user/{uid} && chown {uid}:{uid} /run/user/{uid} && "
            f"exec setpriv --reuid {uid} --regid {uid} --clear-groups env -i HOME=/home/{user} USER={user} "
            f"LOGNAME={user} SHELL=/bin/bash PATH=/usr/bin:/bin LANG=C.UTF-8 XDG_RUNTIME_DIR=/run/user/{uid} "
            "/usr/lib/systemd/systemd --user --log-target=console --log-level=warning"
        )
        command = (
            f"{join}; exec nsenter --target {self.pid} --net --mount --uts --pid --ipc -- sh -c '{start}'"
        )
        with (self.folder / f"systemd-{user}.log").open("ab") as log:
            self.managers.append(
                subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", command],
                                 stdout=log, stderr=log, start_new_session=True)
            )  # fmt: skip
        ask = (
            f"setpriv --reuid {uid} --clear-groups env XDG_RUNTIME_DIR=/run/user/{uid} systemctl --user show"
        )
        self._until(lambda: self.run(ask).returncode == 0)

    def _cgroups(self) -> list[Path]:
        """In the hierarchies that systemd uses: the unified one, and in a hybrid that of its name."""
        trees = [_CGROUPS / "unified", _CGROUPS / "systemd"]
        trees = [tree for tree in trees if tree.is_dir()] or [_CGROUPS]
        return [tree / self.cgroup for tree in trees]

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(path.read_text() for path in self.folder.glob("systemd-*.log"))
                raise AssertionError(f"{self.name} does not start\n{logs[-3000:]}")
            time.sleep(0.05)


def _gone(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Researcher(Laptop):
    """A person's laptop, and their homes on the machines."""

    homes: tuple[Path, ...]

    def output(self, run: str) -> str:
        """What the last start of a run has written, worker by worker. It is read where it is: who polls
        ``causeway logs`` keeps a core busy."""
        starts = {path for home in self.homes for path in home.resolve().glob(f"{RUNS}/{run}/starts/*")}
        last = max((path.name for path in starts), key=int, default="")
        logs = sorted(path for start in starts if start.name == last for path in start.glob("*/*.log"))
        lines = (line for path in logs for line in path.read_text(errors="replace").splitlines())
        return "\n".join(line.partition(" ")[2] for line in lines)


@dataclass
class Lab:
    """Two machines, and people with laptops."""

    folder: Path
    sockets: Path
    """A folder whose path is short."""
    hosts: dict[str, Host]

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def connect(self) -> None:
        """The cable between them."""
        first, second = self.hosts.values()
        # By the process ids of this machine, not of theirs.
        enter = ["nsenter", "--target", str(first.pid), "--net", "ip", "link", "add", "rack", "type", "veth"]
        _run(*enter, "peer", "name", "rack", "netns", str(second.pid))
        for host, address in zip(self.hosts.values(), ADDRESSES, strict=True):
            done = host.run(f"ip address add {address}/24 dev rack && ip link set rack up")
            assert done.returncode == 0, done.stderr

    def laptop(
        self, user: str, folder: Path, environment: Mapping[str, str], *, name: str = "laptop"
    ) -> Researcher:
        """One of another ``name`` remembers other runs."""
        home = self.folder / f"{name}-{user}"
        (home / ".ssh").mkdir(parents=True, exist_ok=True, mode=0o700)
        config = home / "ssh_config"
        config.write_text("".join(self._ssh_config(user, host) for host in self.hosts))
        # ssh takes the account's home, and not $HOME's: so the configuration is named, by a program that is
        # found first.
        programs = home / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
        (programs / "ssh").chmod(0o755)
        mine = {
            **environment, "HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(self.sockets / f"{name} {user}%h"),
        }  # fmt: skip
        Path(mine["XDG_RUNTIME_DIR"]).mkdir(exist_ok=True)
        return Researcher(folder, mine, tuple(host.home(user) for host in self.hosts.values()))

    def _ssh_config(self, user: str, name: str) -> str:
        enter = f"nsenter --target $(cat {self.folder}/{name}/pid) --all --"
        return (
            f"Host {name}\n  HostName {name}\n  User {user}\n  IdentityFile {self.folder}/{user}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known_hosts\n"
            f"  GlobalKnownHostsFile /dev/null\n"
            f"  ProxyCommand {enter} /usr/sbin/sshd -i -e -f {self.folder}/{name}/sshd_config 2>/dev/null\n"
        )


@contextmanager
def labs(folder: Path, *names: str, shared: bool = False) -> Iterator[Lab]:
    """Machines of these names; skips where they can't be had. ``shared``: with the same homes."""
    if reason := missing():
        pytest.skip(reason)
    folder.chmod(0o711)
    for user in USERS:
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / user))
    hosts = {}
    known = []
    for name in names:
        hosts[name] = host = Host(name, folder / name, Path(f"causeway-test-{os.getpid()}-{name}"))
        _prepare(folder, host)
        if shared and name != names[0]:
            shutil.rmtree(host.folder / "homes")
            (host.folder / "homes").symlink_to(folder / names[0] / "homes")
        kind, key = (host.folder / "host.pub").read_text().split()[:2]
        known.append(f"{name} {kind} {key}\n")
    (folder / "known_hosts").write_text("".join(known))
    sockets = Path(tempfile.mkdtemp(prefix="cw-", dir="/tmp"))
    lab = Lab(folder, sockets, hosts)
    try:
        for host in hosts.values():
            host.boot()
        if len(hosts) > 1:
            lab.connect()
        yield lab
    finally:
        for host in hosts.values():
            if host.process is not None:
                host.kill()
        shutil.rmtree(sockets)


def _prepare(folder: Path, host: Host) -> None:
    own = host.folder
    for path in ("etc", "homes", "linger/linger", "programs"):
        (own / path).mkdir(parents=True)
    own.chmod(0o755)
    accounts = "".join(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash\n" for user, uid in USERS.items())
    (own / "etc/passwd").write_text(Path("/etc/passwd").read_text() + accounts)
    groups = "".join(f"{user}:x:{uid}:\n" for user, uid in USERS.items())
    (own / "etc/group").write_text(Path("/etc/group").read_text() + groups)
    # As Debian and Ubuntu have it: a machine's own name is of no use to others.
    (own / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n")
    for user, uid in USERS.items():
        keys = own / "homes" / user / ".ssh"
        keys.mkdir(parents=True)
        shutil.copy(folder / f"{user}.pub", keys / "authorized_keys")
        for owned in (keys.parent, keys, keys / "authorized_keys"):
            os.chown(owned, uid, uid)
        host.linger(user, on=True)
    (own / "programs/nvidia-smi").write_text(_NVIDIA_SMI)
    (own / "programs/nvidia-smi").chmod(0o755)
    host.gpus(2)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own / "host"))
    (own / "sshd_config").write_text(
        f"HostKey {own}/host\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
        f"AuthorizedKeysFile .ssh/authorized_keys\n"
        "SetEnv PATH=/run/programs:/usr/bin:/bin OMP_NUM_THREADS=1\n"
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
