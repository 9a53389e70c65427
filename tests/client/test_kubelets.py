"""The same pods on the stand-in for a kubelet (``pods.py``) and on a real one; on that one, a run's life.

One VM with a kubelet, containerd and runc (``real_node.py``) serves all of this file. Without KVM a pod costs
it some seconds of a processor, and a run's pod some twenty: so there are few, and each shows several things.
Nothing waits for a number of seconds that a busy machine could miss.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import termios
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml
from autoscaler.kube.clusters import fresh
from client.jobset_world import World, person, worlds
from client.pods import NODE, NOWHERE, can_run, wait
from client.process import Causeway, program
from client.terminals import Terminal
from kube_tools import kubectl
from ports import reserved

from causeway.cluster.blocked import blocked
from causeway.commands.shell import WAITS
from causeway.runtime import NEVER_WORKS, OUT_OF_MEMORY
from client import real_node
from infra.render.kubernetes import addon_objects
from infra.render.kubernetes.charts.monitoring import GRAFANA_POD
from infra.render.kubernetes.charts.monitoring import NAMESPACE as MONITORING

pytestmark = [pytest.mark.timeout(1800), pytest.mark.skipif(bool(can_run()), reason=can_run())]

_PATIENCE = 600
"""Seconds; the emulated processors may get few of the machine's."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    real = not real_node.missing()
    with worlds(tmp_path_factory.mktemp("kubelets"), kubelet=real, queues=real) as world:
        if world.node is not None:
            world.node.sh("mkdir -m 700 /home/ada && chown 10001:10001 /home/ada")
        world.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pods"}})
        account = {"name": "work", "namespace": "pods"}
        world.admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        yield world
        assert world.pods.problems == []


# -- The same pods on both ---------------------------------------------------------------------------------


class Pods:
    """Pods of one container, ``main``, on one of the two nodes."""

    def __init__(self, world: World, node: str) -> None:
        self._admin = world.admin
        assert world.spec.research is not None
        self.image = world.spec.research.images[0].image
        self._node = node

    def start(
        self, script: str, *, first: str = "", main: Mapping[str, Any] | None = None, **spec: Any
    ) -> str:
        """Its name. ``first``: of an init container; ``main``: more fields of the container."""
        name = fresh("pod")

        def container(of: str, text: str, **more: Any) -> dict[str, Any]:
            shared = [{"name": "causeway", "mountPath": "/causeway"}]
            command = ["sh", "-c", textwrap.dedent(text)]
            made = {"name": of, "image": self.image, "command": command, "volumeMounts": shared}
            return {**made, **more, "volumeMounts": [*shared, *more.get("volumeMounts", ())]}

        self._admin.create({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "pods", "annotations": {"causeway.dev/try": "7"}},
            "spec": {
                "nodeName": self._node,
                "restartPolicy": "Never",
                "serviceAccountName": "work",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 30,
                **({"initContainers": [container("code", first)]} if first else {}),
                "containers": [container("main", script, **(main or {}))],
                **spec,
                "volumes": [{"name": "causeway", "emptyDir": {}}, *spec.get("volumes", ())],
            },
        })  # fmt: skip
        return name

    def get(self, name: str) -> Any:
        return self._admin.call("GET", f"/api/v1/namespaces/pods/pods/{name}")

    def ended(self, name: str) -> Any:
        """The pod, once it has ended."""
        return wait(
            lambda: (pod := self.get(name))["status"].get("phase") in ("Succeeded", "Failed") and pod,
            _PATIENCE,
        )

    def run(self, script: str, **more: Any) -> Any:
        return self.ended(self.start(script, **more))

    def change(self, name: str, **metadata: Any) -> None:
        path, body = f"/api/v1/namespaces/pods/pods/{name}", {"metadata": metadata}
        self._admin.call("PATCH", path, body, "application/merge-patch+json")

    def log(self, name: str) -> str:
        """Through the API server, as ``causeway logs`` has it."""
        return str(self._admin.text(f"/api/v1/namespaces/pods/pods/{name}/log"))

    def delete(self, name: str, grace: int) -> None:
        self._admin.call("DELETE", f"/api/v1/namespaces/pods/pods/{name}", {"gracePeriodSeconds": grace})


def terminated(pod: Any, kind: str = "containerStatuses") -> Any:
    return pod["status"][kind][0]["state"]["terminated"]


@pytest.fixture(params=[NODE, real_node.NODE], ids=["stand-in", "kubelet"])
def pods(world: World, request: pytest.FixtureRequest) -> Pods:
    if request.param == real_node.NODE and (lacking := real_node.missing()):
        pytest.skip(lacking)
    return Pods(world, request.param)


