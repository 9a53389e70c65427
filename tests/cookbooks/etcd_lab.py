"""Masters on this machine, as far as etcd goes: a real etcd each, on an address of its own of the loopback.

What is not real says so: a kubelet that knows one pod, and a `crictl` that lists it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cookbooks.kitchen import run
from cookbooks.masters import program, settle
from kube_tools import need

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: kube-system
spec:
  containers:
  - command:
    - etcd
{flags}
    image: registry.example.test/etcd:0
    name: etcd
"""

CRICTL = """\
#!/bin/sh
# Not crictl: it knows `crictl ps --quiet --name …`, and lists the one process that the lab's kubelet runs.
cat "$ETCD_LAB_ROOT/running" 2>/dev/null || :
"""


def certificates(folder: Path, addresses: Sequence[str]) -> None:
    """kubeadm makes etcd's authority, and certificates of a server, a peer and a client for all addresses."""
    api = {"apiVersion": "kubeadm.k8s.io/v1beta4"}
    etcd = {"serverCertSANs": [*addresses], "peerCertSANs": [*addresses]}
    cluster = {"kubernetesVersion": "v1.36.2", "certificatesDir": str(folder), "etcd": {"local": etcd}}
    init = {"localAPIEndpoint": {"advertiseAddress": "192.0.2.10"}, "nodeRegistration": {"name": "master"}}
    documents = [
        {**api, "kind": "ClusterConfiguration", **cluster},
        {**api, "kind": "InitConfiguration", **init},
    ]
    folder.mkdir(parents=True)
    config = folder / "kubeadm.yaml"
    config.write_text("---\n".join(f"{json.dumps(each)}\n" for each in documents))
    for phase in ("etcd-ca", "etcd-server", "etcd-peer", "etcd-healthcheck-client"):
        run(need("kubeadm"), "init", "phase", "certs", phase, "--config", config)


