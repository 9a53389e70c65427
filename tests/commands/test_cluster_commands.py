"""`invoke cluster.…` and `kubeconfig` as a person runs them: a real API server, real OpenSSH servers, real
kubectl.

On the machines, Chef is a stand-in (``drive/machines/hosts.py``) that does what a kubelet would: it
looks at what it was brought, and its node appears in the API. The API server is begun by the first
master's. kube-controller-manager signs certificates and does nothing else: a thread says of workloads
that they have come up.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from drive.kubernetes import masters
from drive.kubernetes.apiserver import NAME, Server, node, pod, running
from drive.kubernetes.https_pages import serving
from drive.machines.hosts import CHEF, Hosts
from drive.machines.hosts import running as running_hosts
from kube_tools import kubectl as kubectl_program
from kube_tools import need
from machines.deb import with_client
from ports import reserved

from infra.drive import localaws
from infra.drive.kubernetes import access, api_server_issuers, secrets
from infra.drive.kubernetes.access import Access, Endpoint
from infra.drive.kubernetes.api import Api, ApiError, AwayError
from infra.drive.pki import Pki
from infra.drive.secrets.local import LocalStore

ROOT = Path(__file__).parents[2]

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
      titan-01: {address: 10.200.0.11, cpus: 1, memory: 1 GiB, roles: [worker]}
      titan-02: {address: 10.200.0.12, cpus: 1, memory: 1 GiB, roles: [worker]}
images: {cpu: {}}
kubernetes:
  version: "1.36"
  control_plane: {count: 3}
  services: 10.96.0.0/16
ADDONS
access:
  users:
    ada: {name: Ada, groups: [vision], ssh_keys: []}
    grace: {name: Grace, groups: [engineers], ssh_keys: []}
  groups: {engineers: {sudo: true}, vision: {}}
"""

OWN = "https://kubernetes.default.svc.cluster.local"
ISSUERS = ("--service-account-issuer=", "--service-account-jwks-uri=", "--api-audiences=")

MACHINES = ("master-1", "master-2", "master-3", "titan-01", "titan-02", "vpn-us-west-2")

KUBELET = """
import subprocess
secrets = pathlib.Path("/etc/causeway/secrets")
have = {
    str(path.relative_to(secrets)): oct(path.stat().st_mode & 0o777)
    for path in secrets.rglob("*") if path.is_file()
}
lab = pathlib.Path("LAB")
with (lab / "brought").open("a") as log:
    log.write(json.dumps({"node": name, "run": sys.argv[1:], "have": have}) + "\\n")
if (lab / f"broken-{name}").exists():
    print("ERROR: the disk is full", file=sys.stderr)
    sys.exit(1)
if name == "master-1" and not (lab / "serving").exists():
    assert "kubernetes-join.yaml" not in have
    (lab / "begin").touch()
    while not (lab / "serving").exists():
        time.sleep(0.1)
version = (lab / "version").read_text().strip()
kubectl = ["KUBECTL", "--kubeconfig", str(lab / "admin.conf")]
words = ["get", "node", name, "--output=jsonpath={.status.nodeInfo.kubeletVersion}"]
known = subprocess.run([*kubectl, *words], capture_output=True)
there = bool(known.stdout) or b"refused" in known.stderr
upgrading = "recipe[kubernetes::upgrade]" in sys.argv
if not there or upgrading:
    assert upgrading or name == "master-1" or "kubernetes-join.yaml" in have, have
    body = json.loads((lab / "nodes" / f"{name}.json").read_text())
    body["status"]["nodeInfo"]["kubeletVersion"] = version
    file = lab / f"{name}.node.json"
    file.write_text(json.dumps(body))
    patch = json.dumps({"status": body["status"]})
    if known.returncode:
        words = ["create", "--validate=false", "-f", str(file)]
        subprocess.run([*kubectl, *words], check=True, capture_output=True)
    words = ["patch", "node", name, "--subresource=status", "--type=merge", "-p", patch]
    subprocess.run([*kubectl, *words], check=True, capture_output=True)
"""


CERTIFICATES = """\
#!/bin/sh
# A stand-in for the cookbook's program: the API server reads the key of the master that is named first.
name=$(cat /run/lab-host)
test "$*" = "--restart kube-controller-manager" && echo "$name" >>LAB/managers && exit
test "$*" = "--restart kube-apiserver"
echo "$name" >>LAB/restarts
if [ -e "LAB/broken-$name" ]; then echo "kube-apiserver is not well" >&2; exit 1; fi
differs=
for file in encryption.yaml pki/sa.key pki/sa.pub; do
  read_by="LAB/api/pki/$(basename $file)"
  if [ -e "/etc/kubernetes/$file" ] && ! cmp -s "/etc/kubernetes/$file" "$read_by"; then
    cp "/etc/kubernetes/$file" "$read_by"
    differs=yes
  fi
done
[ "$differs" ] || exit 0
touch LAB/restart
while [ -e LAB/restart ]; do sleep 0.1; done
"""

KUBEADM = """\
#!/bin/sh
# The real one, for phases of `init`: its `reset` would go beyond what the machine has of its own. What it
# writes is there for the stand-in for a kubelet, too.
[ "$1" = init ] || exit 0
name=$(cat /run/lab-host)
if [ -e "LAB/broken-$name" ]; then echo "no space left on device" >&2; exit 1; fi
KUBEADM "$@" || exit
cp /etc/kubernetes/manifests/kube-apiserver.yaml "LAB/manifests/$name.new"
mv "LAB/manifests/$name.new" "LAB/manifests/$name.yaml"
"""

