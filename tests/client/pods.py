"""What would run pods: a stand-in for a kubelet, which runs their containers as processes.

Each container has a root of its own (this machine's, with the pod's volumes in it), init containers run one
after the other before it, and what a process leaves in /dev/termination-log is its message. Images are this
machine's: of what a container has none, the stand-in is told. Pods share a network with an ``eth0``, in which
their names are known. Logs are served as a kubelet serves them, so that the API server can be asked for them.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from render.kubernetes.policy_world import Api, RefusedError

from infra.drive.kubernetes import certificates

NODE = "stand-in"
_TICK = 0.2
_ADDRESS = "10.250.0.1"

_ROOT = r"""
set -eu
root=$1 pod=$2; shift 2
mount -t tmpfs tmpfs "$root"
for each in /*; do
  case $each in /dev|/run|/proc) mkdir "$root$each" ;;
  *) if [ -L "$each" ]; then cp -P "$each" "$root$each"
     elif [ -d "$each" ]; then mkdir "$root$each"; mount --rbind "$each" "$root$each"; fi ;;
  esac
done
mount --rbind /proc "$root/proc"
for each in null zero random urandom; do
  touch "$root/dev/$each"
  mount --bind "/dev/$each" "$root/dev/$each"
done
mkdir -p "$root/dev/shm" "$root/causeway" "$root/run/secrets/causeway"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
: > "$root/dev/termination-log"
mount --bind "$pod/message" "$root/dev/termination-log"
mount --bind "$pod/hosts" "$root/etc/hosts"
mount --bind "$pod/causeway" "$root/causeway"
mount --bind "$pod/token" "$root/run/secrets/causeway"
exec /usr/sbin/chroot "$root" "$@"
"""


def can_run() -> str:
    """Why it can't run here; empty where it can."""
    return "" if os.geteuid() == 0 else "only root may give a process a root of its own"


class StandIn:
    """One node, and the pods on it."""

    def __init__(self, admin: Api, folder: Path, environments: Mapping[str, Mapping[str, str]]) -> None:
        """``environments``: container → what its image would have in its environment."""
        self._admin = admin
        self._folder = folder
        self._environments = environments
        self._seen: set[str] = set()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._names = f"causeway-{os.getpid()}"
        self.problems: list[str] = []

    @contextmanager
    def running(self) -> Iterator[StandIn]:
        with ExitStack() as stack:
            subprocess.run(["ip", "netns", "add", self._names], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "delete", self._names], check=True)
            for line in (
                "link set lo up", "link add eth0 type veth peer name eth1", "link set eth1 up",
                f"addr add {_ADDRESS}/24 dev eth0", "link set eth0 up",
            ):  # fmt: skip
                subprocess.run(["ip", "-n", self._names, *line.split()], check=True)
            logs = self._serve_logs()
            stack.callback(logs.server_close)
            stack.callback(logs.shutdown)
            self._register(logs.server_address[1])
            thread = threading.Thread(target=self._run, daemon=True)
            thread.start()
            stack.callback(self._end, thread)
            yield self

    def _end(self, thread: threading.Thread) -> None:
        self._stopping.set()
        thread.join(30)
        for process in self._running.values():
            process.kill()

    def _register(self, port: int) -> None:
        self._admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        path = f"/api/v1/nodes/{NODE}/status"
        self._admin.call("PATCH", path, {"status": status}, "application/merge-patch+json")

    # -- Pods ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(_TICK):
            try:
                for pod in self._admin.call("GET", "/api/v1/pods")["items"]:
                    self._look_at(pod)
            except RefusedError:
                continue
            except Exception as problem:
                self.problems.append(f"{type(problem).__name__}: {problem}")

    def _look_at(self, pod: Any) -> None:
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            process = self._running.get(uid)
            if process is not None and process.poll() is None:
                _terminate(process)
            else:
                self._patch(pod, None)
        elif uid not in self._seen:
            self._seen.add(uid)
            threading.Thread(target=self._life, args=(pod,), daemon=True).start()

    def _life(self, pod: Any) -> None:
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        with suppress(RefusedError):
            self._admin.call("POST", f"/api/v1/namespaces/{space}/pods/{name}/binding", {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": space},
                "target": {"kind": "Node", "name": NODE},
            })  # fmt: skip
        try:
            self._live(pod)
        except Exception as problem:
            self.problems.append(f"{name}: {type(problem).__name__}: {problem}")

    def _live(self, pod: Any) -> None:
        folder = self._folder / pod["metadata"]["uid"]
        for each in ("causeway", "token", "root"):
            (folder / each).mkdir(parents=True)
        (folder / "token/token").write_text(self._token(pod))
        self._name_pods(folder, pod)
        statuses: dict[str, list[Any]] = {"initContainerStatuses": [], "containerStatuses": []}
        groups = (("initContainerStatuses", "initContainers"), ("containerStatuses", "containers"))
        sidecars: list[subprocess.Popen[bytes]] = []
        code = 0
        for field, kind in groups:
            for container in pod["spec"].get(kind, ()):
                if container.get("restartPolicy") == "Always":
                    sidecars.append(self._sidecar(pod, container, folder))
                elif not code:
                    code = self._container(pod, container, folder, statuses[field], statuses)
        for sidecar in sidecars:
            # Not unshare, which would leave it behind.
            for process in psutil.Process(sidecar.pid).children():
                process.terminate()
        for sidecar in sidecars:
            with suppress(subprocess.TimeoutExpired):
                sidecar.wait(pod["spec"].get("terminationGracePeriodSeconds", 30))
            sidecar.kill()
            sidecar.wait()
        self._patch(pod, {"phase": "Failed" if code else "Succeeded", **statuses})

    def _sidecar(self, pod: Any, container: Any, folder: Path) -> subprocess.Popen[bytes]:
        """Runs beside the others until these have ended."""
        name = container["name"]
        with self._log(pod, name).open("ab") as log:
            return subprocess.Popen(
                self._command(container, folder, within=[]),
                env={**self._environments[name], **self._variables(pod, container)},
                stdout=log, stderr=log,
            )  # fmt: skip

    def _command(self, container: Any, folder: Path, *, within: list[str]) -> list[str]:
        return [
            *within, "unshare", "--mount", "--pid", "--fork", "--kill-child=SIGTERM", "--mount-proc", "--",
            "sh", "-c", _ROOT, "sh", str(folder / "root"), str(folder),
            *container["command"],
        ]  # fmt: skip

    def _container(self, pod: Any, container: Any, folder: Path, own: list[Any], statuses: Any) -> int:
        message = folder / "message"
        message.write_text("")
        name = container["name"]
        within = ["ip", "netns", "exec", self._names] if name == "main" else []
        command = self._command(container, folder, within=within)
        env = {**self._environments[name], **self._variables(pod, container)}
        with self._log(pod, name).open("ab") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self._running[pod["metadata"]["uid"]] = process
            own.append({**_about(container), "state": {"running": {"startedAt": _now()}}, "ready": True})
            if name == "main":
                self._patch(pod, {"phase": "Running", **statuses})
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    log.write(_now(exact=True).encode() + b" " + line)
                    log.flush()
            code = process.wait()
        code = 128 - code if code < 0 else code
        ended = {
            "exitCode": code, "finishedAt": _now(), "reason": "Error" if code else "Completed",
            "message": message.read_text(),
        }  # fmt: skip
        own[-1] = {**_about(container), "state": {"terminated": ended}}
        return code

    def _variables(self, pod: Any, container: Any) -> dict[str, str]:
        found = {}
        for each in container.get("env", ()):
            source = each.get("valueFrom")
            if source is None:
                found[each["name"]] = each.get("value", "")
            elif "fieldRef" in source:
                key = source["fieldRef"]["fieldPath"].split("'")[1]
                found[each["name"]] = pod["metadata"].get("annotations", {}).get(key, "")
            elif "secretKeyRef" in source:
                space, secret = pod["metadata"]["namespace"], source["secretKeyRef"]
                data = self._admin.call("GET", f"/api/v1/namespaces/{space}/secrets/{secret['name']}")["data"]
                found[each["name"]] = base64.b64decode(data[secret["key"]]).decode()
        return found

    def _token(self, pod: Any) -> str:
        for volume in pod["spec"].get("volumes", ()):
            for source in volume.get("projected", {}).get("sources", ()):
                if wanted := source.get("serviceAccountToken"):
                    about = pod["metadata"]
                    owner = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
                    spec = {"audiences": [wanted["audience"]], "boundObjectRef": owner}
                    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
                    account = f"{about['namespace']}/serviceaccounts/{pod['spec']['serviceAccountName']}"
                    return str(
                        self._admin.call("POST", f"/api/v1/namespaces/{account}/token", body)["status"][
                            "token"
                        ]
                    )
        return ""

    def _name_pods(self, folder: Path, pod: Any) -> None:
        """All names of its run, as its service would give them."""
        names = []
        for container in pod["spec"]["containers"]:
            hosts = json.loads(self._variables(pod, container).get("CAUSEWAY_HOSTS", "{}"))
            names += [host.rpartition(":")[0] for of_role in hosts.values() for host in of_role]
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{_ADDRESS} {' '.join(names)}\n")

    def _patch(self, pod: Any, status: Any) -> None:
        """Says how it is; None: it is gone."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        with suppress(RefusedError):
            if status is None:
                self._admin.call("DELETE", path, {"gracePeriodSeconds": 0})
            else:
                self._admin.call(
                    "PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json"
                )

    # -- Logs ---------------------------------------------------------------------------------------------

    def _log(self, pod: Any, container: str) -> Path:
        about = pod["metadata"]
        return self._folder / f"{about['namespace']}_{about['name']}_{container}.log"

    def _serve_logs(self) -> ThreadingHTTPServer:
        folder = self._folder

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, namespace, pod, container = self.path.partition("?")[0].split("/")
                log = folder / f"{namespace}_{pod}_{container}.log"
                if not log.exists():
                    self.send_error(404)
                    return
                lines = log.read_bytes().splitlines(keepends=True)
                self.send_response(200)
                self.end_headers()
                stamped = "timestamps=true" in self.path
                self.wfile.write(b"".join(line if stamped else line.partition(b" ")[2] for line in lines))

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        now = datetime.now(UTC)
        authority = certificates.authority("kubelet", now)
        pair = certificates.server(authority, "kubelet", ["localhost"], now, timedelta(hours=12))
        (folder / "kubelet.crt").write_text(pair.certificate)
        (folder / "kubelet.key").write_text(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM for a container's process 1: unshare, which waits for it, blocks the signal."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGTERM)


def _about(container: Any) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
        "ready": False,
    }


def _now(*, exact: bool = False) -> str:
    now = datetime.now(UTC)
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z" if exact else f"{now:%Y-%m-%dT%H:%M:%SZ}"


def wait(look: Any, seconds: float = 120) -> Any:
    """What ``look`` gives, once it is something."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "nothing to see"
        time.sleep(0.2)
    return found
