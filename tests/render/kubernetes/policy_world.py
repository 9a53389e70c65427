"""A real API server, and a scheduler where there is one, that know a cluster's classes, rules and people.

Nodes are what a test says they are, and nobody runs what the scheduler places.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from drive.kubernetes.apiserver import NAME, Server, running
from kube_tools import find
from stores import cluster_keys

from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.secrets import Keys
from infra.model import NO_OUTPUTS, Cluster
from infra.render.kubernetes import access, namespaces, scheduling

CARDS = "nvidia.com/gpu"
_PATIENCE = 120
_BUSY = (429, 503, 504)
"""What the server answers that asks to come again later: on a machine with other work it may be slow."""


class RefusedError(Exception):
    """The API server's own words, after the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        named = re.search(r"ValidatingAdmissionPolicy '([^']+)'", message)
        self.policy = named[1] if named else ""
        """The name of the admission policy that refused; empty where none did."""


class Api:
    """Somebody's calls."""

    def __init__(self, server: Server, keys: Keys, folder: Path, name: str, *groups: str) -> None:
        pair = certificates.client(keys.ca, name, groups, datetime.now(UTC), timedelta(hours=1))
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        self.certificate.write_text(pair.certificate)
        self.key.write_text(pair.key)
        context = ssl.create_default_context(cadata=keys.ca.certificate)
        context.check_hostname = False  # It is asked by its address, and its name is another.
        context.load_cert_chain(self.certificate, self.key)
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        self._address = server.address

    def call(self, method: str, path: str, body: object = None, form: str = "application/json") -> Any:
        """An answer; RefusedError."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            f"https://{self._address}{path}", data, {"Content-Type": form}, method=method
        )
        ends = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._opener.open(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refusal:
                said = json.load(refusal)
                if said["code"] not in _BUSY or time.monotonic() > ends:
                    raise RefusedError(said["code"], said["message"]) from None
            time.sleep(0.5)

    def text(self, path: str) -> str:
        """A pod's log, and what else is no JSON. Empty where there is nothing, or not yet."""
        request = urllib.request.Request(f"https://{self._address}{path}")
        try:
            with self._opener.open(request, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError:
            return ""

    def apply(self, each: dict[str, Any]) -> Any:
        """As kubectl does on the server's side; unknown fields are refused."""
        query = "?fieldManager=causeway&force=true&fieldValidation=Strict"
        path = f"{collection(each)}/{each['metadata']['name']}{query}"
        return self.call("PATCH", path, each, "application/apply-patch+yaml")

    def create(self, each: dict[str, Any], *, dry: bool = False) -> Any:
        return self.call("POST", collection(each) + ("?dryRun=All" if dry else ""), each)

    def delete(self, each: dict[str, Any]) -> None:
        self.call("DELETE", f"{collection(each)}/{each['metadata']['name']}", {"gracePeriodSeconds": 0})

    def placed(self, each: dict[str, Any]) -> str | None:
        """The node that the scheduler chose; None once it says that there is none."""

        def look() -> str | None:
            pod = self.call("GET", f"{collection(each)}/{each['metadata']['name']}")
            if node := pod["spec"].get("nodeName"):
                return str(node)
            conditions = {it["type"]: it for it in pod.get("status", {}).get("conditions", [])}
            scheduled = conditions.get("PodScheduled", {})
            return "" if scheduled.get("reason") == "Unschedulable" else None

        return until(look) or None


def collection(each: dict[str, Any]) -> str:
    """The path of an object's siblings."""
    version = each["apiVersion"]
    kinds = each["kind"].lower()
    plural = f"{kinds[:-1]}ies" if kinds.endswith("y") else f"{kinds}{'es' if kinds[-1] == 's' else 's'}"
    namespace = each["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{'/api/v1' if version == 'v1' else f'/apis/{version}'}{within}/{plural}"


def until(look: Callable[[], str | None]) -> str:
    """What ``look`` returns, as soon as it is not None; fails if that takes too long."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        answer = look()
        if answer is not None:
            return answer
        time.sleep(0.1)
    raise AssertionError("nothing came of it")


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> RefusedError | None:
    """How the API server refuses a call; None where it takes it."""
    try:
        call(*arguments, **options)
    except RefusedError as error:
        return error
    return None


class World:
    """The server, and who may come to it."""

    def __init__(self, server: Server, keys: Keys, folder: Path) -> None:
        self._parts = (server, keys, folder)
        self.admin = self.somebody("kubernetes-admin", "system:masters")

    def somebody(self, name: str, *groups: str) -> Api:
        return Api(*self._parts, name, *groups)


@contextmanager
def world(cluster: Cluster, folder: Path) -> Iterator[World]:
    """With everything applied; skips where there is no API server."""
    keys = cluster_keys(folder)
    with running(folder, keys) as server:
        here = World(server, keys, folder)
        for module in (namespaces, scheduling, access):
            for documents in module.objects(cluster, NO_OUTPUTS).values():
                for each in documents:
                    until(partial(applied, here.admin, each))
                    if each["kind"] == "ResourceQuota":
                        _counted(here.admin, each)
        in_force(here)
        yield here


def in_force(here: World) -> None:
    """Waits until the API server has heard of the rules: it watches them like everybody else."""
    for name in ("jobs", "pods"):
        until(partial(_in_force, here.admin, name))


def _in_force(admin: Api, name: str) -> str | None:
    form = job if name == "jobs" else dict
    try:
        made = admin.create(form(pod("x", "user-ada", cards=1, of="low")), dry=True)
    except RefusedError:
        return None
    past_the_scheduler = form(pod("x", "user-ada", nodeName="x"))
    is_in_force = "affinity" in inside(made) and refused(admin.create, past_the_scheduler, dry=True)
    return "" if is_in_force else None


def _counted(admin: Api, quota: dict[str, Any]) -> None:
    """What the controller of quotas, which is not there, says of an empty namespace."""
    hard = quota["spec"]["hard"]
    status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    path = f"{collection(quota)}/{quota['metadata']['name']}/status"
    admin.call("PATCH", path, status, "application/merge-patch+json")


def applied(admin: Api, each: dict[str, Any]) -> str | None:
    """None where it has to be tried again: a kind, and its admission, need a moment after they begin."""
    error = refused(admin.apply, each)
    if error and "not yet ready" not in str(error) and "could not find" not in str(error):
        raise error
    return None if error else ""


@contextmanager
def scheduler(here: World, folder: Path) -> Iterator[None]:
    """The scheduler itself; the caller knows that there is one."""
    program = find("kube-scheduler")
    assert program is not None
    server, keys, _ = here._parts
    way = here.somebody("system:kube-scheduler")
    (folder / "ca.crt").write_text(keys.ca.certificate)
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": f"https://{server.address}", "certificate-authority": str(folder / "ca.crt"),
            "tls-server-name": NAME,
        }}],
        "users": [{"name": "it", "user": {
            "client-certificate": str(way.certificate), "client-key": str(way.key),
        }}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }  # fmt: skip
    path = folder / "scheduler.conf"
    path.write_text(json.dumps(config))
    words = [
        program, "--leader-elect=false", "--secure-port=0",
        *(f"--{use}kubeconfig={path}" for use in ("", "authentication-", "authorization-")),
    ]  # fmt: skip
    with (folder / "kube-scheduler.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    try:
        yield
    finally:
        process.kill()
        process.wait()


# -- What is in it ------------------------------------------------------------------------------------------


def node(name: str, labels: dict[str, str], *, cards: int = 0, taint: str = "") -> dict[str, Any]:
    """A node of eight processors that is ready."""
    amount = {"cpu": "8", "memory": "64Gi", "pods": "110", **({CARDS: str(cards)} if cards else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []},
        "status": {
            "allocatable": amount,
            "capacity": amount,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def add(admin: Api, each: dict[str, Any]) -> None:
    """A node as its kubelet would bring it; admission has it wait for its network, which is there."""
    admin.create(each)
    path = f"/api/v1/nodes/{each['metadata']['name']}"
    admin.call("PATCH", path, {"spec": {"taints": each["spec"]["taints"]}}, "application/merge-patch+json")
    status = {"status": each["status"]}
    admin.call("PATCH", f"{path}/status", status, "application/merge-patch+json")


def pod(name: str, namespace: str, *, cards: int = 0, of: str = "", **spec: Any) -> dict[str, Any]:
    """Work of class ``of`` that asks for one processor, and for cards."""
    limits = {CARDS: str(cards)} if cards else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}, "limits": limits}}
    chosen = {"priorityClassName": of} if of else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **chosen, **spec},
    }


def job(of: dict[str, Any]) -> dict[str, Any]:
    """The same work as a job."""
    template = {"spec": {**of["spec"], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": of["metadata"],
        "spec": {"template": template},
    }


def inside(each: dict[str, Any]) -> dict[str, Any]:
    """The pod's specification, of a pod or a job."""
    spec: dict[str, Any] = each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
    return spec