KUBECTL = """\
#!/bin/sh
# There are no kubelets to run a command in a pod of etcd: it runs here, against the etcd that is there.
for word in "$@"; do
  if [ "$word" = etcdctl ]; then exec LAB/bin/inside "$@"; fi
done
exec KUBECTL "$@"
"""

INSIDE = """\
#!/usr/bin/env python3
import os, pathlib, sys
name = sys.argv[sys.argv.index("--") - 1].removeprefix("etcd-")
endpoint = pathlib.Path("LAB/etcd", name).read_text()
words = [each for each in sys.argv[sys.argv.index("etcdctl") + 1:] if not each.startswith(
    ("--endpoints", "--cacert", "--cert", "--key"))]
os.execv("ETCDCTL", ["etcdctl", f"--endpoints={endpoint}", *words])
"""


RESTORE = """\
#!/bin/sh
# A stand-in for the cookbook's program, which tests/cookbooks runs with a real etcd.
echo "$1 $2" >>LAB/restored
if [ "$1" = stop ] && [ -e "LAB/broken-$(cat /run/lab-host)" ]; then echo "pods still run" >&2; exit 1; fi
if [ "$1" = list ]; then
  echo '{"name": "snapshots/20261120T1100Z.db", "taken": "2026-11-20T11:00:00+00:00", "bytes": 20971520}'
  echo '{"name": "snapshots/20261120T1200Z.db", "taken": "2026-11-20T12:00:00+00:00", "bytes": 20971520}'
fi
"""


class Controllers(threading.Thread):
    """Says of every workload that it has come up, as controllers and kubelets would."""

    def __init__(self, admin: Access) -> None:
        super().__init__(daemon=True)
        self._api = Api(admin)
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.5):
            try:
                self._once()
            except (ApiError, AwayError):
                continue

    def _once(self) -> None:
        for kind in ("deployments", "daemonsets", "statefulsets"):
            for each in self._api.list(f"/apis/apps/v1/{kind}"):
                about = each["metadata"]
                if (each.get("status") or {}).get("observedGeneration") == about["generation"]:
                    continue
                count = (each.get("spec") or {}).get("replicas") or 1
                status: dict[str, Any] = {"observedGeneration": about["generation"], "replicas": count}
                status |= {"updatedReplicas": count, "readyReplicas": count, "availableReplicas": count}
                if kind == "daemonsets":
                    status = {"observedGeneration": about["generation"], "desiredNumberScheduled": 1,
                              "currentNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1,
                              "numberReady": 1, "numberMisscheduled": 0}  # fmt: skip
                path = f"/apis/apps/v1/namespaces/{about['namespace']}/{kind}/{about['name']}/status"
                self._api.patch(path, {"status": status})


