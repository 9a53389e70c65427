"""What a master has for ``invoke kubeconfig``: kubectl, an administrator's kubeconfig, and a controller that
signs. OpenSSH's server and kube-controller-manager are real."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drive.machines.hosts import Host
from kube_tools import kubectl, need

from infra.drive.kubernetes.access import Access

CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
)


def admin_conf(admin: Access) -> str:
    """The administrator's kubeconfig, for use from any folder."""
    kubeconfig = json.loads(admin.kubeconfig.read_text())
    for each in (kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]):
        for name in ("certificate-authority", "client-certificate", "client-key"):
            if name in each:
                each[name] = str(admin.folder / each[name])
    return json.dumps(kubeconfig)


def own_etc(host: Host) -> None:
    """What a command does to /etc stays on the machine that it was meant for."""
    host.shell(
        "mkdir /run/etc && mkdir /run/etc/upper /run/etc/work && mount -t overlay none "
        "-o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc && mkdir -p /etc/kubernetes/pki"
    )


def equip(host: Host, programs: Path, admin: Access, authority: str) -> None:
    """``programs``: the folder on the machine's PATH."""
    link = programs / "kubectl"
    if not link.exists():
        link.symlink_to(kubectl())
    for path, text in (("admin.conf", admin_conf(admin)), ("pki/ca.crt", authority)):
        host.shell(f"cat >/etc/kubernetes/{path} <<'END'\n{text}\nEND\n")


@contextmanager
def signer(admin: Access, folder: Path) -> Iterator[None]:
    """kube-controller-manager as kubeadm starts it, with the controllers of certificate requests alone."""
    keys = folder / "pki"
    command = [need("kube-controller-manager"), "--leader-elect=false", "--secure-port=0",
               f"--kubeconfig={folder}/admin.conf",
               f"--controllers={','.join(CONTROLLERS)}",
               f"--cluster-signing-cert-file={keys}/ca.crt",
               f"--cluster-signing-key-file={keys}/ca.key"]  # fmt: skip
    (folder / "admin.conf").write_text(admin_conf(admin))
    with (folder / "signer.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
