"""What would run pods: a stand-in for a kubelet, which runs their containers as processes.

Each container has a root of its own (this machine's, with the pod's volumes in it), init containers run one
after the other before it, and what a process leaves in /dev/termination-log is its message. Images are this
machine's: of what a container has none, the stand-in is told. Pods share a network with an ``eth0``, in which
their names are known. Logs are served as a kubelet serves them, so that the API server can be asked for them.

``test_kubelets.py`` holds it to a real kubelet. What it has not: limits of memory and processors (nothing is
killed for its memory), volumes other than ``emptyDir``, tokens and folders for claims, several containers at
once but for sidecars, capabilities and seccomp, a network of each pod's own. Whoever a container runs as may
read all files of this machine, as its Python may be in root's home.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
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

from kube.api import MERGE, Api, RefusedError
from kube.plane import NAME
from waiting import until

from infra.drive.kubernetes import certificates

NODE = "stand-in"
NOWHERE = "nowhere.invalid/"
"""A registry that has no images."""
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:@-]*")
_TICK = 0.2
_ADDRESS = "10.250.0.1"

_ROOT = r"""
set -eu
root=$1 message=$2 hosts=$3 folder=$4; shift 4
mount -t tmpfs -o mode=755 tmpfs "$root"
for path in /*; do
  case $path in /dev|/run|/proc) mkdir "$root$path" ;;
  *) if [ -L "$path" ]; then cp -P "$path" "$root$path"
     elif [ -d "$path" ]; then mkdir "$root$path"; mount --rbind "$path" "$root$path"; fi ;;
  esac
done
mount --rbind /proc "$root/proc"
for device in null zero random urandom; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
: > "$root/dev/termination-log"
mount --bind "$message" "$root/dev/termination-log"
mount --bind "$hosts" "$root/etc/hosts"
while [ "$1" != -- ]; do
  # A link to /run, which from here is this machine's.
  case $2 in /var/run/*) target=$root${2#/var} ;; *) target=$root$2 ;; esac
  mkdir -p "$target"
  case $1 in
    /*) mount --bind "$1" "$target" ;;
    *) mount -t tmpfs -o "mode=1777,size=$1" tmpfs "$target" ;;
  esac
  shift 2
done
shift
exec /usr/sbin/chroot "$root" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


def can_run() -> str:
    """Why it can't run here; empty where it can."""
    return "" if os.geteuid() == 0 else "only root may give a process a root of its own"


class StandIn:
    """A node, or several, and the pods on them."""

    def __init__(
        self,
        admin: Api,
        folder: Path,
        environments: Mapping[str, Mapping[str, str]],
        *,
        schedules: bool = True,
    ) -> None:
        """``environments``: container → what its image would have in its environment. ``schedules``: pods
        that are on no node yet are its own."""
        self._admin = admin
        self._folder = folder
        self._environments = environments
        self._schedules = schedules
        self.node = NODE
        """Where pods come that are on no node yet."""
        self._nodes: set[str] = set()
        self._port = 0
        self._seen: set[str] = set()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._living: set[str] = set()
        """Pods of which some container runs, or will."""
        self._asked: dict[str, float] = {}
        """Pods that were asked to end: uid → when they are killed."""
        self._killed: set[str] = set()
        self._stopping = threading.Event()
        self._names = f"causeway-{secrets.token_hex(4)}"
        self.problems: list[str] = []
        self.claims: dict[str, Path] = {}
        """Claim → the folder that it is of."""

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
            self._port = logs.server_address[1]
            self.register(NODE, {})
            thread = threading.Thread(target=self._run, daemon=True)
            thread.start()
            stack.callback(self._end, thread)
            yield self

    def _end(self, thread: threading.Thread) -> None:
        self._stopping.set()
        thread.join(30)
        for process in self._running.values():
            process.kill()

    def register(self, name: str, labels: Mapping[str, str]) -> None:
        """A node."""
        about = {"name": name, "labels": dict(labels)}
        self._admin.create({"apiVersion": "v1", "kind": "Node", "metadata": about})
        self._nodes.add(name)
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        self._admin.status(f"/api/v1/nodes/{name}", status)

    # -- Pods ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(_TICK):
            try:
                for pod in self._admin.call("GET", "/api/v1/pods")["items"]:
                    if self._is_ours(pod):
                        self._look_at(pod)
            except RefusedError:
                continue
            except Exception as problem:
                self.problems.append(f"{type(problem).__name__}: {problem}")

    def _is_ours(self, pod: Any) -> bool:
        on = pod["spec"].get("nodeName")
        return bool(on in self._nodes if on else self._schedules)

    def _look_at(self, pod: Any) -> None:
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            process = self._running.get(uid)
            if uid not in self._living:
                self._patch(pod, None)
            elif process is None or process.poll() is not None:
                pass  # before or after its containers, or beside its sidecars
            elif uid not in self._asked:
                grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
                self._asked[uid] = time.monotonic() + grace
                _signal(process, signal.SIGTERM)
            elif time.monotonic() > self._asked[uid]:
                self._killed.add(uid)
                _signal(process, signal.SIGKILL)
        elif uid not in self._seen:
            self._seen.add(uid)
            self._living.add(uid)
            threading.Thread(target=self._life, args=(pod,), daemon=True).start()

    def _life(self, pod: Any) -> None:
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if not pod["spec"].get("nodeName"):
            path, node = f"/api/v1/namespaces/{space}/pods/{name}", self.node
            with suppress(RefusedError):
                self._admin.call("POST", f"{path}/binding", {
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": space},
                    "target": {"kind": "Node", "name": node},
                })  # fmt: skip
                pod = self._admin.call("GET", path)  # with labels of its node
            pod["spec"]["nodeName"] = node  # as who looks now would see it
        try:
            self._live(pod)
        except Exception as problem:
            self.problems.append(f"{name}: {type(problem).__name__}: {problem}")
        finally:
            self._living.discard(pod["metadata"]["uid"])

    def _live(self, pod: Any) -> None:
        folder = self._folder / pod["metadata"]["uid"]
        (folder / "root").mkdir(parents=True)
        volumes = self._volumes(pod, folder)
        self._name_pods(folder, pod)
        statuses: dict[str, list[Any]] = {"initContainerStatuses": [], "containerStatuses": []}
        groups = (("initContainerStatuses", "initContainers"), ("containerStatuses", "containers"))
        sidecars: list[tuple[subprocess.Popen[bytes], dict[str, Any]]] = []
        code = 0
        for field, kind in groups:
            for container in pod["spec"].get(kind, ()):
                if code:
                    waiting = {"waiting": {"reason": "PodInitializing"}}
                    statuses[field].append({**_about(container), "state": waiting})
                elif container.get("restartPolicy") == "Always":
                    sidecars.append((self._sidecar(pod, container, folder, volumes), _about(container)))
                    statuses[field].append(sidecars[-1][1])
                else:
                    code = self._container(pod, container, folder, volumes, statuses[field], statuses)
        for process, _ in sidecars:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + pod["spec"].get("terminationGracePeriodSeconds", 30)
        for process, status in sidecars:
            try:
                ended = process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
                ended = 137
            message = (folder / f"message-{status['name']}").read_text()
            status["state"] = {"terminated": _ending(ended, message)}
        self._patch(pod, {"phase": "Failed" if code else "Succeeded", **statuses})

    def _sidecar(
        self, pod: Any, container: Any, folder: Path, volumes: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Runs beside the others until these have ended."""
        command, env = self._prepared(pod, container, folder, volumes)
        with self._log(pod, container["name"]).open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def _container(
        self,
        pod: Any,
        container: Any,
        folder: Path,
        volumes: Mapping[str, str],
        own: list[Any],
        statuses: Any,
    ) -> int:
        name = container["name"]
        if self._never_starts(pod, container, own, statuses):
            return 137
        command, env = self._prepared(pod, container, folder, volumes)
        with self._log(pod, name).open("ab") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self._running[pod["metadata"]["uid"]] = process
            own.append({**_about(container), "state": {"running": {"startedAt": _now()}}, "ready": True})
            if own is statuses["containerStatuses"]:
                self._patch(pod, {"phase": "Running", **statuses})
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    log.write(_now(exact=True).encode() + b" " + line)
                    log.flush()
            code = process.wait()
        code = 128 - code if code < 0 else code
        # unshare ends as process 1 did, but for SIGKILL, which util-linux 2.38 ends with 1 for.
        code = 137 if pod["metadata"]["uid"] in self._killed else code
        ended = _ending(code, (folder / f"message-{name}").read_text())
        own[-1] = {**_about(container), "state": {"terminated": ended}}
        return code

    def _never_starts(self, pod: Any, container: Any, own: list[Any], statuses: Any) -> bool:
        """Waits for what a container lacks, and says so, as a kubelet does, until the pod is deleted."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        while lacking := self._lacking(pod, container):
            waiting = {**_about(container), "state": {"waiting": lacking}, "ready": False}
            own[:] = [*(each for each in own if each["name"] != container["name"]), waiting]
            self._patch(pod, {"phase": "Pending", **statuses})
            time.sleep(1)
            try:
                if self._admin.call("GET", path)["metadata"].get("deletionTimestamp"):
                    return True
            except RefusedError:
                return True
        own[:] = [each for each in own if each["name"] != container["name"]]
        return False

    def _lacking(self, pod: Any, container: Any) -> dict[str, str]:
        """``state.waiting``; empty where it lacks nothing. Images are all here but those of ``nowhere``."""
        image = container["image"]
        if not _IMAGE.fullmatch(image):
            return {"reason": "InvalidImageName", "message": f'Failed to apply default image tag "{image}"'}
        if image.startswith(NOWHERE):
            said = f'failed to resolve reference "{image}": {image}: not found'
            return {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": {said}'}
        space = pod["metadata"]["namespace"]
        for variable in container.get("env", ()):
            if wanted := variable.get("valueFrom", {}).get("secretKeyRef"):
                reason = {"reason": "CreateContainerConfigError"}
                try:
                    path = f"/api/v1/namespaces/{space}/secrets/{wanted['name']}"
                    data = self._admin.call("GET", path).get("data", {})
                except RefusedError:
                    return {**reason, "message": f'secret "{wanted["name"]}" not found'}
                if wanted["key"] not in data:
                    where = f"{space}/{wanted['name']}"
                    return {**reason, "message": f"couldn't find key {wanted['key']} in Secret {where}"}
        return {}

    def _prepared(
        self, pod: Any, container: Any, folder: Path, volumes: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command that starts a container, and its environment."""
        name = container["name"]
        message = folder / f"message-{name}"
        message.write_text("")
        message.chmod(0o666)
        within = ["ip", "netns", "exec", self._names] if name == "main" else []
        mounts = [
            word
            for each in container.get("volumeMounts", ())
            if each["name"] in volumes
            for word in (str(Path(volumes[each["name"]], each.get("subPath", ""))), each["mountPath"])
        ]
        variables = self._variables(pod, container)
        command = [
            *within, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
            "sh", "-c", _ROOT, "sh", str(folder / "root"), str(message), str(folder / "hosts"),
            container.get("workingDir", "/"), *mounts, "--",
            *_as_user(pod["spec"].get("securityContext", {})),
            *(_expanded(word, variables) for word in container["command"]),
        ]  # fmt: skip
        return command, {**self._environments[name], **variables}

    def _variables(self, pod: Any, container: Any) -> dict[str, str]:
        values: dict[str, str] = {}
        for variable in container.get("env", ()):
            name, source = variable["name"], variable.get("valueFrom")
            if source is None:
                values[name] = _expanded(variable.get("value", ""), values)
            elif "fieldRef" in source:
                values[name] = _field(pod, source["fieldRef"]["fieldPath"])
            elif "secretKeyRef" in source:
                space, secret = pod["metadata"]["namespace"], source["secretKeyRef"]
                data = self._admin.call("GET", f"/api/v1/namespaces/{space}/secrets/{secret['name']}")["data"]
                values[name] = base64.b64decode(data[secret["key"]]).decode()
        return values

    def _volumes(self, pod: Any, folder: Path) -> dict[str, str]:
        """Name → its folder; for one in memory its size in bytes. Claims without a folder are left out."""
        folders: dict[str, str] = {}
        for volume in pod["spec"].get("volumes", ()):
            place = folder / "volumes" / volume["name"]
            empty = volume.get("emptyDir")
            if empty is not None and empty.get("medium") == "Memory":
                folders[volume["name"]] = _bytes(empty.get("sizeLimit", "1Gi"))
            elif (claim := volume.get("persistentVolumeClaim", {}).get("claimName")) in self.claims:
                folders[volume["name"]] = str(self.claims[claim])
            elif empty is not None or "projected" in volume:
                place.mkdir(parents=True)
                place.chmod(0o777)
                folders[volume["name"]] = str(place)
            for source in volume.get("projected", {}).get("sources", ()):
                if config := source.get("configMap"):
                    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{config['name']}"
                    data = self._admin.call("GET", path)["data"]
                    for item in config["items"]:
                        (place / item["path"]).write_text(data[item["key"]])
                if token := source.get("serviceAccountToken"):
                    (place / token["path"]).write_text(self._token(pod, token.get("audience")))
        return folders

    def _token(self, pod: Any, audience: str | None) -> str:
        about = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
        spec = {"audiences": [audience] if audience else [], "boundObjectRef": owner}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = f"{about['namespace']}/serviceaccounts/{pod['spec']['serviceAccountName']}"
        made = self._admin.call("POST", f"/api/v1/namespaces/{account}/token", body)
        return str(made["status"]["token"])

    def _name_pods(self, folder: Path, pod: Any) -> None:
        """All names of its run, as its service would give them."""
        names = []
        for container in pod["spec"]["containers"]:
            written = {each["name"]: each.get("value", "") for each in container.get("env", ())}
            hosts = json.loads(_expanded(written.get("CAUSEWAY_HOSTS", "{}"), {}))
            names += [host.rpartition(":")[0] for of_role in hosts.values() for host in of_role]
        own = f"127.0.0.1 localhost {NAME}"
        (folder / "hosts").write_text(f"{own}\n{_ADDRESS} {' '.join(names)}\n")

    def _patch(self, pod: Any, status: Any) -> None:
        """Says how it is; None: it is gone."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        with suppress(RefusedError):
            if status is None:
                self._admin.call("DELETE", path, {"gracePeriodSeconds": 0})
            else:
                self._admin.call("PATCH", f"{path}/status", {"status": status}, MERGE)

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


def _ending(code: int, message: str) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return {"exitCode": code, "finishedAt": _now(), "reason": reason, "message": message}


def _about(container: Any) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": _digested(container["image"]),
        "restartCount": 0,
        "ready": False,
    }


def _digested(image: str) -> str:
    """A digest for an image that is in no registry."""
    name, _, digest = image.partition("@sha256:")
    return f"{name.partition(':')[0]}@sha256:{digest or hashlib.sha256(image.encode()).hexdigest()}"


def _as_user(context: Mapping[str, Any]) -> list[str]:
    """The command that becomes a pod's user."""
    if "runAsUser" not in context:
        return []
    user, group = context["runAsUser"], context.get("runAsGroup", 0)
    groups = ",".join(map(str, context.get("supplementalGroups") or [group]))
    return [
        "setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={groups}",
        "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search",
        # Only who was started with the right may look for a program with it.
        "sh", "-c", 'exec "$@"', "sh",
    ]  # fmt: skip


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To process 1 of a container, which is the child of ``unshare``. The rest ends with it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            os.kill(int(child), number)


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` is a variable's value, ``$$`` is ``$``, and all else is what it is (Kubernetes, API
    reference, Container)."""

    def value(reference: re.Match[str]) -> str:
        return "$" if reference[0] == "$$" else variables.get(reference[1], reference[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def _field(pod: Any, path: str) -> str:
    if "'" in path:
        kind = path.partition(".")[2].partition("[")[0]
        return str(pod["metadata"].get(kind, {}).get(path.split("'")[1], ""))
    value = pod
    for part in path.split("."):
        value = value[part]
    return str(value)


def _bytes(quantity: str) -> str:
    for unit, factor in (("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)):
        if quantity.endswith(unit):
            return str(int(quantity.removesuffix(unit)) * factor)
    return quantity


def _now(*, exact: bool = False) -> str:
    now = datetime.now(UTC)
    return f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z" if exact else f"{now:%Y-%m-%dT%H:%M:%SZ}"


def wait(look: Any, seconds: float = 120) -> Any:
    """What ``look`` gives, once it is something."""
    return until(look, seconds=seconds, every=0.2)