class Lab:
    """A project folder, its machines, and an API server that is not begun yet."""

    def __init__(self, folder: Path, hosts: Hosts, stack: ExitStack) -> None:
        self.folder = folder
        self.hosts = hosts
        self.server: Server | None = None
        (self.port,) = stack.enter_context(reserved(1))
        self._stack = stack
        config = {"XDG_CONFIG_HOME": str(folder / "config")}
        self.store = LocalStore("lab", folder / ".secrets", config)
        threading.Thread(target=self._kubeadm_init, daemon=True).start()

    def _kubeadm_init(self) -> None:
        """When the first master's Chef says so, and with the keys that it was brought."""
        while not (self.folder / "begin").exists():
            threading.Event().wait(0.1)
        keys = secrets.made(self.store, datetime.now(UTC))
        (self.folder / "api").mkdir()
        self.server = self._stack.enter_context(
            running(self.folder / "api", keys, port=self.port, issuers=[OWN])
        )
        where = Endpoint(NAME, self.server.address)
        self.admin = self._stack.enter_context(access.opened(self.folder / "own", where, keys.ca))
        (self.folder / "admin.conf").write_text(masters.admin_conf(self.admin))
        self._stack.enter_context(masters.signer(self.admin, self.folder / "api"))
        for name in MACHINES[:3]:
            masters.equip(self.hosts[name], self.folder / "machines", self.admin, keys.ca.certificate)
        controllers = Controllers(self.admin)
        controllers.start()
        self._stack.callback(controllers.ended.set)
        (self.folder / "serving").touch()
        while not controllers.ended.wait(0.1):
            if (self.folder / "restart").exists():
                self.server.stop()
                self.server.start()
                (self.folder / "restart").unlink()
            for manifest in sorted((self.folder / "manifests").glob("*.yaml")):
                self._kubelet(manifest.stem, yaml.safe_load(manifest.read_text())["spec"])
                manifest.unlink()

    def _kubelet(self, master: str, spec: dict[str, Any]) -> None:
        """A master's API server starts with its manifest's issuers, and its pod is shown as ready. There is
        one API server: it has what the master that was changed last has."""
        assert self.server is not None
        command = spec["containers"][0]["command"]
        given = [word for word in command if word.startswith(ISSUERS)]
        if sorted(given) != sorted(word for word in self.server.words if word.startswith(ISSUERS)):
            kept = [word for word in self.server.words if not word.startswith(ISSUERS)]
            self.server.words = [*kept, *given]
            self.server.stop()
            self.server.start()
        self.show_api_server(master, command)

    def show_api_server(self, master: str, command: list[str]) -> None:
        """The pod that a kubelet mirrors from a master's manifest."""
        pods = "/api/v1/namespaces/kube-system/pods"
        body = pod(f"kube-apiserver-{master}", master, namespace="kube-system")
        body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        body["spec"]["containers"][0]["command"] = command
        self.api.delete(f"{pods}/kube-apiserver-{master}")
        self.api.create(pods, body)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.api.patch(f"{pods}/kube-apiserver-{master}/status", {"status": ready})

    @property
    def api(self) -> Api:
        return Api(self.admin)

    def brought(self, name: str) -> dict[str, Any]:
        """What a machine had in the last run of Chef."""
        rows: list[dict[str, Any]] = [
            json.loads(line) for line in (self.folder / "brought").read_text().splitlines()
        ]
        return [row for row in rows if row["node"] == name][-1]

    def start(self, *words: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG"}}
        # Helm is beside kubectl.
        path = os.pathsep.join(
            [str(self.folder / "bin"), str(Path(kubectl_program()).parent), os.environ["PATH"]]
        )
        return subprocess.Popen(
            [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *words, "--env", "lab"],
            cwd=self.folder,
            env={
                **env,
                "PATH": path,
                "PYTHONPATH": str(ROOT),
                "CAUSEWAY_SSH_CONFIG": str(self.hosts.config),
                "CAUSEWAY_API": f"127.0.0.1:{self.port}",
                "XDG_CONFIG_HOME": str(self.folder / "config"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def invoke(self, *words: str, code: int = 0) -> tuple[str, str]:
        done = self.start(*words)
        out, err = done.communicate(timeout=900)
        assert done.returncode == code, out + err
        assert "Traceback" not in err, err
        return out, err


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need("kube-apiserver")
    need("helm")
    folder = tmp_path_factory.mktemp("lab")
    (folder / "environments").mkdir()
    (folder / "nodes").mkdir()
    (folder / "manifests").mkdir()
    from infra.catalogue.tables import table

    off = [f"    {name}: {{enabled: false}}" for name in table("addons")["addons"]]
    spec = SPEC.replace("ADDONS", "\n".join(["  addons:", *off]))
    (folder / "cookbooks").symlink_to(ROOT / "cookbooks")
    (folder / "tasks.py").symlink_to(ROOT / "tasks.py")
    (folder / "version").write_text("v1.36.3\n")
    for name in MACHINES:
        body = node(name, site="rack" if name.startswith("titan") else "us-west-2", gpus="0")
        if name.startswith("master"):
            body["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = ""
        (folder / "nodes" / f"{name}.json").write_text(json.dumps(body))
    state = folder / "build" / "lab" / "state"
    state.mkdir(parents=True, mode=0o700)
    rows = {f"master-{number}": {"private_ip": f"10.0.0.{number}", "public_ip": None} for number in (1, 2, 3)}
    outputs = {"vpn_connections": {}, "instances": rows, "file_systems": {}}
    (state / "outputs.json").write_text(json.dumps(outputs))
    kubelet = KUBELET.replace("LAB", str(folder)).replace("KUBECTL", kubectl_program())
    chef = CHEF.replace('state = root / "state.json"', kubelet + '\nstate = root / "state.json"')
    (folder / "environments" / "lab.yaml").write_text(with_client(spec, folder / "build" / "lab", chef))
    (folder / "machines").mkdir()
    (folder / "bin").mkdir()
    for program, text in (
        ("machines/causeway-etcd-restore", RESTORE),
        ("machines/causeway-certificates", CERTIFICATES),
        ("machines/kubeadm", KUBEADM.replace("KUBEADM", need("kubeadm"))),
        ("bin/inside", INSIDE.replace("ETCDCTL", need("etcdctl"))),
        ("bin/kubectl", KUBECTL.replace("KUBECTL", kubectl_program())),
    ):
        (folder / program).write_text(text.replace("LAB", str(folder)))
        (folder / program).chmod(0o755)
    with ExitStack() as stack:
        hosts = stack.enter_context(running_hosts(folder / "machines", *MACHINES, chef=chef))
        for name in MACHINES:
            masters.own_etc(hosts[name])
            hosts[name].shell(f"echo {name} >/run/lab-host")
        found = Lab(folder, hosts, stack)
        Pki(found.store, domain="test.internal", clock=lambda: datetime.now(UTC)).create(
            "a passphrase", "lab"
        )
        yield found


def test_a_plan_before_there_is_anything_makes_nothing(lab: Lab) -> None:
    out, _ = lab.invoke("cluster.up", "--plan", "--json")
    rows = {row["step"]: row["would"] for row in json.loads(out)}
    assert rows["master-1"] == "converges and begins the cluster"
    assert rows["master-2"] == rows["master-3"] == "converges and joins"
    assert rows["machines"] == "titan-01, titan-02 and vpn-us-west-2 converge and join"
    assert not secrets.exist(lab.store)
    for words in (("cluster.status",), ("kubeconfig", "--user", "ada"), ("cluster.drain", "titan-01")):
        _, err = lab.invoke(*words, code=1)
        assert "has no keys of a cluster yet; begin it: invoke cluster.up --env lab" in err


def test_a_machine_that_fails_stops_the_run_and_it_goes_on_from_there(lab: Lab) -> None:
    (lab.folder / "broken-master-2").touch()
    _, err = lab.invoke("cluster.up", code=1)
    assert "[2] master-1: begins the cluster" in err
    assert (
        "failed in step 3, master-2: joins. What is done stays; mend it, and go on: invoke cluster.up" in err
    )
    first = lab.brought("master-1")["have"]
    assert "kubernetes-join.yaml" not in first
    assert {"kubernetes-pki/ca.key", "kubernetes-pki/etcd/ca.key", "kubernetes-pki/sa.key"} <= first.keys()
    assert set(first.values()) == {"0o600"}
    assert "kubernetes-join.yaml" in lab.brought("master-2")["have"]
    (lab.folder / "broken-master-2").unlink()
    out, err = lab.invoke("cluster.up")
    assert "[2] master-1: kept in line" in err
    assert "[3] master-2: joins" in err
    assert "3 of 3 masters, 3 other nodes ready" in out
    joined = lab.brought("titan-01")["have"]
    assert [path for path in joined if "pki" in path] == [], "a worker gets no keys of the cluster"
    assert lab.api.find("/api/v1/namespaces/user-ada") is not None
    addresses = lab.api.get("/api/v1/namespaces/causeway-system/configmaps/node-addresses")["data"]
    assert addresses["master-2"] == "10.0.0.2", "by which masters approve kubelets' certificates"


def test_no_secret_is_left_here_or_in_a_digest_or_a_log(lab: Lab) -> None:
    keys = secrets.made(lab.store, datetime.now(UTC))
    needle = keys.ca.key.splitlines()[2].encode()
    for path in (lab.folder / "build").rglob("*"):
        if path.is_file():
            assert needle not in path.read_bytes(), path
    assert list((lab.folder / "build" / "lab" / "state").glob("kube-*")) == []


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"]
                for each in lab.api.list("/apis/rbac.authorization.k8s.io/v1/clusterroles")}  # fmt: skip
    out, _ = lab.invoke("cluster.up", "--plan", "--json")
    for row in json.loads(out):
        if row["step"].startswith("apply"):
            assert row["would"] == "nothing", row
    lab.invoke("cluster.up")
    assert versions == {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"]
        for each in lab.api.list("/apis/rbac.authorization.k8s.io/v1/clusterroles")
    }
    assert "kubernetes-join.yaml" not in lab.brought("titan-01")["have"], "a node needs no token any more"


def test_ctrl_c_says_where_it_stopped_and_gives_the_turn_back(lab: Lab) -> None:
    running = lab.start("cluster.up")
    assert running.stderr is not None
    said = []
    for line in running.stderr:
        said.append(line)
        if "apply namespaces" in line:
            running.send_signal(signal.SIGINT)
            break
    _, err = running.communicate(timeout=300)
    assert running.returncode == 130, "".join(said) + err
    assert re.search(r"stopped (in|after) step \d+, apply namespaces", err)
    assert "go on with: invoke cluster.up --env lab" in err
    lease = lab.api.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/causeway-operation")
    assert not lease["spec"].get("holderIdentity")


def test_one_master_down_is_told_and_keeps_nobody_from_the_rest(lab: Lab) -> None:
    (lab.folder / "broken-master-3").touch()
    _, err = lab.invoke("cluster.up", code=1)
    assert "the cluster goes on without it" in err
    assert "take away what is no longer rendered" in err
    (lab.folder / "broken-master-3").unlink()


def test_status_tells_what_is_not_well(lab: Lab) -> None:
    lab.api.patch("/api/v1/nodes/titan-02", {"metadata": {"annotations": {"causeway/gpu-health": "GPU 0"}}})
    out, err = lab.invoke("cluster.status", code=1)
    assert "master-1  ready" in out
    assert "titan-02 is out: GPU 0" in err
    out, _ = lab.invoke("cluster.status", "--json", code=1)
    found = json.loads(out)
    assert [each["state"] for each in found["masters"]] == ["ready"] * 3
    assert found["wanted"].startswith("1.36.")
    lab.api.patch("/api/v1/nodes/titan-02", {"metadata": {"annotations": {"causeway/gpu-health": None}}})


def kubectl(lab: Lab, file: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(lab.folder / "config")}
    command = [kubectl_program(), "--kubeconfig", str(lab.folder / file), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=lab.folder, env=env)


def test_a_user_works_in_their_namespace_until_the_profile_is_revoked(lab: Lab) -> None:
    authority = lab.store.get("kubernetes/pki/ca")
    assert authority is not None
    # For this nobody needs the key of the cluster's authority.
    lab.store.put("kubernetes/pki/ca", "unreadable")
    try:
        lab.invoke("kubeconfig", "--user", "ada", "--out", "ada.yaml")
    finally:
        lab.store.put("kubernetes/pki/ca", authority)
    assert (lab.folder / "ada.yaml").stat().st_mode & 0o777 == 0o600
    assert kubectl(lab, "ada.yaml", "get", "pods").returncode == 0
    assert "Forbidden" in kubectl(lab, "ada.yaml", "get", "secrets", "--namespace", "kube-system").stderr
    first, _ = lab.invoke("kubeconfig.credential", "--user", "ada")
    assert json.loads(first)["kind"] == "ExecCredential"
    again, _ = lab.invoke("kubeconfig.credential", "--user", "ada")
    assert again == first, "kubectl asks in each run"
    # And by kubectl itself, from anywhere, with no virtual environment on PATH.
    lab.invoke("kubeconfig", "--user", "ada", "--exec", "--out", "exec.yaml")
    assert "PRIVATE" not in (lab.folder / "exec.yaml").read_text()
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(lab.folder / "config")}
    command = [
        kubectl_program(),
        "--kubeconfig",
        str(lab.folder / "exec.yaml"),
        "auth",
        "whoami",
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["userInfo"]["username"] == "ada"
    _, err = lab.invoke("kubeconfig", "--user", "adaa", code=1)
    assert "did you mean ada?" in err
    _, err = lab.invoke("kubeconfig", "--user", "ada", "--hours", "100000", code=1)
    assert "as long as a VPN profile would last" in err


def test_drain_waits_for_a_budget_and_says_whose(lab: Lab) -> None:
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "always-one", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }  # fmt: skip
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    lab.api.create(budgets, budget)
    # As its controller has seen it. Before that, each refusal asks for ten seconds of patience.
    seen = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1}  # fmt: skip
    lab.api.patch(f"{budgets}/always-one/status", {"status": seen})
    lab.api.create("/api/v1/namespaces/default/pods", pod("web", "titan-01", labels={"app": "web"}))
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    lab.api.patch("/api/v1/namespaces/default/pods/web/status", {"status": running})
    _, err = lab.invoke("cluster.drain", "titan-01", "--timeout", "8", "--force", code=1)
    assert "default/web: the budget always-one allows no disruption now" in err
    assert "stays cordoned" in err
    assert lab.api.get("/api/v1/nodes/titan-01")["spec"]["unschedulable"] is True
    lab.invoke("cluster.drain", "titan-01", "--undo")
    assert "unschedulable" not in lab.api.get("/api/v1/nodes/titan-01")["spec"]
    _, err = lab.invoke("cluster.drain", "titan-03", code=1)
    assert "titan-03: no such node; did you mean titan-0" in err
    lab.api.delete(f"{budgets}/always-one")
    lab.api._call("DELETE", "/api/v1/namespaces/default/pods/web", query={"gracePeriodSeconds": "0"})


def test_a_node_is_removed_and_comes_back(lab: Lab) -> None:
    _, err = lab.invoke("cluster.remove", "titan-02", code=1)
    assert "nothing was done: that was not agreed to" in err
    out, err = lab.invoke("cluster.remove", "titan-02", "--yes")
    assert "titan-02 is no node any more" in out
    assert lab.api.find("/api/v1/nodes/titan-02") is None
    lab.invoke("converge", "--nodes", "titan-02")
    assert "kubernetes-join.yaml" in lab.brought("titan-02")["have"]
    assert lab.api.find("/api/v1/nodes/titan-02") is not None
    addresses = "/api/v1/namespaces/causeway-system/configmaps/node-addresses"
    lab.api.patch(addresses, {"data": {"master-2": None}})
    lab.invoke("cluster.add-node", "master-2")
    assert lab.api.get(addresses)["data"]["master-2"] == "10.0.0.2"
    _, err = lab.invoke("cluster.remove", "master-1", "--yes", code=1)
    assert "etcd can't be asked whether it can do without master-1" in err
    for pattern in ("titan-*", "titan-01,titan-02", ""):
        _, err = lab.invoke("cluster.remove", pattern, "--yes", code=1)
        assert "no such node" in err
        _, err = lab.invoke("cluster.drain", pattern, code=1)
        assert "no such node" in err


def test_upgrade_follows_the_spec_and_stops_at_a_gate(lab: Lab) -> None:
    _, err = lab.invoke("cluster.upgrade", "--to", "1.37", code=1)
    assert "environments/lab.yaml says kubernetes.version: '1.36'" in err
    assert "--to says 1.37" in err
    # The same minor: nodes that are behind it go up, one at a time.
    for name in MACHINES:
        version = {"status": {"nodeInfo": {"kubeletVersion": "v1.35.4"}}}
        lab.api.patch(f"/api/v1/nodes/{name}/status", version)
    out, _ = lab.invoke("cluster.upgrade", "--to", "1.36", "--plan", "--json")
    assert json.loads(out)["masters"] == ["master-1", "master-2", "master-3"]
    (lab.folder / "version").write_text("v1.35.4\n")
    _, err = lab.invoke("cluster.upgrade", "--to", "1.36", "--yes", "--gate", "3", code=1)
    assert "master-1 is still at v1.35.4" in err
    assert "master-2 to 1.36" not in err
    assert "--override-runlist" in lab.brought("master-1")["run"]
    (lab.folder / "version").write_text("v1.36.3\n")
    _, err = lab.invoke("cluster.upgrade", "--to", "1.36", "--yes", "--gate", "3")
    assert "An upgrade to this version was begun before" in err
    assert err.index("master-3 to 1.36.") < err.index("titan-01 to 1.36.")
    assert "kubernetes-upgrade.conf" in lab.brought("titan-01")["have"]
    assert "kubernetes-upgrade.conf" not in lab.brought("master-1")["have"]
    out, _ = lab.invoke("cluster.upgrade", "--to", "1.36", "--yes")
    assert "Every node is at 1.36." in out


def kept(lab: Lab, name: str) -> bytes:
    """A secret as etcd has it."""
    assert lab.server is not None
    words = [need("etcdctl"), "--endpoints", lab.server.etcd, "get", f"/registry/secrets/default/{name}"]
    return subprocess.run(words, capture_output=True, check=True, env={"ETCDCTL_API": "3"}).stdout


def test_secrets_get_another_key_at_rest_and_the_old_one_is_forgotten(lab: Lab) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "old"},
        "stringData": {"word": "yes"},
    }
    lab.api.create("/api/v1/namespaces/default/secrets", secret)
    assert b"k8s:enc:secretbox:v1:key1:" in kept(lab, "old")
    _, err = lab.invoke("cluster.rotate-encryption", code=1)
    assert "nothing was done: that was not agreed to" in err
    (lab.folder / "broken-master-2").touch()
    _, err = lab.invoke("cluster.rotate-encryption", "--yes", code=1)
    assert "failed in step 3, master-2 reads with the new key" in err
    assert secrets.rotation(lab.store) == "added", "nobody writes with a key that a master does not have"
    (lab.folder / "broken-master-2").unlink()
    (lab.folder / "restarts").unlink()
    out, err = lab.invoke("cluster.rotate-encryption", "--yes", "--json")
    assert "A rotation was begun before: it goes on." in err
    assert json.loads(out)["steps"][-1]["did"] == "forgotten"
    assert (lab.folder / "restarts").read_text().split() == ["master-1", "master-2", "master-3"] * 3
    assert b"k8s:enc:secretbox:v1:key2:" in kept(lab, "old")
    assert lab.api.get("/api/v1/namespaces/default/secrets/old")["data"] == {"word": "eWVz"}
    (key,) = json.loads(secrets.made(lab.store, datetime.now(UTC)).encryption)
    assert key["name"] == "key2"


