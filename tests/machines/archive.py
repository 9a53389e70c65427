"""Stand-ins for the archives that a test can't reach, signed and served over HTTP as those are.

The recipes of Kubernetes, NVIDIA's driver and tools, Miniforge, the EFS helper and Mountpoint are the real
ones and do all that they do on a machine: fetch a key, name a source, pin, install, configure, enable, join.
What they install is not: the real packages come from pkgs.k8s.io, NVIDIA, GitHub and Amazon, are gigabytes,
and some want GPUs or an API. So each is a package of the same name and version with little in it: what of
theirs the recipes run, or nothing (``standins/``). containerd is Debian's own, brought by a package of
Docker's name for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from machines import deb
from machines.deb import Package
from web import serving

from infra.catalogue import software

HOST = "10.0.2.2"
"""This computer's 127.0.0.1, as a machine sees it: QEMU's user network."""

KUBERNETES = "1.36.2"
DRIVER = "580.95.05"

_STANDINS = Path(__file__).with_name("standins")


@dataclass(frozen=True)
class Archive:
    """One that is served: where, and the checksums of what is in it."""

    url: str
    folder: Path

    def attributes(self) -> Mapping[str, Any]:
        """A node's attributes that name it in place of the real ones."""
        key = {"key_url": f"{self.url}/key.asc"}
        checked = {**key, "key_checksum": self._sum("key.asc")}
        flat = {"suites": "/", "components": []}
        return {
            "container_runtime": {"repository": {"uri": f"{self.url}/docker", **flat, **checked}},
            "kubernetes": {"repository": {"uri": f"{self.url}/kubernetes/v%<minor>s", **key}},
            "gpu": {
                "source": "nvidia",
                "repository": {"uri": f"{self.url}/cuda", **checked},
                "container_toolkit": {"uri": f"{self.url}/nvidia", **checked},
            },
            "storage": {
                "efs_utils": {"uri": f"{self.url}/efs", **flat, "key_url": f"{self.url}/key.gpg"},
                "mount_s3": {
                    "url": f"{self.url}/mount-s3_%{{version}}_%{{arch}}.deb",
                    "sha256": {"amd64": self._sum(f"mount-s3_{_version('mountpoint-s3')}_amd64.deb")},
                },
            },
            "software": {
                "miniforge": {
                    "url": f"{self.url}/miniforge.sh",
                    "sha256": {"amd64": self._sum("miniforge.sh")},
                },
            },
        }

    def _sum(self, name: str) -> str:
        return hashlib.sha256((self.folder / name).read_bytes()).hexdigest()


@contextmanager
def served(folder: Path, kernel: str) -> Iterator[Archive]:
    """An archive in ``folder``, with headers for the kernel of that release, for as long as it is needed."""
    folder.mkdir()
    with deb.key() as signer:
        (folder / "key.asc").write_bytes(signer.public(armoured=True))
        (folder / "key.gpg").write_bytes(signer.public(armoured=False))
        minor = KUBERNETES.rpartition(".")[0]
        deb.publish(folder / "kubernetes" / f"v{minor}", _kubernetes(), signer)
        deb.publish(folder / "cuda", _cuda(kernel), signer, label="NVIDIA CUDA")
        deb.publish(folder / "nvidia" / "amd64", _container_toolkit(), signer)
        containerd = Package("containerd.io", f"{_version('containerd')}-1", depends="containerd")
        deb.publish(folder / "docker", [containerd], signer)
        helper = Package("amazon-efs-utils", f"{_version('amazon-efs-utils')}-1")
        deb.publish(folder / "efs", [helper], signer)
    Package("mount-s3", _version("mountpoint-s3")).build(folder)
    (folder / "miniforge.sh").write_bytes(_standin("miniforge.sh"))
    with serving(partial(_Files, directory=str(folder))) as port:
        yield Archive(f"http://{HOST}:{port}", folder)


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _kubernetes() -> list[Package]:
    version = f"{KUBERNETES}-1.1"
    unit = "/usr/lib/systemd/system/kubelet.service"
    return [
        Package(
            "kubelet",
            version,
            {
                "/usr/bin/kubelet": _standin("kubelet"),
                unit: _standin("kubelet.service"),
                f"{unit}.d/10-kubeadm.conf": _standin("10-kubeadm.conf"),
            },
        ),
        Package("kubeadm", version, {"/usr/bin/kubeadm": _standin("kubeadm")}),
        Package("kubectl", version, {"/usr/bin/kubectl": _standin("kubectl")}),
    ]


def _cuda(kernel: str) -> list[Package]:
    """The driver, and what DKMS needs to build it: Debian's own would take an hour in software emulation."""
    built = deb.module(license="stand-in", version=DRIVER, name="nvidia")
    exporter = _version("dcgm-exporter")
    return [
        Package(
            "nvidia-kernel-dkms",
            f"{DRIVER}-1",
            {f"/usr/src/nvidia-{DRIVER}/nvidia.ko": built},
            depends="dkms",
            postinst=_standin("nvidia-kernel-dkms.postinst"),
        ),
        Package("nvidia-driver-cuda", f"{DRIVER}-1"),
        Package("nvidia-persistenced", f"{DRIVER}-1"),
        Package("dkms", "99", {"/usr/sbin/dkms": _standin("dkms")}),
        Package(
            f"linux-headers-{kernel}",
            "99",
            {f"/usr/lib/modules/{kernel}/build/Makefile": b""},
        ),
        Package("datacenter-gpu-manager-4-cuda13", "1:4.5.2-1"),
        Package(
            "datacenter-gpu-manager-exporter",
            f"{exporter}-1",
            {"/usr/lib/systemd/system/nvidia-dcgm-exporter.service": _unit("/usr/bin/dcgm-exporter")},
        ),
    ]


def _container_toolkit() -> list[Package]:
    version = f"{_version('nvidia-container-toolkit')}-1"
    names = ("nvidia-container-toolkit", "libnvidia-container-tools", "libnvidia-container1")
    tools = {"/usr/bin/nvidia-ctk": _standin("nvidia-ctk")}
    return [
        *(Package(name, version) for name in names),
        Package("nvidia-container-toolkit-base", version, tools),
    ]


def _unit(program: str) -> bytes:
    return f"[Service]\nExecStart={program}\n\n[Install]\nWantedBy=multi-user.target\n".encode()


def _standin(name: str) -> bytes:
    return (_STANDINS / name).read_bytes().replace(b"@VERSION@", KUBERNETES.encode())


def _version(name: str) -> str:
    pin = software.find(name)
    assert pin
    assert pin.version
    return pin.version
