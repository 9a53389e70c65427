"""The disk that machines start from: this computer's own distribution, as small as it can be, made once.

debootstrap, from the mirror that apt has here, with systemd, sshd and Python, and the files below
``rootfs/``. Where CINC or Chef Infra Client is named, it is brought along: ``CHEF_CLIENT`` is the program (or
the one on PATH), ``CHEF_CLIENT_TREE`` the folder that it lives in, if that is another than ``/opt/cinc`` or
``/opt/chef``; it is put where it is here. ``CHEF_CLIENT_PACKAGES`` are packages it needs, such as a Ruby.
Chef Infra Client runs where whoever tests accepts its licence: ``CHEF_LICENSE=accept-silent``. Without one
there is a stand-in (``rootfs/usr/local/bin/chef-client``).

It is kept in ``$CAUSEWAY_TEST_CACHE``, or ~/.cache/causeway-tests, by the hash of all that it is made of.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qemu import Unavailable

from infra.drive.flock import held

_ROOTFS = Path(__file__).with_name("rootfs")
_PACKAGES = (
    "systemd-sysv", "dbus", "openssh-server", "sudo", "python3", "iproute2", "rsync", "ca-certificates",
    "kmod", "udev", "procps", "nftables", "libpam-systemd", "unattended-upgrades",
)  # fmt: skip
_SIZE = "6G"
"""As the machine sees it; here it takes what is written."""

_KEPT_SECONDS = 30 * 86400

_TOOLS = {
    "debootstrap": "debootstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mke2fs": "e2fsprogs",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "ssh-keygen": "openssh-client",
}
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Chef:
    """A real CINC or Chef Infra Client of this computer."""

    program: Path
    tree: Path | None
    packages: tuple[str, ...]

    @classmethod
    def here(cls) -> Chef | None:
        """The one that is named, or on PATH with a folder that can be brought along; None without."""
        named = os.environ.get("CHEF_CLIENT")
        program = named or shutil.which("cinc-client") or shutil.which("chef-client")
        own = "/opt/cinc" if program and Path(program).name.startswith("cinc") else "/opt/chef"
        tree = Path(os.environ.get("CHEF_CLIENT_TREE", own))
        if not program or not (named or tree.is_dir()):
            return None
        if not Path(program).name.startswith("cinc") and not os.environ.get("CHEF_LICENSE"):
            return None  # nobody accepted its licence
        packages = os.environ.get("CHEF_CLIENT_PACKAGES", "").split()
        return cls(Path(program).absolute(), tree if tree.is_dir() else None, tuple(packages))

    def command(self) -> str:
        """As a shell on a machine runs it, through sudo, which drops variables."""
        accepted = os.environ.get("CHEF_LICENSE")
        return f"env CHEF_LICENSE={accepted} {self.program}" if accepted else str(self.program)

    def identity(self) -> str:
        """Changes with what it is made of, as far as names, sizes and times show."""
        digest = hashlib.sha256(f"{self.program}{self.packages}".encode())
        for path in sorted(self.tree.rglob("*")) if self.tree else [self.program]:
            status = path.lstat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Mirror:
    """Where this computer's own packages come from."""

    uri: str
    suite: str
    components: tuple[str, ...]


