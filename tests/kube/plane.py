"""A control plane of real programs on loopback: etcd and an API server, begun with a cluster's own keys as
kubeadm would begin it, and Kubernetes' controllers and scheduler where a test asks for them.

There are no kubelets: nodes and pods are what a test says they are.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from kube.api import Api, RefusedError
from kube_tools import need
from ports import reserved
from stores import cluster_keys
from waiting import until

from infra.drive.kubernetes import access, certificates, kubeconfig
from infra.drive.kubernetes.access import Access, Endpoint
from infra.drive.kubernetes.api import Api as DrivenApi
from infra.drive.kubernetes.secrets import Keys, encryption_config
from infra.model import Cluster
from infra.render.kubernetes import kubeadm

NAME = "api.test.internal"
ISSUER = "--service-account-issuer="
SIGNERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
)
_OWN = "https://kubernetes.default.svc"
_LIFE = timedelta(hours=12)


class Plane:
    """It, and who may come to it."""

    def __init__(self, folder: Path, keys: Keys, port: int, etcd: str, flags: Sequence[str]) -> None:
        self.folder = folder
        self.keys = keys
        self.port = port
        self.etcd = etcd
        """Its URL."""
        self.flags = [*flags]
        """Of the API server, when it is started next."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(NAME, self.address)

    # The API server.

    def start(self) -> None:
        """Also once more, with the etcd that it had."""
        self._process = _started(self.folder, "kube-apiserver", need("kube-apiserver"), *self.flags)
        until(self._is_ready, seconds=180, every=0.05, explain=self._log)

    def stop(self) -> None:
        """It has a moment to finish its requests; it would wait a minute for those who watch."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        # Who may not look at all may look at this.
        context = ssl._create_unverified_context()
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        try:
            with urllib.request.build_opener(*handlers).open(f"https://{self.address}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def _log(self) -> str:
        return (self.folder / "kube-apiserver.log").read_text()[-3000:]

    # Who comes to it.

    @cached_property
    def admin(self) -> Api:
        return self.somebody("kubernetes-admin", access.SUPER)

    def somebody(self, name: str, *groups: str) -> Api:
        """Calls with a client certificate of this user and these groups."""
        pair = certificates.client(self.keys.ca, name, groups, datetime.now(UTC), _LIFE)
        file = self.folder / f"{name}.pem"
        file.write_text(pair.joined())
        context = self._trusting()
        context.load_cert_chain(file)
        return Api(self.address, context)

    def bearer(self, token: str) -> Api:
        """Calls with a token."""
        return Api(self.address, self._trusting(), token)

    def who(self, token: str) -> tuple[str, set[str]] | int:
        """A token's user and groups as the API server sees them, or its status where it refuses."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        try:
            user = self.bearer(token).call("POST", path, body)["status"]["userInfo"]
        except RefusedError as refused:
            return refused.code
        return user["username"], set(user.get("groups", ()))

    def _trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.keys.ca.certificate)
        context.check_hostname = False  # It is asked by its address, and its name is another.
        return context

    @cached_property
    def kubeconfig(self) -> Path:
        """The administrator's, for programs: all is in the file."""
        return self.kubeconfig_of("kubernetes-admin", access.SUPER)

    def kubeconfig_of(self, name: str, *groups: str) -> Path:
        pair = certificates.client(self.keys.ca, name, groups, datetime.now(UTC), _LIFE)
        text = kubeconfig.with_certificate(self.endpoint, self.keys.ca.certificate, "research", name, pair)
        return self._written(name, text)

    def kubeconfig_with(self, name: str, **credentials: Any) -> Path:
        """With these credentials: a ``token``, say."""
        authority = self.keys.ca.certificate
        text = access.kubeconfig(
            self.endpoint, authority, cluster="research", user=name, credentials=credentials
        )
        return self._written(name, text)

    def _written(self, name: str, text: Mapping[str, Any]) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(text))
        return path

    @property
    def driven(self) -> DrivenApi:
        """As commands have it; one of its own for each thread."""
        return DrivenApi(self._access)

    @cached_property
    def _access(self) -> Access:
        folder = self.folder / "access"
        folder.mkdir(mode=0o700)
        return Access(self.endpoint, folder, self.keys.ca)

    # What acts in it.

    @contextmanager
    def program(
        self,
        name: str,
        *words: str,
        before: Sequence[str] = (),
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        """A program of Kubernetes', until it is killed. ``before``: what goes before its path."""
        command = (*before, need(name), *words)
        process = _started(self.folder, name, *command, cwd=cwd, environment=environment)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextmanager
    def controllers(self, *names: str, flags: Sequence[str] = ()) -> Iterator[None]:
        """kube-controller-manager as kubeadm starts it, with these controllers alone."""
        pki = self.folder / "pki"
        signing = [f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key"]
        words = [f"--controllers={','.join(names)}", *signing, *flags]
        with self.program("kube-controller-manager", *self._alone(self.kubeconfig), *words):
            yield

    @contextmanager
    def scheduler(self) -> Iterator[None]:
        with self.program("kube-scheduler", *self._alone(self.kubeconfig_of("system:kube-scheduler"))):
            yield

    def _alone(self, kubeconfig: Path) -> list[str]:
        """Flags of one that has no other beside it, and that nobody asks for metrics."""
        return ["--leader-elect=false", "--secure-port=0", f"--kubeconfig={kubeconfig}"]


@contextmanager
def planes(
    folder: Path, keys: Keys | None = None, *, port: int = 0, flags: Sequence[str] = ()
) -> Iterator[Plane]:
    """A control plane that serves; skips where a program is missing. Without ``keys`` they are made, and
    without ``port``, which the caller has reserved, it has one of its own. ``flags``: further ones of the API
    server."""
    for name in ("etcd", "kube-apiserver"):
        need(name)
    folder.mkdir(parents=True, exist_ok=True)
    keys = keys or cluster_keys(folder)
    pki = _pki(folder, keys)
    with ExitStack() as stack:
        own, client, peer = stack.enter_context(reserved(3))
        store = f"http://127.0.0.1:{client}"
        process = member(folder, "etcd", {"etcd": (client, peer)})
        stack.callback(process.wait)
        stack.callback(process.kill)
        issuer = () if any(each.startswith(ISSUER) for each in flags) else (f"{ISSUER}{_OWN}",)
        plane = Plane(folder, keys, port or own, store, [
            f"--etcd-servers={store}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
            f"--secure-port={port or own}", "--endpoint-reconciler-type=none",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            "--disable-admission-plugins=ServiceAccount", "--enable-bootstrap-token-auth=true",
            "--allow-privileged=true", "--service-cluster-ip-range=10.96.0.0/16",
            f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/serving.crt",
            f"--tls-private-key-file={pki}/serving.key", *issuer,
            f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
            f"--kubelet-client-certificate={pki}/kubelets.crt", f"--kubelet-client-key={pki}/kubelets.key",
            f"--encryption-provider-config={pki}/encryption.yaml", f"--cert-dir={folder}",
            *flags,
        ])  # fmt: skip
        stack.callback(plane.kill)
        plane.start()
        yield plane


def member(folder: Path, name: str, ports: Mapping[str, Sequence[int]]) -> subprocess.Popen[bytes]:
    """A process of a new etcd, which the caller ends. ``ports``: of each member for clients and for members.
    Nobody needs its data after a crash, so it waits for no disk."""
    clients, members = (f"http://127.0.0.1:{port}" for port in ports[name])
    cluster = ",".join(f"{each}=http://127.0.0.1:{peer}" for each, (_, peer) in ports.items())
    return _started(
        folder, name, need("etcd"), f"--name={name}", f"--data-dir={folder}/{name}-data", "--unsafe-no-fsync",
        f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={members}", f"--initial-advertise-peer-urls={members}",
        f"--initial-cluster={cluster}",
    )  # fmt: skip


def issuer_flags(cluster: Cluster) -> list[str]:
    """Of the API server, as kubeadm has them: who signs service accounts' tokens, and for whom."""
    names = ("service-account-issuer", "service-account-jwks-uri", "api-audiences")
    arguments = kubeadm.cluster_configuration(cluster)["apiServer"]["extraArgs"]
    return [f"--{each['name']}={each['value']}" for each in arguments if each["name"] in names]


def _pki(folder: Path, keys: Keys) -> Path:
    """What kubeadm puts on a master: the cluster's keys, and the API server's own certificates."""
    pki, now = folder / "pki", datetime.now(UTC)
    for path, text in keys.pki().items():
        (pki / path).parent.mkdir(parents=True, exist_ok=True)
        (pki / path).write_text(text)
    (pki / "encryption.yaml").write_text(encryption_config(keys.encryption))
    kubelets = "kube-apiserver-kubelet-client"
    pairs = {
        "serving": certificates.server(keys.ca, "kube-apiserver", [NAME], now, timedelta(days=90)),
        "kubelets": certificates.client(keys.ca, kubelets, [access.SUPER], now, timedelta(days=90)),
    }
    for name, pair in pairs.items():
        (pki / f"{name}.crt").write_text(pair.certificate)
        (pki / f"{name}.key").write_text(pair.key)
    return pki


def _started(
    folder: Path,
    log: str,
    *command: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """In a session of its own: a Ctrl-C is ours alone, and a shell's children end with it."""
    with (folder / f"{log}.log").open("ab") as stream:
        return subprocess.Popen(
            command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, cwd=cwd or folder,
            env={**os.environ, **(environment or {})}, start_new_session=True,
        )  # fmt: skip
