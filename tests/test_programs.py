"""Each program that tests start is here and runs: `tests/fresh.sh` asks this of a machine that has only what
`tests/packages.sh` lists. A program that is not found skips its test; there, it fails it.

What a program says does not matter, but that its libraries, its interpreter and what that imports are here: a
shell could not start it otherwise (exit codes 126 and 127), or an interpreter ends with a traceback.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin", "/usr/lib/frr"])

PROGRAMS = (
    # Gateways and VPN servers.
    "swanctl --version",
    "zebra --version",
    "bgpd --version",
    "staticd --version",
    "bfdd --version",
    "vtysh --version",
    "frr-reload.py --help",
    "openvpn --version",
    "dnsmasq --version",
    "nft --version",
    "ip -V",
    "tc -V",
    "sysctl --version",
    "systemd-analyze --version",
    # What the lab does with them.
    "ping -V",
    "iperf3 --version",
    "socat -V",
    "tcpdump --version",
    "dig -v",
    "rsync --version",
    "openssl version",
    "unshare --version",
    "nsenter --version",
    "setpriv --version",
    "mount --version",
    "flock --version",
    "/usr/share/easy-rsa/easyrsa version",
    # Machines: by SSH, in namespaces, in QEMU.
    "ssh -V",
    "ssh-keygen -?",
    "sshd -?",
    "qemu-system-x86_64 --version",
    "qemu-img --version",
    "busybox true",
    "modprobe --version",
    "debootstrap --version",
    "buildah --version",
    "mke2fs -V",
    "packer version",
    # Cookbooks.
    "ruby --version",
    "rubocop --version",
    "shellcheck --version",
    "visudo --version",
    "chronyd --version",
    "perl -c -e 1",
    "containerd --version",
    "exportfs -h",
    "nfsconf --version",
    "mkfs.xfs -V",
    "rclone version",
    # The API server's store; alerts; pages.
    "etcd --version",
    "etcdctl version",
    "promtool --version",
    "chromium --version",
    "chromedriver --version",
)

FAILED = {126, 127}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("words", PROGRAMS)
def test_a_program_runs(words: str) -> None:
    name, *rest = words.split()
    path = shutil.which(name, path=PATH)
    if path is None:
        absent(f"{name} not found")
    done = run(str(path), *rest)
    said = done.stdout + done.stderr
    assert done.returncode not in FAILED, said
    assert "Traceback" not in said, said


def test_ruby_has_what_chef_renders_with() -> None:
    ruby = shutil.which("ruby")
    if ruby is None or run(ruby, "-e", "require 'erubis'").returncode:
        absent("Ruby's erubis not found")


def test_charon_has_the_algorithms_of_tunnels() -> None:
    from network import algorithms

    if shutil.which("charon-systemd", path=PATH) is None:
        absent("charon-systemd not found")
    assert algorithms.problem(algorithms.offered()) == ""


def absent(what: str) -> None:
    if "CAUSEWAY_FRESH" in os.environ:
        pytest.fail(f"{what}: which package has it?", pytrace=False)
    pytest.skip(what)