def test_tokens_are_signed_with_another_key_and_none_is_lost(lab: Lab) -> None:
    """What AWS makes of them is in tests/localaws/test_web_identity.py."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    lab.api.create("/api/v1/namespaces/default/serviceaccounts", account)
    before = signed(lab)
    (lab.folder / "restarts").unlink()
    (lab.folder / "broken-master-2").touch()
    _, err = lab.invoke("cluster.rotate-signing-key", "--yes", code=1)
    assert "failed in step 3, master-2 verifies with the new key" in err
    assert key_of(signed(lab)) == key_of(before), "nobody signs with a key that a master does not know"
    (lab.folder / "broken-master-2").unlink()
    out, err = lab.invoke("cluster.rotate-signing-key", "--yes", "--json")
    assert "A rotation was begun before: it goes on." in err
    assert json.loads(out)["steps"][-1]["did"] == "remembered"
    after = signed(lab)
    assert key_of(after) != key_of(before)
    assert accepted(lab, before)
    assert accepted(lab, after)
    _, err = lab.invoke("cluster.rotate-signing-key", "--yes", code=1)
    assert f"can be forgotten from {json.loads(out)['forgets_from'][:10]}" in err
    # Two days later; there is a token, too, that nothing would ever replace.
    secrets.sign_with_token_key(lab.store, datetime.now(UTC) - timedelta(days=2))
    secret: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "ever", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "stringData": {"token": before},
    }
    lab.api.create("/api/v1/namespaces/default/secrets", secret)
    _, err = lab.invoke("cluster.rotate-signing-key", "--yes", code=1)
    assert "token of the old key that does not expire: default/ever" in err
    lab.api.delete("/api/v1/namespaces/default/secrets/ever")
    out, _ = lab.invoke("cluster.rotate-signing-key", "--yes", "--json")
    assert json.loads(out)["forgets_from"] is None
    assert (lab.folder / "managers").read_text().split()[-3:] == ["master-1", "master-2", "master-3"]
    assert accepted(lab, after)
    assert not accepted(lab, before)


@pytest.fixture
def volumes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Pods have roles at AWS, for a bucket with volumes. Gives what changes the issuers in the spec."""
    file = lab.folder / "environments" / "lab.yaml"
    before = file.read_text()
    assert "s3-csi-driver: {enabled: false}" in before

    def change(*issuers: str) -> None:
        text = before.replace("s3-csi-driver: {enabled: false}", "s3-csi-driver: {enabled: true}")
        text = text.replace(
            "kubernetes:\n", f"kubernetes:\n  issuer_bucket: lab-oidc\n  issuers: [{', '.join(issuers)}]\n"
        )
        file.write_text(f"{text}storage: {{s3: {{sets: {{volumes: true}}}}}}\n")

    aws = localaws.start(lab.folder / "aws", "lab")
    try:
        for name, value in localaws.environment(aws, "us-west-2").items():
            monkeypatch.setenv(name, value)
        place = {"LocationConstraint": "us-west-2"}
        boto3.client("s3").create_bucket(Bucket="lab-oidc", CreateBucketConfiguration=place)
        yield change
    finally:
        localaws.stop(aws.folder)
        file.write_text(before)


