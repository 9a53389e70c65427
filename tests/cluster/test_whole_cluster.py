"""A cluster from nothing, with real kubelets: ``invoke cluster.*``, the cookbook's recipes, kubeadm.

Three masters, a machine of a rack and a VPN server, each with containerd, an SSH server and file systems of
its own. Stand-ins are Chef, systemd, flannel, kube-network-policies and DNS (``cluster_machines.py``). The
machines want two processors for themselves, so the area ``kubelet`` has one worker.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cluster.cluster_machines import AFTER, RELEASE, Lab, missing
from kube_tools import kubectl, need
from machines.deb import with_client
from stores import local_store
from waiting import until

from infra.catalogue.tables import table
from infra.drive.pki import Pki

pytestmark = pytest.mark.timeout(2400)

ROOT = Path(__file__).parents[2]
WORK_IMAGE = "docker.io/library/work:1"
ADDRESSES = {
    "master-1": "10.0.0.11",
    "master-2": "10.0.0.12",
    "master-3": "10.0.0.13",
    "titan-01": "10.200.0.11",
    "vpn-us-west-2": "10.0.0.20",
}
MASTERS = ("master-1", "master-2", "master-3")
SPEC = """\
version: 1
name: lab
domain: test.internal
aws: {account: "123456789012"}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a, us-west-2b, us-west-2c]}
  rack:
    kind: physical
    cidr: 10.200.0.0/22
    nodes:
      titan-01: {address: 10.200.0.11, cpus: 2, memory: 4 GiB, roles: [worker]}
images: {cpu: {}}
kubernetes:
  version: "MINOR"
  control_plane: {count: 3}
  services: 10.96.0.0/16
  addons:
ADDONS
access:
  users: {ada: {name: Ada, groups: [vision]}}
  groups: {vision: {}}
"""
WORK = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: user-ada}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - {name: web, image: "docker.io/library/work:1", command: [/busybox, sleep, "100000"]}
"""