@dataclass
class Master:
    """One of them, its system below ``root``."""

    name: str
    address: str
    root: Path
    tools: Path
    process: subprocess.Popen[bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def data(self) -> Path:
        return self.root / "var/lib/etcd"

    @property
    def manifest(self) -> Path:
        return self.root / "etc/kubernetes/manifests/etcd.yaml"

    def declare(self, cluster: Mapping[str, str], state: str = "new") -> None:
        """The manifest, as kubeadm writes it."""
        pki = self.root / "etc/kubernetes/pki/etcd"
        flags = {
            "advertise-client-urls": f"https://{self.address}:2379",
            "cert-file": pki / "server.crt",
            "client-cert-auth": "true",
            "data-dir": self.data,
            "initial-advertise-peer-urls": f"https://{self.address}:2380",
            "initial-cluster": ",".join(f"{name}=https://{at}:2380" for name, at in cluster.items()),
            "initial-cluster-state": state,
            "key-file": pki / "server.key",
            "listen-client-urls": f"https://{self.address}:2379",
            "listen-peer-urls": f"https://{self.address}:2380",
            "name": self.name,
            "peer-cert-file": pki / "peer.crt",
            "peer-client-cert-auth": "true",
            "peer-key-file": pki / "peer.key",
            "peer-trusted-ca-file": pki / "ca.crt",
            "trusted-ca-file": pki / "ca.crt",
        }
        self.manifest.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(f"    - --{name}={value}" for name, value in flags.items())
        new = self.manifest.with_name(".etcd.yaml")
        new.write_text(MANIFEST.format(flags=text))
        new.replace(self.manifest)

    def tend(self) -> None:
        """What a kubelet does, once: the pod runs when there is a manifest, and not when there is none."""
        with self.lock:
            declared = self.manifest.is_file()
            if declared and (self.process is None or self.process.poll() is not None):
                lines = self.manifest.read_text().splitlines()
                flags = [line.split("- ", 1)[1] for line in lines if line.startswith("    - --")]
                log = (self.root / "etcd.log").open("ab")
                self.process = subprocess.Popen(
                    [str(self.tools / "etcd"), *flags],
                    stdout=log,
                    stderr=log,
                    env={"ETCD_UNSUPPORTED_ARCH": ""},
                )
                log.close()
                (self.root / "running").write_text("etcd-container\n")
            elif not declared and self.process is not None:
                self.process.terminate()
                self.process.wait()
                self.process = None
                (self.root / "running").unlink()

    def lose(self) -> None:
        """The machine is gone, with its disk."""
        with self.lock:
            self.manifest.unlink()
            if self.process is not None:
                self.process.kill()
                self.process.wait()
                self.process = None
            (self.root / "running").unlink(missing_ok=True)
            shutil.rmtree(self.data, ignore_errors=True)


class Lab:
    """Masters, their kubelets, and the bucket that they know of."""

    def __init__(
        self, folder: Path, net: str, names: Sequence[str], cloud: Mapping[str, str], bucket: str
    ) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir(parents=True)
        for tool in ("etcd", "etcdctl", "etcdutl"):
            if path := shutil.which(tool):
                (self.tools / tool).symlink_to(path)
        (self.tools / "crictl").write_text(CRICTL)
        (self.tools / "crictl").chmod(0o755)
        (self.tools / "cat").symlink_to(shutil.which("cat") or "/bin/cat")
        self.cloud = cloud
        self.bucket = bucket
        self.masters = [
            Master(name, f"{net}.{number}", folder / name, self.tools)
            for number, name in enumerate(names, start=1)
        ]
        # On the loopback whoever calls comes from its first address.
        addresses = ["127.0.0.1", *(each.address for each in self.masters)]
        certificates(folder / "pki", addresses)
        everybody = {each.name: each.address for each in self.masters}
        for each in self.masters:
            shutil.copytree(folder / "pki/etcd", each.root / "etc/kubernetes/pki/etcd")
            (each.root / "var/lib/prometheus/node-exporter").mkdir(parents=True)
            settle(
                each.root,
                name=each.name,
                masters=everybody,
                snapshots={"bucket": bucket, "prefix": "etcd/", "region": "us-west-2"},
            )
            each.declare(everybody)
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._tend, daemon=True)
        self._kubelet.start()

    def _tend(self) -> None:
        while not self._over.wait(0.1):
            for each in self.masters:
                each.tend()

    def close(self) -> None:
        """Nothing of it runs on."""
        self._over.set()
        self._kubelet.join()
        for each in self.masters:
            if each.process is not None:
                each.process.kill()
                each.process.wait()

    def program(self, master: Master, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One of the cookbook's programs on a master, with nothing on its PATH but the lab's tools."""
        lab = {"PATH": str(self.tools), "ETCD_LAB_ROOT": str(master.root)}
        return program(name, "--root", master.root, *arguments, **self.cloud, **lab)

    def ask(self, master: Master, *arguments: str) -> subprocess.CompletedProcess[str]:
        """etcdctl, to one master's member."""
        pki = master.root / "etc/kubernetes/pki/etcd"
        return subprocess.run(
            [
                self.tools / "etcdctl",
                f"--endpoints=https://{master.address}:2379",
                f"--cacert={pki / 'ca.crt'}",
                f"--cert={pki / 'healthcheck-client.crt'}",
                f"--key={pki / 'healthcheck-client.key'}",
                "--command-timeout=3s",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
        )

    def served(self, master: Master, *arguments: str) -> str:
        """What etcdctl says, once it is served: after the loss of a leader another has to be chosen."""
        last = time.monotonic() + 60
        while (done := self.ask(master, *arguments)).returncode:
            log = (master.root / "etcd.log").read_text()[-3000:]
            assert time.monotonic() < last, f"{done.stderr}\n{log}"
            time.sleep(0.2)
        return done.stdout.strip()

    def wait(self, master: Master) -> None:
        """Until its member serves."""
        self.served(master, "endpoint", "health")

    def put(self, master: Master, key: str, value: str) -> None:
        self.served(master, "put", key, value)

    def get(self, master: Master, key: str) -> str:
        return self.served(master, "get", "--print-value-only", key)
