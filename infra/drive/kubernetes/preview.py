"""Runs a real API server during a preview: etcd and kube-apiserver on loopback, with their own keys.

It has no controllers and no kubelets: it only reports whether it would accept an object, and how it would
change it. KUBEBUILDER_ASSETS names the folder of the programs, as for tests of controllers (kubebuilder,
"envtest"). Nothing is kept.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from infra.drive import clock
from infra.drive.kubernetes import access, apply, certificates, secrets
from infra.drive.kubernetes.access import Access, Endpoint
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.apply import Part
from infra.drive.kubernetes.kubectl import Kubectl, KubectlError
from infra.drive.secrets.local import LocalStore
from infra.errors import DriveError, UsageError

ASSETS: Final = "KUBEBUILDER_ASSETS"

_NAME: Final = "preview.internal"
_SECONDS: Final = 60
_TRIES: Final = 3
"""Ports are chosen before they are bound, so another process may take one."""

_NO_KIND: Final = re.compile(r'no matches for kind "([^"]+)"')
_REFUSED: Final = re.compile(r'^(?:Error from server|The \S+ ".*" is invalid).*$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a control plane."""

    apiserver: str
    etcd: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The API server's response to a part."""

    accepted: int
    to_come: tuple[str, ...]
    """Kinds that it does not know, as charts install their CRDs."""
    refused: tuple[str, ...]
    """The server's errors, one per object."""


def programs() -> Programs | None:
    """The programs in KUBEBUILDER_ASSETS; None if it is not set.

    Raises ``UsageError`` if it is set but they are missing.
    """
    folder = os.environ.get(ASSETS)
    if not folder:
        return None
    apiserver = shutil.which("kube-apiserver", path=folder)
    etcd = shutil.which("etcd", path=os.pathsep.join([folder, os.environ.get("PATH", "")]))
    if apiserver is None or etcd is None:
        missing = "kube-apiserver" if apiserver is None else "etcd"
        raise UsageError(
            f"{ASSETS}={folder}: {missing} not found; install it there, or unset {ASSETS} for a preview "
            "without an API server"
        )
    return Programs(apiserver, etcd)


@contextmanager
def serving(programs: Programs, *, services: str, admission: Sequence[str]) -> Iterator[Access]:
    """Administrator access to an empty cluster.

    ``services`` is its service range, ``admission`` the admission plugins beside the default ones.

    Raises ``DriveError``, with the end of its log, if it does not start.
    """
    with TemporaryDirectory(prefix="causeway-preview-") as temporary:
        folder = Path(temporary)
        keys = secrets.made(
            LocalStore("preview", folder / ".secrets", {"XDG_CONFIG_HOME": str(folder / "config")}),
            clock.now(),
        )
        for path, text in keys.pki().items():
            (folder / "pki" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "pki" / path).write_text(text)
        ends = timedelta(days=1)
        serving = certificates.server(keys.ca, "kube-apiserver", [_NAME], clock.now(), ends)
        (folder / "pki" / "serving.crt").write_text(serving.certificate)
        (folder / "pki" / "serving.key").write_text(serving.key)
        with ExitStack() as stack:
            for left in reversed(range(_TRIES)):
                client, peer, port = _ports(3)
                where = Endpoint(_NAME, f"127.0.0.1:{port}")
                found = stack.enter_context(access.opened(folder, where, keys.ca))
                running = [
                    _started(folder, "etcd", _etcd(programs, folder, client, peer)),
                    _started(
                        folder,
                        "kube-apiserver",
                        [
                            *_server(programs, folder, client, port),
                            f"--service-cluster-ip-range={services}",
                            f"--enable-admission-plugins={','.join(admission)}",
                        ],
                    ),
                ]
                stack.callback(_end, running)
                if _comes_up(Api(found), running):
                    break
                if not left:
                    log = (folder / "kube-apiserver.log").read_text(errors="replace")[-1500:]
                    raise DriveError(f"{programs.apiserver} did not come up:\n{log}")
                _end(running)
                shutil.rmtree(folder / "etcd-data", ignore_errors=True)
            yield found


def offer(kubectl: Kubectl, part: Part) -> Offered:
    """Apply a part; returns the kinds and objects that the server did not accept."""
    if not part.objects:
        return Offered(0, (), ())
    try:
        said = kubectl.apply(apply.written(kubectl, f"{part.name}.json", part.objects))
    except KubectlError as problem:
        text = str(problem)
        to_come = _NO_KIND.findall(text)
        refused = tuple(_REFUSED.findall(text))
        if not to_come and not refused:
            raise
        accepted = len(part.objects) - len(to_come) - len(refused)
        return Offered(accepted, tuple(dict.fromkeys(to_come)), refused)
    return Offered(len(said), (), ())


# -- Processes --------------------------------------------------------------------------------------------


def _etcd(programs: Programs, folder: Path, client: int, peer: int) -> list[str]:
    store, other = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        programs.etcd, f"--data-dir={folder / 'etcd-data'}", "--unsafe-no-fsync",
        f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
        f"--listen-peer-urls={other}", f"--initial-advertise-peer-urls={other}",
        f"--initial-cluster=default={other}",
    ]  # fmt: skip


def _server(programs: Programs, folder: Path, client: int, port: int) -> list[str]:
    pki = folder / "pki"
    return [
        programs.apiserver, f"--etcd-servers=http://127.0.0.1:{client}", f"--secure-port={port}",
        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
        "--authorization-mode=Node,RBAC", "--allow-privileged=true",
        # No controller creates a namespace's default service account here.
        "--disable-admission-plugins=ServiceAccount",
        f"--client-ca-file={pki}/ca.crt", f"--cert-dir={folder}",
        f"--tls-cert-file={pki}/serving.crt", f"--tls-private-key-file={pki}/serving.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
    ]  # fmt: skip


def _started(folder: Path, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in reversed(running):
        process.kill()
        process.wait()


def _comes_up(api: Api, running: Sequence[subprocess.Popen[bytes]]) -> bool:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in running):
            return False
        if api.ready():
            return True
        time.sleep(0.2)
    return False


def _ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
