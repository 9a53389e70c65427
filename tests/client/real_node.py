"""A node with a real kubelet, containerd and runc, in the lab's VM.

What is real: the kernel's namespaces and cgroups, the kubelet with the configuration that we render for a
machine of this size, containerd 2, runc, CNI's bridge. What is not a cluster's own:

- Images hold no files but a skeleton: each container has this machine's /usr, and the Python that runs the
  tests, bound into it read-only (``base_runtime_spec``). So there is no registry, and no pull.
- Names of pods are answered by dnsmasq, which is told what the cluster's EndpointSlices say; a cluster has
  CoreDNS.
- cgroups are the kubelet's own (``cgroupfs``), as no systemd runs there.
- The node is called ``localhost``: the API server, on the host, reaches its kubelet by that name, at a port
  that QEMU passes on. The VM reaches the host as 10.0.2.2, and nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shlex
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from drive.kubernetes.apiserver import NAME
from kube_tools import find
from network.machine import Result, Vm
from render.kubernetes.policy_world import Api, RefusedError

from infra.drive.kubernetes import certificates, kubeconfig
from infra.drive.kubernetes.access import Endpoint
from infra.drive.kubernetes.certificates import Pair
from infra.render.kubernetes import kubelet

NODE = "localhost"
HOST = "10.0.2.2"
"""This machine, as the VM sees it (QEMU's user network)."""
_ROOT = Path(__file__).parents[2]
_MEMORY_MIB = 4096
_PODS = 20
_SUBNET, _GATEWAY = "10.99.0.0/24", "10.99.0.1"
_PAUSE = "registry.k8s.io/pause:3.10.1"
_FOLDER = "/run/node"
_PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
_PACKAGES = {
    "runc": "runc", "dnsmasq": "dnsmasq-base", "nft": "nftables",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}  # fmt: skip
_MODULES = ("virtio_net", "overlay", "br_netfilter", "veth", "bridge", "nf_conntrack", "nft_masq", "nft_ct")
_SKELETON = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
"""Of this machine, what its /usr needs beside itself."""

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
number=0
for each in $SHARES; do
  mkdir -p "$each"
  mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 "share$number" "$each"
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
        shares = _shares()
        devices = [
            "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:{port}",
            "-device", "virtio-net-pci,netdev=net,romfile=",
        ]  # fmt: skip
        for number, folder in enumerate(shares):
            share = f"local,path={folder},mount_tag=share{number},security_model=none,readonly=on"
            devices += ["-virtfs", f"{share},multidevs=remap"]
        machine = Vm(memory_mib=_MEMORY_MIB, devices=devices)
        try:
            node = cls(machine, port)
            folders = [
                "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/opt/cni/bin",
                "/etc/cni/net.d", f"{_FOLDER}/names", f"{_FOLDER}/containerd", f"{_FOLDER}/manifests",
            ]  # fmt: skip
            words = {"MODULES": _MODULES, "FOLDERS": folders, "SHARES": shares, "SUBNET": [_SUBNET]}
            values = [f"{name}={shlex.quote(' '.join(map(str, each)))}" for name, each in words.items()]
            node.sh("\n".join([*values, _SETUP]), timeout=60)
            yield node
            node._stopping.set()
        finally:
            machine.close()

    def sh(self, script: str, *, stdin: bytes = b"", timeout: float = 30) -> str:
        """Runs a script there, outside of all pods."""
        done: Result = self._machine.run(["sh", "-c", script], stdin=stdin, timeout=timeout)
        assert done.ok, done
        return done.stdout

    def log(self, name: str) -> str:
        return str(self._machine.ask("log", log=name)["text"])

    def start(self, admin: Api, authority: Pair, api: str, images: Mapping[str, Mapping[str, str]]) -> None:
        """The kubelet, joined to the API server at port ``api`` of this machine; until it is ready.
        ``images``: name → environment."""
        self._write(authority, api, images)
        programs = Path(str(find("kubelet"))).parent
        path = f"PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        self._begin("containerd", ["env", path, f"{programs}/containerd", "-c", f"{_FOLDER}/containerd.toml"])
        ctr = f"{programs}/ctr -a {_FOLDER}/containerd.sock -n k8s.io"
        self.sh(
            f"until [ -S {_FOLDER}/containerd.sock ]; do sleep 0.2; done; {ctr} version >/dev/null\n"
            f"{ctr} images import --local {_FOLDER}/images.tar",
            timeout=120,
        )
        self._begin(
            "kubelet",
            [
                "env", path, f"{programs}/kubelet", f"--config={_FOLDER}/kubelet.yaml",
                f"--kubeconfig={_FOLDER}/kubeconfig", f"--hostname-override={NODE}", "--node-ip=10.0.2.15",
            ],
        )  # fmt: skip
        threading.Thread(target=self._answer_names, args=(admin,), daemon=True).start()
        until = time.monotonic() + 300
        while not self._is_ready(admin):
            assert time.monotonic() < until, self.log("kubelet")[-3000:] + self.log("containerd")[-2000:]
            time.sleep(0.5)
        # Who would take these away (node-lifecycle-controller, flannel) is not there.
        taints: dict[str, Any] = {"spec": {"taints": []}}
        admin.call("PATCH", f"/api/v1/nodes/{NODE}", taints, "application/merge-patch+json")

    def _is_ready(self, admin: Api) -> bool:
        try:
            node = admin.call("GET", f"/api/v1/nodes/{NODE}")
        except RefusedError:
            return False
        conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
        return conditions.get("Ready") == "True"

    def _begin(self, log: str, command: Sequence[str]) -> None:
        self._machine.ask("start", command=list(command), log=log)

    def _write(self, authority: Pair, api: str, images: Mapping[str, Mapping[str, str]]) -> None:
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
                _add(tar, name, text.encode())
            _add(tar, "images.tar", _images(images))
        self.sh(
            f"tar -xC {_FOLDER} && cp {_FOLDER}/cni.json /etc/cni/net.d/10-bridge.conflist"
            " && cp /usr/lib/cni/* /opt/cni/bin/",
            stdin=packed.getvalue(),
        )

    def _spec(self) -> dict[str, Any]:
        """containerd's own, and this machine's programs in each container."""
        ctr = f"{Path(str(find('ctr'))).parent}/ctr"
        spec: dict[str, Any] = json.loads(self.sh(f"{ctr} oci spec"))
        for folder in ("/usr", *_shares()):
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


def _shares() -> list[Path]:
    """Folders that the VM has of this machine beside its root: they may lie where the VM has its own."""
    python = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), _ROOT}
    programs = {Path(str(find("kubelet"))).resolve().parent}
    return sorted(each for each in python | programs if not each.is_relative_to("/usr"))