def test_what_a_container_finds_and_how_it_ends(pods: Pods) -> None:
    token = {"audience": "sts.amazonaws.com", "path": "token", "expirationSeconds": 600}
    annotation = "metadata.annotations['causeway.dev/try']"
    pod = pods.run(
        """
        {
            pwd; echo "$PLAIN $TRY $NAME $(id -u):$(id -g)"; cat /causeway/first
            test -s /run/secrets/causeway/token && echo token
            df -m /dev/shm | awk 'END { print $2 }'
        } | tr '\\n' ' ' > /dev/termination-log
        exit 3
        """,
        first="echo from-init > /causeway/first",
        main={
            "workingDir": "/causeway",
            "env": [
                {"name": "PLAIN", "value": "plain"},
                {"name": "TRY", "valueFrom": {"fieldRef": {"fieldPath": annotation}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "volumeMounts": [
                {"name": "token", "mountPath": "/run/secrets/causeway", "readOnly": True},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        },
        volumes=[
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
        securityContext={"runAsUser": 10001, "runAsGroup": 10002, "supplementalGroups": [10003]},
    )
    name = pod["metadata"]["name"]
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["message"] == f"/causeway plain 7 {name} 10001:10002 from-init token 16 "
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (3, "Error")
    assert terminated(pod, "initContainerStatuses")["reason"] == "Completed"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_after_an_init_container_that_fails_nothing_starts(pods: Pods) -> None:
    pod = pods.run("true", first="echo why > /dev/termination-log; exit 78")
    ended = terminated(pod, "initContainerStatuses")
    assert (pod["status"]["phase"], ended["exitCode"], ended["message"]) == ("Failed", 78, "why\n")
    assert "terminated" not in pod["status"]["containerStatuses"][0]["state"]


_KEY = {"secretKeyRef": {"name": "given", "key": "KEY"}}


def test_what_keeps_a_container_from_starting_is_named_until_it_is_there(world: World, pods: Pods) -> None:
    """The kubelet's own words, of which ``causeway.cluster.blocked`` makes a person's."""
    secrets, space = "/api/v1/namespaces/pods/secrets", {"name": "given", "namespace": "pods"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": space, "stringData": {"OTHER": "x"}}
    image = f"{NOWHERE}none:1"
    waits = pods.start("true", main={"env": [{"name": "KEY", "valueFrom": _KEY}]})
    others = [pods.start("true", main={"image": each}) for each in (image, "No Image")]

    def why(name: str) -> Any:
        return blocked(pods.get(name))

    try:
        found = wait(lambda: why(waits), _PATIENCE)
        assert (found.reason, found.lasts) == ("CreateContainerConfigError", True)
        assert "Secret given" in str(found)
        assert "--from-literal=KEY=" in found.fix
        pulled, named = (wait(partial(why, each), _PATIENCE) for each in others)
        assert pulled.reason in ("ErrImagePull", "ImagePullBackOff")
        assert image in pulled.what
        assert (named.reason, named.lasts) == ("InvalidImageName", True)
        world.admin.create(secret)
        wait(lambda: " KEY" in str(why(waits)), _PATIENCE)
        world.admin.call(
            "PATCH", f"{secrets}/given", {"stringData": {"KEY": "x"}}, "application/merge-patch+json"
        )
        assert pods.ended(waits)["status"]["phase"] == "Succeeded"
        assert why(waits) is None
    finally:
        for each in others:
            pods.delete(each, 0)
        world.admin.call("DELETE", f"{secrets}/given")


_SAVES = """
    trap 'echo saved > /dev/termination-log; exit 75' TERM
    echo begun
    while :; do sleep 0.2; done
"""
_STAYS = "trap '' TERM; echo begun; while :; do sleep 0.2; done"


@pytest.mark.parametrize(("script", "grace", "code"), [(_SAVES, 60, 75), (_STAYS, 2, 137)])
def test_a_stop_is_sigterm_and_after_the_grace_sigkill(
    pods: Pods, script: str, grace: int, code: int
) -> None:
    name = pods.start(script, terminationGracePeriodSeconds=grace)
    # So that the pod can be looked at once it has ended, as a Job's can (batch.kubernetes.io/job-tracking).
    pods.change(name, finalizers=["causeway.dev/test"])
    wait(lambda: pods.get(name)["status"].get("phase") == "Running", _PATIENCE)
    wait(lambda: "begun" in pods.log(name), _PATIENCE)
    pods.delete(name, grace)
    pod = pods.ended(name)
    pods.change(name, finalizers=None)
    assert terminated(pod)["exitCode"] == code
    assert terminated(pod).get("message", "") == ("saved\n" if code == 75 else "")


def test_a_sidecar_is_asked_to_end_after_the_container_and_may_finish(pods: Pods) -> None:
    """A container that a signal ends: its code is 128 and the signal's number."""
    side = """
        trap 'test -e /causeway/over && echo after > /dev/termination-log; exit 0' TERM
        : > /causeway/up
        while :; do sleep 0.2; done
    """
    image = pods.image
    shared = [{"name": "causeway", "mountPath": "/causeway"}]
    sidecar = {
        "name": "keep", "image": image, "restartPolicy": "Always", "volumeMounts": shared,
        "command": ["sh", "-c", textwrap.dedent(side)],
    }  # fmt: skip
    # The kubelet makes one of two dollar signs.
    pod = pods.run(
        "until [ -e /causeway/up ]; do sleep 0.1; done; : > /causeway/over; sh -c 'kill -SEGV $$$$'; exit $?",
        initContainers=[sidecar],
    )
    assert (pod["status"]["phase"], terminated(pod)["exitCode"]) == ("Failed", 139)
    ended = terminated(pod, "initContainerStatuses")
    assert (ended["exitCode"], ended["message"]) == (0, "after\n")


# -- A run's life on the real one --------------------------------------------------------------------------

_JOB = {
    "run": "python3 train.py", "gpus": 0, "cpus": 0.1, "memory": "200 MiB", "launcher": "none",
    # The VM has homes, and no other path of the machines.
    "mounts": {"data": False, "results": False},
}  # fmt: skip


@pytest.fixture
def real(world: World) -> None:
    """Skips where there is no real kubelet."""
    if lacking := real_node.missing():
        pytest.skip(lacking)


def job(folder: Path, text: str, **fields: Any) -> None:
    program(folder, text)
    (folder / "job.yaml").write_text(yaml.safe_dump({**_JOB, **fields}))


# Looked at here, as the client takes a second of a processor to start: what is waited for is asked often.


def jobset(world: World, name: str) -> Any:
    """The state of a run of Ada's."""
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/user-ada/jobsets/{name}"
    return {"restarts": 0, **world.admin.call("GET", path).get("status", {})}


def pods_of(world: World, name: str, phase: str = "") -> list[str]:
    """Those in a phase, or all."""
    path = f"/api/v1/namespaces/user-ada/pods?labelSelector=causeway.dev/run={name}"
    found = world.admin.call("GET", path)["items"]
    return [each["metadata"]["name"] for each in found if phase in ("", each["status"].get("phase"))]


def output(world: World, name: str) -> str:
    """What the programs of its pods have written."""
    logs = (f"/api/v1/namespaces/user-ada/pods/{pod}/log?container=main" for pod in pods_of(world, name))
    return "".join(map(world.admin.text, logs))


_TRAINS = """
    import os, pathlib, signal, socket, sys, time
    from model.layer_199 import SIZE

    rank, attempt = int(os.environ["RANK"]), os.environ["CAUSEWAY_ATTEMPT"]
    saved = pathlib.Path(os.environ["CAUSEWAY_RESULTS"], "saved")
    print("begun", SIZE, os.environ["RAW"], os.getuid(), flush=True)
    if saved.exists():
        print("resumes", saved.read_text(), flush=True)
        sys.exit(0)

    def save(*_):
        saved.write_text(f"step-{rank}")
        sys.exit(0)

    if attempt != "0":
        signal.signal(signal.SIGTERM, save)
    first = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(("", first[1])) as server:
            print("heard", server.accept()[0].recv(5).decode(), flush=True)
    else:
        while True:
            try:
                with socket.create_connection(first, 5) as line:
                    line.sendall(b"hello")
                break
            except OSError:
                time.sleep(1)
        if attempt == "0":
            raise ValueError("diverged")
    print("trains", flush=True)
    time.sleep(36000)
"""


@pytest.mark.usefixtures("real")
def test_a_run_from_its_folder_to_its_end(ada: Causeway, world: World, folder: Path) -> None:
    """Two nodes; the second fails and is named; the run starts again, is stopped, the code is edited, and the
    run goes on with what was submitted. The rendezvous is the runtime's: torchrun's, which is too slow on
    emulated processors, is in ``test_run_in_cluster.py``.
    """
    (folder / "model").mkdir()
    for number in range(200):
        (folder / f"model/layer_{number}.py").write_text(f"SIZE = {number}\n")
    run = 'test "$$" -gt 0; echo "home $(basename $HOME)"\npython3 train.py'
    job(folder, _TRAINS, name="story", nodes=2, restarts=1, run=run, env={"RAW": "a$$b$(HOME)"}, grace="5m")
    submitted = ada("run", "job.yaml", "-d", "--json")
    assert submitted.code == 0, submitted.err
    name = submitted.json["run"]

    wait(lambda: jobset(world, name)["restarts"] == 1, _PATIENCE)
    wait(lambda: len(pods_of(world, name, "Running")) == 2, _PATIENCE)
    wait(lambda: output(world, name).count("trains") == 2, _PATIENCE)
    found = ada("why", name, "--json").json
    first = found["first_failure"]
    assert (first["rank"], first["attempt"], first["lines"][-1]) == (1, 0, "ValueError: diverged")
    assert "worker-1" in ada("why", name).out
    assert {each["node"] for each in found["workers"]} == {real_node.NODE}
    said = ada("logs", name).out
    for line in ("worker-0 │ heard hello", "worker-1 │ begun 199 a$$b$(HOME) 10001", "worker-1 │ home ada"):
        assert line in said

    beside = ada("shell", name, "--", "sh", "-c", "echo $CAUSEWAY_RUN $(pwd); echo why >&2; exit 4")
    assert (beside.code, beside.out, beside.err) == (4, f"{name} /causeway/code\n", "why\n")
    other = ada("shell", name, "--worker", "worker-1", "--", "printenv", "RANK")
    assert (other.code, other.out) == (0, "1\n")
    ended = ada("shell", name, "--json", "--", "sh", "-c", "echo told; exit 4")
    assert (ended.code, ended.json["exit"], ended.json["worker"], ended.err) == (4, 4, "worker-0", "told\n")
    assert ada("shell", name, "--worker", "worker-7", "--", "true").code == 2
    assert ada("shell", name).code == 2, "there is no terminal"

    assert ada("stop", name).code == 0
    wait(lambda: not pods_of(world, name), _PATIENCE)
    assert ada("why", name, "--json").json["state"] == "stopped"
    program(folder, "raise SystemExit('edited')")
    assert ada("resume", name).code == 0
    done = ada("logs", "-f", name)
    assert done.code == 0, done.out
    assert {f"worker-{rank} │ resumes step-{rank}" for rank in (0, 1)} <= {*done.out.splitlines()}
    assert ada("code", name, str(folder / "back")).code == 0
    assert "diverged" in (folder / "back/train.py").read_text()
    # What a real cgroup says of memory. The node's image was imported: it has no registry's digest.
    shown = ada("show", name, "--json").json
    assert shown["digest"] == ""
    assert max(shown["usage"]["worker-0"]["memory"]) > 1 << 20
    assert max(shown["usage"]["worker-0"]["cpus"]) > 0


@pytest.mark.usefixtures("real")
def test_a_terminal_in_a_worker_and_a_program_over_its_memory(
    ada: Causeway, world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    """What is typed has no quotes where it is looked for, as the terminal also shows what is typed."""
    over = "held = []\nwhile True:\n    held.append(b'x' * (8 << 20))"
    job(folder, over, name="large", memory="64 MiB", run=f"{WAITS}\npython3 train.py")
    name = ada("run", "job.yaml", "-d", "--json").json["run"]
    with closing(Terminal()) as terminal, ExitStack() as stack:
        terminal.resize(40, 100)
        before = termios.tcgetattr(terminal.side)
        # A shell that exports COLUMNS and LINES has those of its own terminal.
        exported = {**environment, **world.environment("ada"), "COLUMNS": "77", "LINES": "11"}
        process = subprocess.Popen(
            [*command, "shell", name], cwd=folder, env=exported,
            stdin=terminal.side, stdout=terminal.side, stderr=terminal.side,
        )  # fmt: skip
        # So that a second attempt at this test has nothing of the first one.
        stack.callback(process.wait)
        stack.callback(process.kill)
        terminal.shows("exit or Ctrl-D leaves")
        terminal.enter("stty size; echo $CAUSEWAY_RUN in $PWD")
        terminal.shows("40 100")
        terminal.shows(f"{name} in /causeway/code")
        terminal.resize(30, 90)
        terminal.enter("until stty size | grep '30 90'; do sleep 0.2; done; echo re''sized")
        terminal.shows("resized")
        # Of one process: a signal that comes while bash starts another one may reach neither.
        terminal.enter("sh -c 'echo slee\"\"ping; exec sleep 36000'")
        terminal.shows("sleeping")
        terminal.type("\x03")
        # Nor while bash, which was woken by the same signal, has shown its prompt but does not read yet.
        time.sleep(3)
        terminal.enter("echo en''ded with $?")
        terminal.shows("ended with 130")
        terminal.enter("exit 3")
        assert process.wait(_PATIENCE) == 0
        assert termios.tcgetattr(terminal.side) == before
    # The run waited for its person to leave.
    done = wait(lambda: (found := jobset(world, name)).get("terminalState") == "Failed" and found, _PATIENCE)
    assert done["restarts"] == 0
    failed = ada("why", name, "--json").json["first_failure"]
    assert (failed["exit"], failed["signal"], failed["reason"]) == (NEVER_WORKS, "SIGKILL", OUT_OF_MEMORY)
    assert "memory:" in ada("why", name).out


# -- A pod that is reached through the API server alone ----------------------------------------------------

_BOARD = b"dashboards " * 30_000

_CLOSED = """
nft -f - <<END
table inet closed {{
  chain of_node {{ type filter hook output priority 0; ip daddr {0} reject with tcp reset; }}
  chain of_pods {{ type filter hook forward priority 0; ip daddr {0} reject with tcp reset; }}
}}
END
python3 -c 'import socket; socket.create_connection(("{0}", 3000))' 2>&1 || true
"""


@pytest.mark.usefixtures("real")
def test_people_open_grafana_though_its_node_refuses_every_packet_to_it(
    world: World, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    """By kubectl and by the client. The node's rules are in place of the program that enforces network
    policies, which is no part of these tests, and refuse more: also what comes from the node itself. A web
    server is Grafana.
    """
    assert world.node is not None
    alan = person(world, "alan", folder, environment, command)
    world.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}})
    for each in addon_objects.grafana(world.spec)["access.yaml"]:
        world.admin.apply(each)
    start_grafana(world)
    found = wait(partial(address_of_grafana, world), _PATIENCE)
    assert "ConnectionRefusedError" in world.node.sh(_CLOSED.format(found))
    try:
        with reserved(2) as (one, other):
            by_kubectl = [
                kubectl(), "port-forward", "--namespace", MONITORING, f"pod/{GRAFANA_POD}", f"{one}:3000",
            ]  # fmt: skip
            by_client = [*command, "dashboards", "--port", str(other)]
            for port, words in ((one, by_kubectl), (other, by_client)):
                assert shown(world, port, words, environment) == [_BOARD] * 4
    finally:
        world.node.sh("nft delete table inet closed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = ("dashboards", "--port", str(server.getsockname()[1]))
        assert alan(*taken).code == 2
        # Who may open it: test_policies_live.py. Without the right no port is looked at.
        binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{MONITORING}/rolebindings/open-grafana"
        world.admin.call("DELETE", binding)
        wait(lambda: alan(*taken).code == 1, _PATIENCE)


def start_grafana(world: World) -> None:
    assert world.spec.research is not None
    page = f"open('index.html', 'wb').write(b'dashboards ' * {len(_BOARD) // 11})"
    server = f'cd $(mktemp -d); python3 -c "{page}"; exec python3 -m http.server 3000'
    world.admin.create({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": GRAFANA_POD, "namespace": MONITORING},
        "spec": {
            "nodeName": real_node.NODE,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "grafana",
                "image": world.spec.research.images[0].image,
                "command": ["sh", "-c", server],
                "readinessProbe": {"httpGet": {"port": 3000}, "periodSeconds": 1, "timeoutSeconds": 60},
            }],
        },
    })  # fmt: skip


def address_of_grafana(world: World) -> str:
    """Once its node has reached it."""
    path = f"/api/v1/namespaces/{MONITORING}/pods/{GRAFANA_POD}"
    status = world.admin.call("GET", path)["status"]
    ready = {each["type"]: each["status"] for each in status.get("conditions", ())}.get("Ready")
    return str(status["podIP"]) if ready == "True" else ""


def shown(world: World, port: int, words: list[str], environment: Mapping[str, str]) -> list[bytes]:
    """What four connections at once get of a port while Alan's command runs, which Ctrl-C ends."""
    env = {**environment, **world.environment("alan"), "PYTHONUNBUFFERED": "1"}
    opener = build_opener(ProxyHandler({}))

    def get(_: int) -> bytes:
        with opener.open(f"http://127.0.0.1:{port}/", timeout=_PATIENCE) as answer:
            return bytes(answer.read())

    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert str(port) in process.stdout.readline()
            with ThreadPoolExecutor(4) as pool:
                pages = list(pool.map(get, range(4)))
            process.send_signal(signal.SIGINT)
            assert process.wait(_PATIENCE) == 0
            return pages
        finally:
            process.kill()
