#!/usr/bin/env python3
"""A machine that stands in for an instance: ``CAUSEWAY_MACHINES`` of these tests.

This computer's own file system, read-only below an overlay that goes with it, in namespaces of its own, with
a real sshd on port 22 of an address of 127.91.0.0/16. What a bake does there is real: packer, SSH, scp,
shells, the checks. What would take an hour or another distribution is a few lines of shell: ``apt-get``,
``systemctl``, ``cloud-init``, the client that runs cookbooks and what that would install.

``$STANDIN`` is its folder: ``faults`` there lists, a line each, what shall go wrong. Needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("STANDIN", "/nonexistent"))

SHIMS = {
    "sudo": 'while [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"',
    # Real for a package that was brought along.
    "apt-get": (
        'case "$*" in */causeway-client*) exec /usr/bin/apt-get "$@" ;; esac\n'
        'echo "apt-get $*" >>/var/log/apt-get'
    ),
    "systemctl": 'case "$*" in *is-active*) exit 3 ;; esac\nexit 0',
    "systemd-analyze": "exit 0",
    "fstrim": "exit 0",
    "journalctl": "exit 0",
    "cloud-init": (
        'if [ "$1" = status ]; then\n'
        '  mkdir -p /var/lib/cloud/instances/i-0\n  exit "$(cat /cloud-init-exit)"\nfi\n'
        'if [ "$1" = clean ]; then rm -rf /var/lib/cloud/*; fi'
    ),
}

INSIDE = """\
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 standin "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o lowerdir=/,upperdir="$1/upper",workdir="$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/var/log"
mount -t tmpfs tmpfs "$root/root"
mount -t tmpfs tmpfs "$root/home"
mkdir -p "$root/run/sshd"
chmod 1777 "$root/tmp"
cp -r "$2"/. "$root"
rm -rf "$root/var/lib/causeway" "$root/var/lib/cloud"
hostname standin
touch "$root/started"
while true; do
  if [ -e "$root/stopped" ]; then sleep 0.1; continue; fi
  chroot "$root" /usr/sbin/sshd -D -e -f /etc/ssh/standin_config 2>>"$3" || sleep 0.1
done
"""


def main() -> int:
    verb, asked = sys.argv[1], json.load(sys.stdin)
    folder = FOLDER / asked["instance"]
    faults = (FOLDER / "faults").read_text().split() if (FOLDER / "faults").exists() else []
    with (FOLDER / "calls").open("a") as calls:
        calls.write(json.dumps({"verb": verb, **asked}) + "\n")
    if verb == "start":
        return start(folder, asked, faults)
    pid = int((folder / "pid").read_text()) if (folder / "pid").exists() else 0
    root = Path(f"/proc/{pid}/root{folder}/disk/root")
    if verb == "stop" and pid:
        (root / "stopped").touch()
        end_sshd(pid)
    elif verb == "image":
        upper = root.parent / "upper"
        shutil.copytree(upper, FOLDER / asked["image"], symlinks=True, ignore=only_files)
        for home in ("home", "root"):
            shutil.copytree(root / home, FOLDER / asked["image"] / home, symlinks=True, dirs_exist_ok=True)
        if "image-fails" in faults:
            print("the disk is broken", file=sys.stderr)
            return 1
    elif verb == "terminate" and pid:
        os.kill(pid, signal.SIGKILL)
        (folder / "pid").unlink()
    return 0


def only_files(folder: str, names: list[str]) -> list[str]:
    """What a copy leaves out: an overlay's marks of deleted files are devices."""
    return [name for name in names if (Path(folder) / name).is_char_device()]


def start(folder: Path, asked: dict[str, str], faults: list[str]) -> int:
    if "no-machine" in faults:
        print("there is no machine of this kind left", file=sys.stderr)
        return 1
    number = len([path for path in FOLDER.iterdir() if path.name.startswith("i-")]) + 1
    address = f"127.91.{os.getpid() % 250}.{number}"
    if "no-ssh" in faults:
        print(json.dumps({"address": address}))
        return 0
    tree, disk = folder / "tree", folder / "disk"
    disk.mkdir(parents=True)
    write_tree(tree, address, asked["public_key"], faults)
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--uts",
        "--ipc",
        "sh",
        "-c",
        INSIDE,
        "sh",
    ]
    with (folder / "log").open("w") as log:
        machine = subprocess.Popen(
            [*command, str(disk), str(tree), str(folder / "sshd.log")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    (folder / "pid").write_text(str(machine.pid))
    guard(machine.pid, os.getppid())
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex((address, 22)) == 0:
                print(json.dumps({"address": address}))
                return 0
        time.sleep(0.05)
    print((folder / "log").read_text(), file=sys.stderr)
    return 1


def write_tree(tree: Path, address: str, public_key: str, faults: list[str]) -> None:
    for name, text in SHIMS.items():
        put(tree / "usr/local/bin" / name, f"#!/bin/sh\n{text}\n", 0o755)
    put(tree / "home/ubuntu/.ssh/authorized_keys", f"{public_key}\n", 0o600)
    put(tree / "home/ubuntu/.bash_history", "ls\n")
    put(
        tree / "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nubuntu:x:0:0::/home/ubuntu:/bin/sh\nsshd:x:101:65534::/run/sshd:/bin/false\n",
    )
    put(tree / "etc/shadow", "root:*:1::::::\nubuntu:*:1::::::\nsshd:*:1::::::\n", 0o600)
    # dpkg's own: of groups that are not on this machine.
    put(tree / "var/lib/dpkg/statoverride", "")
    put(tree / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    put(tree / "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n')
    put(tree / "cloud-init-exit", "1" if "cloud-init-fails" in faults else "0")
    put(
        tree / "kubernetes",
        "1.20" if "check-fails" in faults else os.environ.get("STANDIN_KUBERNETES", "1.36"),
    )
    for fault, flag in (("chef-fails", "chef-fails"), ("slow-chef", "slow")):
        if fault in faults:
            put(tree / flag, "")
    for kind in ("ed25519", "rsa"):
        key = tree / f"etc/ssh/ssh_host_{kind}_key"
        key.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key], check=True)
    put(
        tree / "etc/ssh/standin_config",
        f"ListenAddress {address}:22\nHostKey /etc/ssh/ssh_host_ed25519_key\nPidFile none\nUsePAM no\n"
        "AuthorizedKeysFile .ssh/authorized_keys\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\n"
        "SetEnv PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin\n",
    )


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def guard(machine: int, server: int) -> None:
    """The machine goes when the server does."""
    if os.fork():
        return
    os.setsid()
    for descriptor in range(3):
        os.close(descriptor)
    while alive(machine) and alive(server):
        time.sleep(0.3)
    if alive(machine):
        os.kill(machine, signal.SIGKILL)
    os._exit(0)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_sshd(machine: int) -> None:
    """All in its namespace but the first."""
    space = Path(f"/proc/{machine}/ns/pid_for_children").stat().st_ino
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/pid").stat().st_ino == space and (process / "comm").read_text().startswith(
                "sshd"
            ):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    raise SystemExit(main())