@pytest.fixture
def edge(volumes: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server in CloudFront's place, over HTTPS. Like an edge, it first has an old answer: "not there"."""
    asked: list[str] = []

    def page(path: str) -> tuple[int, bytes]:
        asked.append(path)
        if len(asked) == 1:
            return 403, b""
        found = boto3.client("s3").get_object(Bucket="lab-oidc", Key=f"cloudfront/{path}")
        return 200, found["Body"].read()

    with serving(tmp_path / "edge", page) as (url, trusted):
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        yield url
        assert len(asked) > 2


def test_the_issuer_of_tokens_changes_and_none_is_lost(
    lab: Lab, volumes: Callable[..., None], edge: str
) -> None:
    """What AWS makes of them is in tests/localaws/test_web_identity.py."""
    s3, cloudfront = "https://lab-oidc.s3.us-west-2.amazonaws.com", edge
    configuration = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": "v1.36.2",
        "controlPlaneEndpoint": "api.lab.test.internal:6443",
        "networking": {"serviceSubnet": "10.96.0.0/16", "dnsDomain": "cluster.local"},
        "apiServer": {"extraArgs": [{"name": "profiling", "value": "false"}]},
    }
    kept = {"ClusterConfiguration": yaml.safe_dump(configuration)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config"}, "data": kept}
    lab.api.create("/api/v1/namespaces/kube-system/configmaps", body)
    for number in (1, 2, 3):
        words = [f"--advertise-address=10.0.0.{number}", "--secure-port=6443", f"{ISSUERS[0]}{OWN}"]
        lab.show_api_server(f"master-{number}", ["kube-apiserver", *words])
        # As the cookbook does.
        host = lab.hosts[f"master-{number}"]
        host.shell("cp -rn /etc/causeway/secrets/kubernetes-pki/. /etc/kubernetes/pki")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "porter"}}
    lab.api.create("/api/v1/namespaces/default/serviceaccounts", account)

    volumes("s3")
    lab.invoke("cluster.change-issuer", "--yes")
    first = signed(lab, "porter")
    assert issuer_of(first) == s3

    volumes("cloudfront", "s3")
    _, err = lab.invoke("cluster.change-issuer", "--yes", code=1)
    assert "kubernetes.issuers: cloudfront is not applied from here" in err
    file = lab.folder / "build/lab/state/outputs.json"
    urls = {"web_identity": {"issuer": {"urls": {"s3": s3, "cloudfront": cloudfront}}}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **urls}))
    (lab.folder / "broken-master-2").touch()
    _, err = lab.invoke("cluster.change-issuer", "--yes", code=1)
    assert "failed in step 4, master-2 accepts all issuers" in err
    assert issuer_of(signed(lab, "porter")) == s3, "nobody signs as an issuer that a master does not accept"
    (lab.folder / "broken-master-2").unlink()
    out, _ = lab.invoke("cluster.change-issuer", "--yes", "--json")
    told = json.loads(out)
    assert [each["did"] for each in told["steps"][:4]] == [
        "as they were",
        "they are read over HTTPS",
        "it does",
        "its API server was started again",
    ]
    assert (told["signs"], told["old"]) == (cloudfront, [])
    second = signed(lab, "porter")
    assert issuer_of(second) == cloudfront
    assert [accepted(lab, token) for token in (first, second)] == [True, True]

    volumes("cloudfront")
    _, err = lab.invoke("cluster.change-issuer", "--yes", code=1)
    assert f"pods may hold tokens of {s3}, which is still accepted; it can be forgotten from" in err
    # Two days later.
    api_server_issuers.note_signer(lab.api, cloudfront, datetime.now(UTC) - timedelta(days=2))
    out, _ = lab.invoke("cluster.change-issuer", "--yes")
    assert f"{s3} is no longer accepted; to take it out of AWS: invoke apply" in out
    assert [accepted(lab, token) for token in (first, second)] == [False, True]
    assert api_server_issuers.configured(lab.api, "") == (cloudfront, OWN), "as masters that join have it"


