"""What a master has for ``invoke kubeconfig``: kubectl, an administrator's kubeconfig, and a controller that
signs. OpenSSH's server and kube-controller-manager are real."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
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
    for entry in (kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]):
        for name in ("certificate-authority", "client-certificate", "client-key"):
            if name in entry:
                entry[name] = str(admin.folder / entry[name])
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
def controllers(kubeconfig: Path, folder: Path, names: Sequence[str], *more: str) -> Iterator[None]:
    """kube-controller-manager as kubeadm starts it, with these controllers alone."""
    command = [need("kube-controller-manager"), "--leader-elect=false", "--secure-port=0",
               f"--kubeconfig={kubeconfig}", f"--controllers={','.join(names)}", *more]  # fmt: skip
    with (folder / "controllers.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def signer(admin: Access, folder: Path) -> Iterator[None]:
    """With the controllers of certificate requests alone."""
    (folder / "admin.conf").write_text(admin_conf(admin))
    files = (
        f"--cluster-signing-{kind}-file={folder}/pki/ca.{end}"
        for kind, end in (("cert", "crt"), ("key", "key"))
    )
    with controllers(folder / "admin.conf", folder, CONTROLLERS, *files):
        yield
