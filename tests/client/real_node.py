"""A node with a real kubelet, containerd and runc, in the lab's VM.

What is real: the kernel's namespaces and cgroups, the kubelet with the configuration that we render for a
machine of this size, containerd 2, runc, CNI's bridge. What is not a cluster's own:

- Images hold no files but a skeleton: each container has this machine's /usr, and the Python that runs the
  tests, bound into it read-only (``base_runtime_spec``). So there is no registry, and no pull. That Python is
  on a disk of the VM's: over 9p, each import would ask the host several times.
- Names of pods are answered by dnsmasq, which is told what the cluster's EndpointSlices say; a cluster has
  CoreDNS.
- cgroups are the kubelet's own (``cgroupfs``), as no systemd runs there.
- The node is called ``localhost``: the API server, on the host, reaches its kubelet by that name, at a port
  that QEMU passes on. The VM reaches the host as 10.0.2.2, and nothing else.
"""

from __future__ import annotations

import compileall
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml
from kube.api import MERGE, Api, RefusedError
from kube.plane import NAME, Plane
from kube_tools import find
from network.machine import Result, Vm
from oci_layout import add, add_skeleton, layout
from packaging.requirements import Requirement

from infra.drive.kubernetes import certificates, kubeconfig
from infra.drive.kubernetes.access import Endpoint
from infra.drive.kubernetes.certificates import Pair
from infra.render.kubernetes import kubelet
from infra.resolve.reservations import EVICTION, reserved

NODE = "localhost"
HOST = "10.0.2.2"
"""This machine, as the VM sees it (QEMU's user network)."""
_ROOT = Path(__file__).parents[2]
_MEMORY_MIB = 4096
_PODS = 20
_HANGS = 600
"""Seconds after which the kubelet, which takes some twenty, will not be ready any more."""
_SUBNET, _GATEWAY = "10.99.0.0/24", "10.99.0.1"
_PAUSE = "registry.k8s.io/pause:3.10.1"
_FOLDER = "/run/node"
_PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
_PACKAGES = {
    "runc": "runc", "dnsmasq": "dnsmasq-base", "nft": "nftables", "mke2fs": "e2fsprogs",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}  # fmt: skip
_IMPORTED = ("botocore", "s3transfer", "pathspec")
"""What our own containers import that the standard library does not have."""
_LEFT_OUT = ("test", "site-packages", "idlelib", "ensurepip", "tkinter", "lib2to3", "turtledemo", "config-*")
_MODULES = (
    "virtio_blk", "ext4", "virtio_net", "overlay", "br_netfilter", "veth", "bridge", "nf_conntrack",
    "nft_masq", "nft_ct",
)  # fmt: skip

_SETUP = """
set -eu
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for each in cpu memory pids io cpuset; do echo "+$each" > /sys/fs/cgroup/cgroup.subtree_control; done
for each in $MODULES; do /sbin/modprobe "$each"; done
for each in var etc opt home; do
  mkdir -p "/run/upper/$each" "/run/work/$each"
  mount -t overlay overlay -o "lowerdir=/$each,upperdir=/run/upper/$each,workdir=/run/work/$each" "/$each"
done
for each in $FOLDERS; do mkdir -p "$each"; done
mkdir -p "$PROGRAMS" /run/disk
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 programs "$PROGRAMS"
mount -t ext4 -o ro,noatime /dev/vda /run/disk
number=0
for each in $ON_DISK; do
  mkdir -p "$each"
  mount --bind "/run/disk/$number" "$each"
  number=$((number + 1))
done
mount -t tmpfs tmpfs /var/lib/kubelet
mount --make-rshared /
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
echo 1 > /proc/sys/net/ipv4/ip_forward
nft -f - <<END
table ip node {
  chain out { type nat hook postrouting priority 100; ip saddr $SUBNET ip daddr != $SUBNET masquerade; }
  chain world { type filter hook postrouting priority 0; oifname eth0 ip daddr != 10.0.2.2 drop; }
}
END
"""