def issuer_of(token: str) -> str:
    body = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["iss"])


def signed(lab: Lab, account: str = "robot") -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    found = lab.api.create(f"/api/v1/namespaces/default/serviceaccounts/{account}/token", body)
    return str(found["status"]["token"])


def key_of(token: str) -> str:
    head = token.partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"])


def accepted(lab: Lab, token: str) -> bool:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    found = lab.api.create("/apis/authentication.k8s.io/v1/tokenreviews", body)
    return bool(found["status"].get("authenticated"))


def test_whose_profile_is_revoked_is_out_of_the_cluster(lab: Lab) -> None:
    out, _ = lab.invoke("vpn.revoke", "--user", "ada")
    assert "Kubernetes: ada is out of" in out
    assert "Forbidden" in kubectl(lab, "ada.yaml", "get", "pods").stderr
    lab.invoke("cluster.up")
    assert "Forbidden" in kubectl(lab, "ada.yaml", "get", "pods").stderr, "no way back while it holds"
    _, err = lab.invoke("kubeconfig", "--user", "ada", code=1)
    assert "were revoked, and hold until" in err


def test_a_copy_of_etcd_is_put_back_on_all_masters(lab: Lab) -> None:
    out, err = lab.invoke("cluster.restore")
    assert out.splitlines()[1].split()[0] == "snapshots/20261120T1200Z.db", "the newest is first"
    _, err = lab.invoke("cluster.restore", "--latest", code=1)
    assert "nothing was done: that was not agreed to" in err
    _, err = lab.invoke("cluster.restore", "--snapshot", "snapshots/20261120T1300Z.db", "--yes", code=1)
    assert "no such copy; did you mean" in err
    _, err = lab.invoke("cluster.restore", "--latest", "--lost", "master-9", code=1)
    assert "master-9: no master; there are master-1, master-2 and master-3" in err
    (lab.folder / "broken-master-2").touch()
    _, err = lab.invoke("cluster.restore", "--latest", "--yes", code=1)
    assert "failed in step 1, stop master-1, master-2 and master-3" in err
    assert "master-2.test.internal" in err
    (lab.folder / "broken-master-2").unlink()
    assert "restore" not in (lab.folder / "restored").read_text(), "one still runs"
    (lab.folder / "restored").unlink()
    _, err = lab.invoke("cluster.restore", "--latest", "--yes", "--lost", "master-3")
    assert "is lost" in err
    assert (lab.folder / "restored").read_text().split("\n") == [
        "list ",
        *["stop "] * 2,
        *["restore snapshots/20261120T1200Z.db"] * 2,
        "",
    ], "nobody begins anew while another one still writes"