class Desk:
    """Where an engineer sits: the project, and the commands in it."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder = folder
        self.lab = lab

    def invoke(self, *words: str) -> tuple[str, str]:
        """What it writes to standard output, and to standard error."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr + self.lab.logs()
        return done.stdout, done.stderr

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "CAUSEWAY_SSH_CONFIG": str(self.lab.ssh_config),
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "PATH": f"{Path(kubectl()).parent}:{os.environ['PATH']}",
        }
        command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *words, "--env", "lab"]
        return subprocess.run(
            self.lab.at_desk(*command, folder=self.folder),
            capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def specify(self, release: str) -> str:
        """Write the spec with the minor of a release of Kubernetes; ``v1.36.2`` → ``1.36``."""
        off = "\n".join(f"    {name}: {{enabled: false}}" for name in table("addons")["addons"])
        minor = release.removeprefix("v").rpartition(".")[0]
        text = SPEC.replace("ADDONS", off).replace("MINOR", minor)
        chef = (ROOT / "tests" / "cluster" / "chef.rb").read_text()
        (self.folder / "environments" / "lab.yaml").write_text(
            with_client(text, self.folder / "build" / "lab", chef)
        )
        return minor

    def kubectl(self, *words: str, text: str = "") -> str:
        """As an administrator on the first master."""
        words = ("--kubeconfig", "/etc/kubernetes/admin.conf", *words)
        return self.lab.machines["master-1"].run("kubectl", *words, text=text)

    def wait(self) -> None:
        """Until the deployment's pods are ready."""
        self.kubectl("--namespace", "user-ada", "rollout", "status", "deployment/web", "--timeout=300s")

    def until(self, what: Callable[[], bool], seconds: float = 180) -> None:
        until(
            what,
            seconds=seconds,
            every=1,
            explain=lambda: self.kubectl("get", "pods,nodes", "-A") + self.lab.logs(),
        )

    def is_sound(self) -> bool:
        """Whether cluster.status finds nothing wrong."""
        return self.run("cluster.status").returncode == 0

    def members(self) -> list[str]:
        """The masters whose members of etcd are well."""
        members = json.loads(self.run("cluster.status", "--json").stdout)["etcd"]["members"]
        return sorted(member["name"] for member in members if member["healthy"])

    def versions(self) -> dict[str, str]:
        """Name → version, of the kubelets that are ready."""
        rows = [line.split() for line in self.kubectl("get", "nodes", "--no-headers").splitlines()]
        return {name: version for name, state, *_, version in rows if state == "Ready"}

    def containers(self, machine: str, name: str) -> list[str]:
        """Those that run on a machine, whatever the API says."""
        return self.lab.machines[machine].sh(f"crictl ps --quiet --name '^{name}$'").split()

    def nodes_of_pods(self) -> set[str]:
        """Where pods that stay are; empty for one that waits."""
        pods = json.loads(self.kubectl("--namespace", "user-ada", "get", "pods", "--output", "json"))["items"]
        return {pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    if reason := missing():
        pytest.skip(reason)
    kubelet = Path(need("kubelet"))
    folder = tmp_path_factory.mktemp("whole")
    (folder / "environments").mkdir()
    for name in ("cookbooks", "packer", "tasks.py"):
        (folder / name).symlink_to(ROOT / name)
    state = folder / "build" / "lab" / "state"
    state.mkdir(parents=True, mode=0o700)
    instances = {
        name: {"private_ip": address, "public_ip": "198.51.100.1" if name.startswith("vpn") else None}
        for name, address in ADDRESSES.items()
        if not name.startswith("titan")
    }
    outputs = {"vpn_connections": {}, "instances": instances, "file_systems": {}}
    (state / "outputs.json").write_text(json.dumps(outputs))
    store = local_store(folder, "lab")
    Pki(store, domain="test.internal", clock=lambda: datetime.now(UTC)).create("a passphrase", "lab")
    with Lab(folder / "lab", kubelet.parent, Path(kubectl())) as lab:
        desk = Desk(folder, lab)
        lab.open(ADDRESSES, "test.internal")
        desk.specify(RELEASE)
        listed, _ = desk.invoke("images.list", "--containers", "--json")
        images = {each["image"] for each in json.loads(listed)}
        lab.start({*images, *(each.replace(RELEASE, AFTER) for each in images), WORK_IMAGE})
        yield desk


def test_from_nothing_to_a_cluster_and_nothing_the_second_time(desk: Desk) -> None:
    desk.invoke("cluster.up")
    assert desk.versions() == dict.fromkeys(ADDRESSES, RELEASE)
    _, err = desk.invoke("cluster.up")
    assert re.findall(r"(\d+) of \d+ resources", err) == ["0"] * 3, err
    desk.until(desk.is_sound)
    assert desk.members() == list(MASTERS)


def test_a_node_is_drained_removed_and_runs_pods_again_when_it_is_back(desk: Desk) -> None:
    desk.kubectl("apply", "--filename", "-", text=WORK)
    desk.wait()
    assert desk.nodes_of_pods() == {"titan-01"}
    desk.invoke("cluster.drain", "titan-01", "--yes")
    assert desk.nodes_of_pods() == {""}, "there is no other worker"
    desk.invoke("cluster.remove", "titan-01", "--yes")
    # Another node gets the range of addresses that it had.
    desk.invoke("cluster.add-node", "titan-01")
    desk.wait()
    assert desk.nodes_of_pods() == {"titan-01"}


def test_what_was_deleted_runs_again_once_etcd_is_as_it_was(desk: Desk) -> None:
    for name in MASTERS:
        # As its timer does.
        desk.lab.machines[name].sh("systemctl start causeway-etcd-snapshot")
    (copy,) = json.loads(desk.invoke("cluster.restore", "--json")[0])
    assert len(desk.containers("titan-01", "web")) == 2
    desk.kubectl("--namespace", "user-ada", "delete", "deployment/web")
    desk.kubectl("--namespace", "user-ada", "wait", "--for=delete", "pods", "--all", "--timeout=120s")
    desk.kubectl("create", "namespace", "later")
    desk.invoke("cluster.restore", "--snapshot", copy["name"], "--yes")
    # What the API says of pods is as old as the copy: so containers are looked at, and one that is new.
    desk.until(lambda: len(desk.containers("titan-01", "web")) == 2)
    desk.kubectl("--namespace", "user-ada", "scale", "deployment/web", "--replicas=3")
    desk.until(lambda: len(desk.containers("titan-01", "web")) == 3)
    assert "later" not in desk.kubectl("get", "namespaces", "--output", "name")
    desk.until(desk.is_sound)
    assert desk.members() == list(MASTERS)


def test_a_master_leaves_etcd_and_joins_again(desk: Desk) -> None:
    desk.invoke("cluster.remove", "master-3", "--yes")
    assert desk.members() == ["master-1", "master-2"]
    assert "master-3" in desk.run("cluster.status").stderr
    desk.invoke("cluster.add-node", "master-3")
    desk.until(desk.is_sound)
    assert desk.members() == list(MASTERS)


def test_every_machine_goes_up_a_minor_and_the_second_time_nothing_does(desk: Desk) -> None:
    assert desk.versions() == dict.fromkeys(ADDRESSES, RELEASE)
    minor = desk.specify(AFTER)
    desk.invoke("cluster.upgrade", "--to", minor, "--yes")
    assert desk.versions() == dict.fromkeys(ADDRESSES, AFTER)
    desk.until(desk.is_sound)
    assert desk.members() == list(MASTERS)
    assert len(desk.containers("titan-01", "web")) == 3
    pods = json.loads(desk.kubectl("--namespace", "kube-system", "get", "pods", "--output", "json"))["items"]
    images = {each["image"] for pod in pods for each in pod["spec"]["containers"]}
    assert not [each for each in images if RELEASE in each]
    out, _ = desk.invoke("cluster.upgrade", "--to", minor, "--yes")
    assert f" at {minor}." in out
