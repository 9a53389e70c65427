"""The same pods on the stand-in for a kubelet (``pods.py``) and on a real one, and runs on the real one.

One VM with a kubelet, containerd and runc (``real_node.py``) serves all of this file. Without KVM it takes
more than a processor for many minutes, and beside other work it misses deadlines: it is started where
CAUSEWAY_TEST_KUBELET=1 asks for it, and else the same pods run on the stand-in alone.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from autoscaler.kube.clusters import fresh
from client.jobset_world import World, worlds
from client.pods import NODE, can_run, wait
from client.test_run_in_cluster import Run, person, program

from client import real_node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy(minutes=1),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(can_run()), reason=can_run()),
]

_PATIENCE = 300


def _without() -> str:
    """Why there is no real kubelet; empty where there is."""
    if os.environ.get("CAUSEWAY_TEST_KUBELET") != "1":
        return "a real kubelet in an emulated VM is slow: CAUSEWAY_TEST_KUBELET=1 starts it"
    return real_node.missing()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with worlds(tmp_path_factory.mktemp("kubelets"), kubelet=not _without()) as found:
        if found.node is not None:
            found.node.sh("mkdir -m 700 /home/ada && chown 10001:10001 /home/ada")
        found.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pods"}})
        found.admin.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "work", "namespace": "pods"}}
        )
        yield found
        assert found.pods.problems == []


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
    if request.param == real_node.NODE and (lacking := _without()):
        pytest.skip(lacking)
    return Pods(world, request.param)


def test_what_a_container_finds_and_how_it_ends(pods: Pods) -> None:
    token = {
        "serviceAccountToken": {"audience": "sts.amazonaws.com", "path": "token", "expirationSeconds": 600}
    }
    pod = pods.run(
        """
        {
            pwd; echo "$PLAIN $TRY $NAME"; cat /causeway/first
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
                {
                    "name": "TRY",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['causeway.dev/try']"}},
                },
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "volumeMounts": [
                {"name": "token", "mountPath": "/run/secrets/causeway", "readOnly": True},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        },
        volumes=[
            {"name": "token", "projected": {"sources": [token]}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
    )
    name = pod["metadata"]["name"]
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["message"] == f"/causeway plain 7 {name} from-init token 16 "
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (3, "Error")
    assert terminated(pod, "initContainerStatuses")["reason"] == "Completed"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_after_an_init_container_that_fails_nothing_starts(pods: Pods) -> None:
    pod = pods.run("true", first="echo why > /dev/termination-log; exit 78")
    ended = terminated(pod, "initContainerStatuses")
    assert (pod["status"]["phase"], ended["exitCode"], ended["message"]) == ("Failed", 78, "why\n")
    assert "terminated" not in pod["status"]["containerStatuses"][0]["state"]


def test_a_signal_ends_a_program_with_128_and_its_number(pods: Pods) -> None:
    # The kubelet makes one of two dollar signs.
    assert terminated(pods.run("sh -c 'kill -SEGV $$$$'; exit $?"))["exitCode"] == 139


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
    wait(lambda: "begun" in pods.log(name), _PATIENCE)
    pods.delete(name, grace)
    pod = pods.ended(name)
    pods.change(name, finalizers=None)
    assert terminated(pod)["exitCode"] == code
    assert terminated(pod).get("message", "") == ("saved\n" if code == 75 else "")


def test_a_container_runs_as_the_user_that_the_pod_says(pods: Pods) -> None:
    pod = pods.run(
        "id -u > /dev/termination-log; id -g >> /dev/termination-log; touch /causeway/mine",
        securityContext={"runAsUser": 10001, "runAsGroup": 10002, "supplementalGroups": [10003]},
    )
    assert terminated(pod)["message"].split() == ["10001", "10002"]


def test_a_sidecar_is_asked_to_end_after_the_container_and_may_finish(pods: Pods) -> None:
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
    pod = pods.run(
        "until [ -e /causeway/up ]; do sleep 0.1; done; : > /causeway/over", initContainers=[sidecar]
    )
    assert pod["status"]["phase"] == "Succeeded"
    ended = terminated(pod, "initContainerStatuses")
    assert (ended["exitCode"], ended["message"]) == (0, "after\n")


# -- A run's life on the real one --------------------------------------------------------------------------

_JOB = """\
run: |
  python3 train.py
gpus: 0
cpus: 0.1
launcher: none
restarts: 0
mounts: {data: false, results: false}
"""
"""The VM has homes, and no other path of the machines."""


@pytest.fixture
def ada(world: World, folder: Path, environment: Mapping[str, str], command: list[str]) -> Run:
    if lacking := _without():
        pytest.skip(lacking)
    return person(world, "ada", folder, environment, command)


def job(folder: Path, text: str, **fields: Any) -> None:
    program(folder, text)
    made = {**yaml.safe_load(_JOB), "memory": "200 MiB", **fields}
    (folder / "job.yaml").write_text(yaml.safe_dump(made))


_GANG = """
    import os, socket, time
    print("env", os.environ["RAW"], os.getuid(), flush=True)
    first = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if os.environ["CAUSEWAY_RANK"] == "0":
        with socket.create_server(("", first[1])) as server:
            print("heard", server.accept()[0].recv(5).decode(), flush=True)
        time.sleep(3600 if FAIL else 0)
    else:
        while True:
            try:
                with socket.create_connection(first, 5) as line:
                    line.sendall(b"hello")
                break
            except OSError:
                time.sleep(1)
        if FAIL:
            raise ValueError("loss is nan")
"""


def test_two_workers_meet_by_name_and_the_one_that_fails_is_named(ada: Run, folder: Path) -> None:
    """And what the shell and the program are given is what the job says: ``$$`` is the shell's process."""
    fields = {"name": "gang", "nodes": 2, "env": {"RAW": "a$$b$(HOME)"}}
    run = 'test "$$" -gt 0; echo "home $(basename $HOME)"\npython3 train.py'
    job(folder, _GANG.replace("FAIL", "True"), run=run, **fields)
    done = ada("run", "job.yaml", "--json")
    assert done.code == 1, done.err
    for line in ("worker-0 │ heard hello", "worker-1 │ env a$$b$(HOME) 10001", "worker-1 │ home ada"):
        assert line in done.err
    why = ada("why", done.json["name"], "--json").json
    first = why["first_failure"]
    assert (first["rank"], first["lines"][-1]) == (1, "ValueError: loss is nan")
    assert {each["node"] for each in why["workers"]} == {real_node.NODE}


def test_a_command_beside_what_runs(ada: Run, folder: Path) -> None:
    """Through the API server and the kubelet: exec is nothing that the stand-in has."""
    job(folder, "import time; print('begun', flush=True); time.sleep(3600)", name="beside")
    name = ada("run", "job.yaml", "-d", "--json").json["run"]
    wait(lambda: "begun" in ada("logs", name).out, _PATIENCE)
    done = ada("shell", name, "--", "sh", "-c", "echo $CAUSEWAY_RUN $(pwd); echo why >&2; exit 4")
    assert (done.code, done.out, done.err) == (4, f"{name} /causeway/code\n", "why\n")
    assert ada("shell", name, "--worker", "worker-7", "--", "true").code == 1
    assert ada("shell", name).code == 2, "there is no terminal"


def test_a_program_over_its_memory_is_killed_and_told_what_helps(ada: Run, folder: Path) -> None:
    job(folder, "held = []\nwhile True:\n    held.append(b'x' * (8 << 20))", name="large", memory="64 MiB")
    done = ada("run", "job.yaml", "--json")
    assert done.code == 1, done.err
    assert done.json["restarts"] == 0
    assert "memory:" in ada("why", done.json["name"]).out
