"""Whether each program that tests start is here and runs: `tests/fresh.sh` asks this of a machine that has
only what `tests/packages.sh` lists.

What a program prints does not matter, but that its libraries, its interpreter and what that imports are here:
a shell could not start it otherwise (exit codes 126 and 127), or an interpreter ends with a traceback.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from network import algorithms

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
    "dot -V",
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


def problems() -> Iterator[str]:
    """What is missing, or does not run, a line each."""
    for words in PROGRAMS:
        name, *rest = words.split()
        path = shutil.which(name, path=PATH)
        if path is None:
            yield f"{name} not found"
            continue
        done = run(path, *rest)
        said = done.stdout + done.stderr
        if done.returncode in FAILED or "Traceback" in said:
            yield f"{words}: exit code {done.returncode}: {said[-300:]}"
    ruby = shutil.which("ruby")
    if ruby is None or run(ruby, "-e", "require 'erubis'").returncode:
        yield "Ruby's erubis, which Chef renders with, not found"
    if shutil.which("charon-systemd", path=PATH) is None:
        yield "charon-systemd not found"
    elif problem := algorithms.problem(algorithms.offered()):
        yield problem


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) or "every program runs")
    sys.exit(1 if found else 0)