def missing() -> str:
    """Why there can be none here; empty where it can be."""
    if lacking := [name for name in _PROGRAMS if find(name) is None]:
        return f"{', '.join(lacking)} not found: KUBEBUILDER_ASSETS names their folder"
    path = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    if packages := [package for tool, package in _PACKAGES.items() if not shutil.which(tool, path=path)]:
        return f"a node needs these packages: {', '.join(packages)}"
    return Vm.missing()


class RealNode:
    """The VM, and what runs in it."""

    def __init__(self, machine: Vm, port: int) -> None:
        self._machine = machine
        self.port = port
        """Of its kubelet, there and on this machine."""
        self._stopping = threading.Event()

    @classmethod
    @contextmanager
    def booted(cls, port: int) -> Iterator[RealNode]:
        """One that nothing runs in yet. ``port``: reserved for its kubelet. Skips where there is no VM."""
        programs, on_disk = _programs(), _on_disk()
        share = f"local,path={programs},mount_tag=programs,security_model=none,readonly=on,multidevs=remap"
        devices = [
            "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:{port}",
            "-device", "virtio-net-pci,netdev=net,romfile=", "-virtfs", share,
        ]  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="causeway-node-") as scratch:
            disk = _disk(Path(scratch), on_disk)
            devices += ["-drive", f"file={disk},format=raw,if=virtio,readonly=on"]
            # QEMU has it open by then, and keeps it.
            machine = Vm(memory_mib=_MEMORY_MIB, devices=devices)
        try:
            node = cls(machine, port)
            folders = [
                "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/opt/cni/bin",
                "/etc/cni/net.d", f"{_FOLDER}/names", f"{_FOLDER}/containerd", f"{_FOLDER}/manifests",
            ]  # fmt: skip
            words = {
                "MODULES": _MODULES, "FOLDERS": folders, "PROGRAMS": [programs], "ON_DISK": on_disk,
                "SUBNET": [_SUBNET],
            }  # fmt: skip
            values = [f"{name}={shlex.quote(' '.join(map(str, each)))}" for name, each in words.items()]
            node.sh("\n".join([*values, _SETUP]))
            yield node
            node._stopping.set()
        finally:
            machine.close()

    def sh(self, script: str, *, stdin: bytes = b"", timeout: float = 150) -> str:
        """Runs a script there, outside of all pods."""
        done: Result = self._machine.run(["sh", "-c", script], stdin=stdin, timeout=timeout)
        assert done.ok, done
        return done.stdout

    def log(self, name: str) -> str:
        return str(self._machine.ask("log", log=name)["text"])

    def start(self, plane: Plane, images: Mapping[str, Mapping[str, str]], labels: Mapping[str, str]) -> None:
        """The kubelet, joined to this machine's control plane; until it is ready. ``images``: name →
        environment. ``labels``: what the node has besides."""
        self._write(plane.keys.ca, plane.port, images)
        admin = plane.admin
        programs = _programs()
        # Memory is cheaper than collecting garbage.
        env = ["env", "GOGC=400", f"PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin"]
        self._begin("containerd", [*env, f"{programs}/containerd", "-c", f"{_FOLDER}/containerd.toml"])
        ctr = f"{programs}/ctr -a {_FOLDER}/containerd.sock -n k8s.io"
        self.sh(
            f"until [ -S {_FOLDER}/containerd.sock ]; do sleep 0.2; done; {ctr} version >/dev/null\n"
            f"{ctr} images import --local {_FOLDER}/images.tar"
        )
        self._begin(
            "kubelet",
            [
                *env, f"{programs}/kubelet", f"--config={_FOLDER}/kubelet.yaml",
                f"--kubeconfig={_FOLDER}/kubeconfig", f"--hostname-override={NODE}", "--node-ip=10.0.2.15",
                "--housekeeping-interval=1m", "--max-housekeeping-interval=1m",
            ],
        )  # fmt: skip
        threading.Thread(target=self._answer_names, args=(admin,), daemon=True).start()
        until = time.monotonic() + _HANGS
        while not self._is_ready(admin):
            assert time.monotonic() < until, self.log("kubelet")[-3000:] + self.log("containerd")[-2000:]
            time.sleep(0.5)
        # Who would take these away (node-lifecycle-controller, flannel) is not there.
        change: dict[str, Any] = {"spec": {"taints": []}, "metadata": {"labels": dict(labels)}}
        admin.call("PATCH", f"/api/v1/nodes/{NODE}", change, MERGE)

    def _is_ready(self, admin: Api) -> bool:
        try:
            node = admin.call("GET", f"/api/v1/nodes/{NODE}")
        except RefusedError:
            return False
        conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
        return conditions.get("Ready") == "True"

    def _begin(self, log: str, command: Sequence[str]) -> None:
        self._machine.ask("start", command=list(command), log=log)

    def _write(self, authority: Pair, api: int, images: Mapping[str, Mapping[str, str]]) -> None:
        now = datetime.now(UTC)
        pair = certificates.client(
            authority, f"system:node:{NODE}", ["system:nodes"], now, timedelta(hours=12)
        )
        where = Endpoint(NAME, f"{HOST}:{api}")
        way = kubeconfig.with_certificate(where, authority.certificate, "research", "node", pair)
        files = {
            "ca.crt": authority.certificate,
            "kubeconfig": yaml.safe_dump(way),
            "kubelet.yaml": yaml.safe_dump(_kubelet(self.port)),
            "containerd.toml": _CONTAINERD,
            "spec.json": json.dumps(self._spec()),
            "cni.json": json.dumps(_CNI),
        }
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, text in files.items():
                add(tar, name, text.encode())
            add(tar, "images.tar", _images(images))
        self.sh(
            f"tar -xC {_FOLDER} && cp {_FOLDER}/cni.json /etc/cni/net.d/10-bridge.conflist"
            " && cp /usr/lib/cni/* /opt/cni/bin/",
            stdin=packed.getvalue(),
        )

    def _spec(self) -> dict[str, Any]:
        """containerd's own, and this machine's programs in each container."""
        spec: dict[str, Any] = json.loads(self.sh(f"{_programs()}/ctr oci spec"))
        for folder in ("/usr", *_on_disk()):
            bind = {"destination": str(folder), "source": str(folder), "type": "bind"}
            spec["mounts"].append({**bind, "options": ["rbind", "ro"]})
        return spec

    def _answer_names(self, admin: Api) -> None:
        """Has dnsmasq know the names that EndpointSlices give to pods."""
        self.sh(f": > {_FOLDER}/names/pods")
        before, begun = "", False
        while not self._stopping.wait(0.3):
            with suppress(RefusedError):
                slices = admin.call("GET", "/apis/discovery.k8s.io/v1/endpointslices")["items"]
                names = "".join(sorted(f"{line}\n" for each in slices for line in _names(each)))
                if names != before:
                    before = names
                    self.sh(
                        f"cat > {_FOLDER}/pods && mv {_FOLDER}/pods {_FOLDER}/names/pods"
                        "; pkill -HUP dnsmasq || :",
                        stdin=names.encode(),
                    )
                if names and not begun:
                    begun = True
                    self._begin("dnsmasq", [
                        "dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-dynamic",
                        f"--listen-address={_GATEWAY}", "--local=/cluster.local/", "--local-ttl=0",
                        f"--addn-hosts={_FOLDER}/names/pods", "--user=root", "--pid-file",
                        "--conf-file=/dev/null",
                    ])  # fmt: skip