def _kubelet(port: int) -> dict[str, Any]:
    """What we render for a machine of this size, and what kubeadm adds to it."""
    return {
        **kubelet.own(2, _MEMORY_MIB, _PODS, ()),
        "cgroupDriver": "cgroupfs",
        "port": port,
        "containerRuntimeEndpoint": f"unix://{_FOLDER}/containerd.sock",
        "authentication": {"x509": {"clientCAFile": f"{_FOLDER}/ca.crt"}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "clusterDomain": "cluster.local",
        "clusterDNS": [_GATEWAY],
        "resolvConf": "/etc/resolv.conf",
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
    """An OCI layout with one image for each name, all of one layer.

    Source: OCI Image Format Specification, "Image Layout"; ``io.containerd.image.name`` is what ``ctr images
    import`` calls it.
    """
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[f"blobs/{digest.replace(':', '/')}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(data)}

    layer = _layer()
    index = []
    for name, environment in {_PAUSE: {}, **environments}.items():
        config = {
            "architecture": "amd64", "os": "linux",
            "config": {
                "Env": [f"{key}={value}" for key, value in environment.items()],
                "Cmd": ["/busybox", "sleep", "infinity"],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }  # fmt: skip
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(json.dumps(config).encode(), "config.v1+json"),
            "layers": [blob(layer, "layer.v1.tar")],
        }
        row = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        index.append({**row, "annotations": {"io.containerd.image.name": _whole(name)}})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())
        for path, data in blobs.items():
            _add(tar, path, data)
    return packed.getvalue()


def _whole(name: str) -> str:
    """``python:3.13`` → ``docker.io/library/python:3.13``."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first else f"docker.io/{name}"


@functools.cache
def _layer() -> bytes:
    """What an image has beside /usr: links to it, and what programs there look for in /etc."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder, mode in (("etc", 0o755), ("usr", 0o755), ("tmp", 0o1777), ("var", 0o755)):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, mode
            tar.addfile(made)
        for path in (Path("/bin"), Path("/sbin"), *Path("/").glob("lib*")):
            if path.is_symlink():
                tar.add(path, path.name)
        for path in (*map(Path, _SKELETON), *Path("/etc").glob("python3*")):
            if path.exists():
                tar.add(path, str(path.relative_to("/")))
        # What a pod's first container runs, which is given no files of the machine.
        tar.add(str(shutil.which("busybox")), "busybox")
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add(tar, "etc/group", b"root:x:0:\n")
    return packed.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    tar.addfile(member, io.BytesIO(data))