def test_an_api_that_is_away_is_no_cluster_to_begin_anew(lab: Lab) -> None:
    assert lab.server is not None
    lab.server.stop()
    _, err = lab.invoke("cluster.status", code=1)
    assert "the API does not answer at" in err
    _, err = lab.invoke("converge", "--nodes", "titan-01")
    assert "machines that are not nodes yet do not join in this run" in err
    lab.server.start()
    lab.invoke("cluster.status")


def test_a_master_that_was_set_up_anew_begins_no_second_cluster(lab: Lab) -> None:
    assert lab.server is not None
    lab.server.stop()
    for name in ("master-1", "master-3"):
        lab.hosts[name].shell("mv /etc/kubernetes/admin.conf /etc/kubernetes/admin.conf.before")
    _, err = lab.invoke("converge", "--nodes", "master-1", code=1)
    assert (
        "master-2 is of a cluster whose API is away, and master-1 is not: it would begin another one" in err
    )
    for name in ("master-1", "master-3"):
        lab.hosts[name].shell("mv /etc/kubernetes/admin.conf.before /etc/kubernetes/admin.conf")
    lab.server.start()
    lab.invoke("cluster.status")


@pytest.fixture
def members(lab: Lab, tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """etcd as three masters have it, beside the API server's own, and their pods."""
    names = ("master-1", "master-2", "master-3")
    (lab.folder / "etcd").mkdir()
    found = {}
    with ExitStack() as stack:
        ports = {name: stack.enter_context(reserved(2)) for name in names}
        cluster = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in ports.items())
        for name, (client, peer) in ports.items():
            words = [
                need("etcd"), "--name", name, "--data-dir", str(tmp_path / name), "--unsafe-no-fsync",
                "--listen-client-urls", f"http://127.0.0.1:{client}",
                "--advertise-client-urls", f"http://127.0.0.1:{client}",
                "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", cluster,
            ]  # fmt: skip
            with (tmp_path / f"{name}.log").open("wb") as log:
                found[name] = subprocess.Popen(words, stdout=log, stderr=log)
            stack.callback(found[name].wait)
            stack.callback(found[name].kill)
            (lab.folder / "etcd" / name).write_text(f"http://127.0.0.1:{client}")
            body = pod(f"etcd-{name}", name, labels={"component": "etcd"})
            body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
            lab.api.create("/api/v1/namespaces/kube-system/pods", {**body, "metadata": {
                **body["metadata"], "namespace": "kube-system"}})  # fmt: skip
            running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            lab.api.patch(f"/api/v1/namespaces/kube-system/pods/etcd-{name}/status", {"status": running})
        wait_until_well(lab, *names)
        yield found