def _names(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a hosts file: each pod that has a hostname, below its service."""
    about = found["metadata"]
    service = about["labels"].get("kubernetes.io/service-name", "")
    for each in found.get("endpoints") or ():
        if each.get("hostname"):
            name = f"{each['hostname']}.{service}.{about['namespace']}.svc.cluster.local"
            yield f"{each['addresses'][0]} {name}"


def _programs() -> Path:
    """The folder of Kubernetes' programs and containerd's, which the VM has over 9p: it may lie where the VM
    has a folder of its own."""
    return Path(str(find("kubelet"))).resolve().parent


def _on_disk() -> list[Path]:
    """Folders of this machine that containers find where they are here, beside /usr."""
    python = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), _ROOT / "client"}
    return sorted(each for each in python if not each.is_relative_to("/usr"))


def _disk(folder: Path, holds: Sequence[Path]) -> Path:
    """An ext4 with these folders, each named by its number: of each, what containers read."""
    staged, disk, size = folder / "staged", folder / "disk", 16 << 20
    for number, of in enumerate(holds):
        here = staged / str(number)
        for path in {*_read_of(of)}:
            target = here / path.relative_to(of)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
            size += path.lstat().st_size + (8 << 10)
        # The VM would compile what this machine has not yet, each time.
        compileall.compile_dir(here, quiet=2, stripdir=here, prependdir=of)
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    subprocess.run(
        [
            "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0", "-i", "8192",
            "-d", str(staged), str(disk), f"{size * 5 // 4 >> 10}k",
        ],
        check=True, stdout=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    return disk


def _read_of(folder: Path) -> Iterator[Path]:
    """The client's package; of a Python itself and its standard library; of a virtual environment the
    packages that are imported."""
    places = [*folder.glob("causeway"), *folder.glob("lib/python3*/*")]
    for place in places:
        if not any(fnmatch(place.name, each) for each in _LEFT_OUT):
            yield from (path for path in [place, *place.rglob("*")] if not path.is_dir())
    for pattern in ("bin/python*", "lib/libpython*", "pyvenv.cfg"):
        yield from folder.glob(pattern)
    if folder == Path(sys.prefix).resolve():
        for name in _with_all_it_needs(_IMPORTED):
            package = distribution(name)
            paths = [Path(str(package.locate_file(file))) for file in package.files or ()]
            yield from (path for path in paths if ".." not in path.parts and path.is_file())


def _with_all_it_needs(names: Iterable[str]) -> set[str]:
    """Packages and what they require, and so on."""
    packages: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in packages:
            packages.add(name)
            needs = map(Requirement, distribution(name).requires or ())
            left += [need.name for need in needs if need.marker is None or need.marker.evaluate()]
    return packages


def _kubelet(port: int) -> dict[str, Any]:
    """What we render for a machine of this size, and what kubeadm adds to it."""
    return {
        **kubelet.own(reserved(2, _MEMORY_MIB, _PODS), (), pods=_PODS, eviction=EVICTION),
        "cgroupDriver": "cgroupfs",
        "port": port,
        "containerRuntimeEndpoint": f"unix://{_FOLDER}/containerd.sock",
        "authentication": {"x509": {"clientCAFile": f"{_FOLDER}/ca.crt"}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "clusterDomain": "cluster.local",
        "clusterDNS": [_GATEWAY],
        "resolvConf": "/etc/resolv.conf",
        # There is no master to approve a certificate.
        "serverTLSBootstrap": False,
        # The runtime is as slow as the emulated processors, which nobody's statistics are to keep busy.
        "runtimeRequestTimeout": "15m",
        "nodeStatusUpdateFrequency": "1m",
        "volumeStatsAggPeriod": "1h",
        # Without systemd there is nobody to say that the machine shuts down.
        "shutdownGracePeriod": "0s",
        "shutdownGracePeriodCriticalPods": "0s",
    }


_CNI = {
    "cniVersion": "1.0.0",
    "name": "bridge",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": _SUBNET, "gateway": _GATEWAY}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
_CONTAINERD = f"""
version = 3
root = "{_FOLDER}/containerd/root"
state = "{_FOLDER}/containerd/state"
[grpc]
address = "{_FOLDER}/containerd.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{_PAUSE}"
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{_FOLDER}/spec.json"
"""


# -- Images -------------------------------------------------------------------------------------------------


def _images(environments: Mapping[str, Mapping[str, str]]) -> bytes:
    """All of one skeleton, each with an environment of its own."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add_skeleton(tar)
    configs = {
        _whole(name): {
            "Env": [f"{key}={value}" for key, value in environment.items()],
            "Cmd": ["/busybox", "sleep", "infinity"],
        }
        for name, environment in {_PAUSE: {}, **environments}.items()
    }
    return layout(layer.getvalue(), configs)


def _whole(name: str) -> str:
    """``python:3.13`` → ``docker.io/library/python:3.13``."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first else f"docker.io/{name}"