def missing() -> str:
    """Why there can be no machine here, or nothing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "machines are made for Linux on x86_64"
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=_PATH) is None:
            return f"{tool} is missing (package {package})"
    if os.geteuid() != 0:
        return "needs root: debootstrap makes the machines' disk with chroot"
    try:
        mirror()
    except Unavailable as fault:
        return str(fault)
    return ""


def mirror() -> Mirror:
    """What apt is told of this release, by apt itself."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    fields = "$(RELEASE)|$(REPO_URI)|$(COMPONENT)|$(ORIGIN)"
    try:
        done = subprocess.run(
            ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as fault:
        raise Unavailable(f"apt-get names no sources: {fault}") from None
    rows = [line.split("|") for line in done.stdout.splitlines()]
    own = [(uri, component) for suite, uri, component, _ in rows if suite == release]
    if not own:
        raise Unavailable(f"apt has no source of {release or 'this release'}")
    uri = own[0][0]
    return Mirror(uri, release, tuple(dict.fromkeys(component for at, component in own if at == uri)))


def cache() -> Path:
    """The folder that keeps disks between test runs."""
    named = os.environ.get("CAUSEWAY_TEST_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "causeway-tests"


def disk(chef: Chef | None) -> Path:
    """A raw disk with one file system, made if it is not here yet. Machines lay their own over it.

    Raises:
        Unavailable: It can't be made here.
    """
    if reason := missing():
        raise Unavailable(reason)
    source = mirror()
    folder = cache() / _identity(source, chef)
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / "disk.raw"
    with held(folder / "lock", timeout=1800):
        if not image.exists():
            tree, fresh = folder / "tree", folder / "disk.new"
            shutil.rmtree(tree, ignore_errors=True)
            try:
                _fill(tree, source, chef)
                fresh.unlink(missing_ok=True)
                # Nobody needs a journal for a disk whose machine is thrown away.
                _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", tree, fresh, _SIZE)
                fresh.rename(image)
            finally:
                shutil.rmtree(tree, ignore_errors=True)
            _forget()
    os.utime(image)
    return image


def _forget() -> None:
    """Disks that nobody used for long; who still runs one keeps its blocks."""
    for path in cache().glob("*/disk.raw"):
        if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(path.parent, ignore_errors=True)


def _identity(source: Mirror, chef: Chef | None) -> str:
    how = "".join(inspect.getsource(each) for each in (_fill, _install, _bring))
    digest = hashlib.sha256(f"{source}{_PACKAGES}{_SIZE}{how}".encode())
    for path in _own_files(chef):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(chef.identity().encode() if chef else b"")
    return digest.hexdigest()[:16]


def _fill(tree: Path, source: Mirror, chef: Chef | None) -> None:
    archives = cache() / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    _run(
        "debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", f"--cache-dir={archives}",
        f"--components={','.join(source.components)}", source.suite, tree, source.uri,
    )  # fmt: skip
    if chef and chef.packages:
        _install(tree, chef.packages)
    for path in _own_files(chef):
        target = tree / path.relative_to(_ROOTFS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if path.read_bytes().startswith(b"#!") else 0o644)
    if chef:
        _bring(tree, chef)
    for command in (
        # Who may log in to an image of Ubuntu's in a cloud, and to a machine that autoinstall made.
        ["useradd", "--create-home", "--shell", "/bin/bash", "--groups", "sudo", "ubuntu"],
        ["useradd", "--create-home", "--shell", "/bin/bash", "--groups", "sudo", "causeway"],
        # APT's timers stay: a fresh machine upgrades itself while something is installed on it.
        ["systemctl", "mask", "e2scrub_reap.service"],
        ["systemctl", "enable", "power-button.service"],
        # No screen, no keyboard.
        ["systemctl", "mask", "getty@tty1.service", "getty-static.service", "serial-getty@ttyS0.service"],
        ["apt-get", "clean"],
    ):
        _run("chroot", tree, *command)
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree / "etc/machine-id").write_text("")


def _install(tree: Path, packages: tuple[str, ...]) -> None:
    """By apt, which knows alternatives; debootstrap does not."""
    policy, resolver = tree / "usr/sbin/policy-rc.d", tree / "etc/resolv.conf"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    shutil.copyfile("/etc/resolv.conf", resolver)
    _run("chroot", tree, "apt-get", "-qq", "update")
    _run("chroot", tree, "apt-get", "-qq", "-y", "--no-install-recommends", "install", *packages)
    policy.unlink()


def _bring(tree: Path, chef: Chef) -> None:
    if chef.tree:
        shutil.copytree(chef.tree, tree / chef.tree.relative_to("/"), symlinks=True)
    target = tree / chef.program.relative_to("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(chef.program, target)
    known = tree / "usr/local/bin/chef-client"
    if not known.exists():
        known.symlink_to(chef.program)


def program(chef: Chef | None) -> str:
    """What the client's package holds that machines are sent: the real one of their disk, or the stand-in."""
    if chef is None:
        return (_ROOTFS / "usr/local/bin/chef-client").read_text()
    return f'#!/bin/sh\nexec {chef.command()} "$@"\n'


def _own_files(chef: Chef | None) -> Iterator[Path]:
    for path in sorted(_ROOTFS.rglob("*")):
        if path.is_file() and not (chef and path.name == "chef-client"):
            yield path


def _run(*command: str | Path) -> None:
    environment = {
        **os.environ,
        "PATH": _PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "DPKG_FORCE": "unsafe-io",
    }  # fmt: skip
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        words = "\n".join(done.stdout.splitlines()[-10:])
        raise Unavailable(f"{' '.join(map(str, command[:2]))} does not work here:\n{words}")