def wait_until_well(lab: Lab, *names: str) -> None:
    """These members answer, and have a leader."""
    endpoints = ",".join((lab.folder / "etcd" / name).read_text() for name in names)
    words = [need("etcdctl"), f"--endpoints={endpoints}", "endpoint", "health"]
    deadline = time.monotonic() + 120
    while (done := subprocess.run(words, capture_output=True, env={"ETCDCTL_API": "3"})).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(1)


def member_names(lab: Lab, through: str) -> list[str]:
    endpoint = (lab.folder / "etcd" / through).read_text()
    words = [need("etcdctl"), f"--endpoints={endpoint}", "member", "list", "--write-out=json"]
    said = subprocess.run(words, capture_output=True, check=True, env={"ETCDCTL_API": "3"}).stdout
    return sorted(each["name"] for each in json.loads(said)["members"])


def forget_pod(lab: Lab, master: str) -> None:
    """As the garbage collector does with pods of a node that is gone."""
    path = f"/api/v1/namespaces/kube-system/pods/etcd-{master}"
    lab.api._call("DELETE", path, query={"gracePeriodSeconds": "0"})


def test_masters_leave_etcd_while_most_of_it_stays(
    lab: Lab, members: dict[str, subprocess.Popen[bytes]]
) -> None:
    out, _ = lab.invoke("cluster.status")
    assert "etcd: 3 of 3 well" in out
    # With one of three down, the others must stay.
    members["master-2"].send_signal(signal.SIGSTOP)
    _, err = lab.invoke("cluster.remove", "master-1", "--yes", code=1)
    assert "without master-1, 1 of 2 members of etcd would be well, which is no majority" in err
    members["master-2"].send_signal(signal.SIGCONT)
    wait_until_well(lab, *members)
    # One that can be reached, and whose reset did not take the member out.
    _, err = lab.invoke("cluster.remove", "master-3", "--yes")
    assert "master-3 leaves etcd" in err
    assert "taken out" in err
    assert member_names(lab, "master-1") == ["master-1", "master-2"]
    assert lab.api.find("/api/v1/nodes/master-3") is None
    forget_pod(lab, "master-3")
    # One whose machine is gone, for good. The two that are left may have to find a leader first.
    wait_until_well(lab, "master-1", "master-2")
    lab.hosts["master-2"].stop()
    out, err = lab.invoke("cluster.remove", "master-2", "--yes", "--lost", "--json")
    assert json.loads(out)["failed"] == []
    assert "reset master-2" in err
    assert member_names(lab, "master-1") == ["master-1"]
    forget_pod(lab, "master-2")
    _, err = lab.invoke("cluster.remove", "master-1", "--yes", code=1)
    assert "master-1 holds all there is of the cluster: it can't be removed" in err


def test_nobody_begins_a_cluster_while_a_master_can_not_be_asked(lab: Lab) -> None:
    assert lab.server is not None
    lab.server.stop()
    for name in ("master-1", "master-3"):
        lab.hosts[name].shell("rm /etc/kubernetes/admin.conf")
    _, err = lab.invoke("converge", "--nodes", "master-1", code=1)
    assert "master-1 would begin a cluster, and who may have one can't be asked" in err
    assert "master-2" in err
