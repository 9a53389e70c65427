"""What the lab's VM starts most, as the part of its first file system that stays in memory.

Each file that a program opens, its libraries above all, is some requests to the host over 9p, and `swanctl`
opens two hundred: from memory, programs start in a fifth of the time.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PROGRAMS = """
sh busybox env nsenter unshare setpriv setsid timeout true sleep flock
cat cp mv rm ln ls mkdir touch chmod chown install stat tail head cut tr wc sort uniq seq date id test
mktemp readlink basename dirname cmp grep sed mawk find tar kill pgrep mount umount modprobe sysctl
ip bridge tc nft ss ping socat tcpdump dnsmasq openvpn iperf3 conntrack
swanctl charon-systemd vtysh zebra staticd bgpd
sshd bash sha256sum base64 tee expr
"""
_PATH = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/frr"
_TREES = ("/usr/lib/ipsec", "/etc/strongswan.d", "/etc/iproute2")
"""What programs load by themselves, and what they read."""
_FILES = (
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/strongswan.conf",
    "/etc/ssl/openssl.cnf",
)


@cache
def entries(root: str) -> tuple[tuple[str, int, bytes], ...]:
    """Path, mode and content of each file, link and folder, below ``root``."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for path in _files():
        for folder in reversed(path.parents[:-1]):
            found[str(folder)] = f"{root}{folder}", 0o040755, b""
        mode = path.lstat().st_mode
        content = str(path.readlink()).encode() if stat.S_ISLNK(mode) else path.read_bytes()
        found[str(path)] = f"{root}{path}", mode, content
    return ((root, 0o040755, b""), *found.values())


def _files() -> list[Path]:
    """The programs that are here with their libraries, and what they read, by paths of `/usr` and `/etc`."""
    programs = [path for name in _PROGRAMS.split() if (path := shutil.which(name, path=_PATH))]
    inside = [str(each) for tree in _TREES for each in Path(tree).rglob("*") if not each.is_dir()]
    loaded = [*programs, *(path for path in inside if path.endswith(".so"))]
    # Ends with an error where one of them is a script.
    told = subprocess.run(["ldd", *loaded], capture_output=True, text=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", told)
    found = {each for name in (*loaded, *libraries, *inside, *_FILES) for each in _followed(Path(name))}
    return sorted(each for each in found if each.parts[1] in ("usr", "etc") and os.access(each, os.R_OK))


def _followed(path: Path) -> Iterator[Path]:
    """A file by a path without links among its folders; where it is a link, what it leads to as well."""
    path = path.parent.resolve() / path.name
    if path.is_symlink():
        yield path
        yield from _followed(path.parent / path.readlink())
    elif path.is_file():
        yield path
