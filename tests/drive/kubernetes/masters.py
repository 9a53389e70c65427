"""What a master has for ``invoke kubeconfig``: kubectl and an administrator's kubeconfig. OpenSSH's server is
real."""

from __future__ import annotations

from pathlib import Path

from drive.machines.hosts import Host
from kube.plane import Plane
from kube_tools import kubectl


def own_etc(host: Host) -> None:
    """What a command does to /etc stays on the machine that it was meant for."""
    host.shell(
        "mkdir /run/etc && mkdir /run/etc/upper /run/etc/work && mount -t overlay none "
        "-o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc && mkdir -p /etc/kubernetes/pki"
    )


def equip(host: Host, programs: Path, plane: Plane) -> None:
    """``programs``: the folder on the machine's PATH."""
    link = programs / "kubectl"
    if not link.exists():
        link.symlink_to(kubectl())
    authority = plane.keys.ca.certificate
    for path, text in (("admin.conf", plane.kubeconfig.read_text()), ("pki/ca.crt", authority)):
        host.shell(f"cat >/etc/kubernetes/{path} <<'END'\n{text}\nEND\n")
