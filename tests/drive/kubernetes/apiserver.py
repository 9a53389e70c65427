"""A real API server with its etcd on loopback, begun with a cluster's own keys as kubeadm would be.

There are no controllers, no scheduler and no kubelets: nodes and pods are what a test says they are.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kube_tools import need
from ports import reserved

from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.secrets import Keys, encryption_config

NAME = "api.test.internal"


@dataclass
class Server:
    """It, and what keeps it."""

    folder: Path
    port: int
    etcd: str
    process: subprocess.Popen[bytes]
    words: Sequence[str]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """It finishes the requests that it has, but does not wait a minute for those who watch."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            _end(self.process)

    def start(self) -> None:
        """Once more, with the etcd that it had."""
        self.process = _started(self.folder, "kube-apiserver", self.words)
        _until_ready(self)


@contextmanager
def running(
    folder: Path,
    keys: Keys,
    *,
    port: int = 0,
    more: Sequence[str] = (),
    issuers: Sequence[str] = ("https://kubernetes.default.svc",),
) -> Iterator[Server]:
    """One that serves, at a port of its own or this one, which the caller has reserved; skips where there is
    none. ``more``: further arguments. ``issuers``: of service accounts' tokens; the first signs."""
    etcd, program = need("etcd"), need("kube-apiserver")
    pki = folder / "pki"
    for path, text in keys.pki().items():
        (pki / path).parent.mkdir(parents=True, exist_ok=True)
        (pki / path).write_text(text)
    (pki / "encryption.yaml").write_text(encryption_config(keys.encryption))
    serving = certificates.server(keys.ca, "kube-apiserver", [NAME], datetime.now(UTC), timedelta(days=90))
    (pki / "serving.crt").write_text(serving.certificate)
    (pki / "serving.key").write_text(serving.key)
    with ExitStack() as stack:
        own, client, peer = stack.enter_context(reserved(3))
        api = port or own
        store = f"http://127.0.0.1:{client}"
        process = _started(
            folder,
            "etcd",
            [
                etcd, "--data-dir", str(folder / "etcd-data"), "--unsafe-no-fsync",
                "--listen-client-urls", store, "--advertise-client-urls", store,
                "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                "--initial-cluster", f"default=http://127.0.0.1:{peer}",
            ],
        )  # fmt: skip
        stack.callback(_end, process)
        words = [
            program, f"--etcd-servers={store}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
            f"--secure-port={api}", "--endpoint-reconciler-type=none", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount",
            "--enable-bootstrap-token-auth=true", "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16", f"--client-ca-file={pki}/ca.crt",
            f"--tls-cert-file={pki}/serving.crt", f"--tls-private-key-file={pki}/serving.key",
            *(f"--service-account-issuer={issuer}" for issuer in issuers),
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            f"--encryption-provider-config={pki}/encryption.yaml", f"--cert-dir={folder}",
            *more,
        ]  # fmt: skip
        server = Server(folder, api, store, _started(folder, "kube-apiserver", words), words)
        stack.callback(lambda: _end(server.process))
        _until_ready(server)
        yield server


def who(server: Server, keys: Keys, token: str) -> tuple[str, set[str]] | int:
    """A token's user and groups as the API server sees them, or its status where it refuses."""
    context = ssl.create_default_context(cadata=keys.ca.certificate)
    context.check_hostname = False
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    request = urllib.request.Request(
        f"https://{server.address}/apis/authentication.k8s.io/v1/selfsubjectreviews",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=30) as answer:
            user = json.load(answer)["status"]["userInfo"]
    except urllib.error.HTTPError as refused:
        return refused.code
    return user["username"], set(user.get("groups", ()))


def node(name: str, *, ready: bool = True, version: str = "v1.36.3", **labels: str) -> dict[str, Any]:
    """A node as its kubelet would tell of it; ``gpus`` among the labels counts its cards."""
    cards = labels.pop("gpus", "0")
    ours = {f"causeway.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": ours},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "nodeInfo": {
                "kubeletVersion": version, "machineID": "", "systemUUID": "", "bootID": "",
                "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
            "allocatable": {"cpu": "40", "memory": "250Gi", "pods": "110", "nvidia.com/gpu": cards},
            "capacity": {"cpu": "40", "memory": "250Gi", "pods": "110", "nvidia.com/gpu": cards},
        },
    }  # fmt: skip


def pod(
    name: str, on: str | None, *, namespace: str = "default", gpus: int = 0, **more: Any
) -> dict[str, Any]:
    """A pod, placed on a node or on none; ``labels`` among ``more``."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": more.get("labels", {})},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": on} if on else {}),
        },
    }


def _started(folder: Path, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _until_ready(server: Server) -> None:
    # Who may not look at all may look at this.
    context = ssl._create_unverified_context()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            with opener.open(f"https://{server.address}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
        if server.process.poll() is not None:
            break
    log = (server.folder / "kube-apiserver.log").read_text()
    raise AssertionError(f"the API server does not come up:\n{log[-3000:]}")
