"""A lab for `invoke cluster.…`: a real API server, real OpenSSH servers, a project folder.

On the machines, Chef is a stand-in (``drive/machines/hosts.py``) that does what a kubelet would: it
looks at what it was brought, and its node appears in the API. The API server is begun by the first
master's. kube-controller-manager signs certificates and does nothing else: a thread says of workloads
that they have come up.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from drive.kubernetes import masters
from drive.machines.hosts import CHEF, Hosts
from drive.machines.hosts import running as hosts_running
from invoking import ROOT, Project
from kube.api import node, pod
from kube.plane import ISSUER, SIGNERS, Plane, planes
from kube_tools import kubectl as kubectl_program
from kube_tools import need
from machines.deb import with_client
from ports import reserved

from infra.catalogue.tables import table
from infra.drive.kubernetes import secrets
from infra.drive.kubernetes.api import Api, ApiError, AwayError
from infra.drive.pki import Pki
from infra.drive.secrets.local import LocalStore

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

MASTERS = ("master-1", "master-2", "master-3")
MACHINES = (*MASTERS, "titan-01", "titan-02", "vpn-us-west-2")

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
options = ("--endpoints", "--cacert", "--cert", "--key")
words = [word for word in sys.argv[sys.argv.index("etcdctl") + 1:] if not word.startswith(options)]
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

    def __init__(self, api: Api) -> None:
        super().__init__(daemon=True)
        self._api = api
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.5):
            try:
                self._once()
            except (ApiError, AwayError):
                continue

    def _once(self) -> None:
        for kind in ("deployments", "daemonsets", "statefulsets"):
            for workload in self._api.list(f"/apis/apps/v1/{kind}"):
                metadata = workload["metadata"]
                if (workload.get("status") or {}).get("observedGeneration") == metadata["generation"]:
                    continue
                count = (workload.get("spec") or {}).get("replicas") or 1
                status: dict[str, Any] = {"observedGeneration": metadata["generation"], "replicas": count}
                status |= {"updatedReplicas": count, "readyReplicas": count, "availableReplicas": count}
                if kind == "daemonsets":
                    status = {"observedGeneration": metadata["generation"], "desiredNumberScheduled": 1,
                              "currentNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1,
                              "numberReady": 1, "numberMisscheduled": 0}  # fmt: skip
                path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}/status"
                self._api.patch(path, {"status": status})


class Lab:
    """A project folder, its machines, and an API server that is not begun yet."""

    def __init__(self, folder: Path, hosts: Hosts, stack: ExitStack) -> None:
        self.folder = folder
        self.hosts = hosts
        self.plane: Plane | None = None
        self.errors: dict[str, str] = {}
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
        flags = [f"{ISSUER}{OWN}"]
        plane = planes(self.folder / "api", keys, port=self.port, flags=flags)
        self.plane = self._stack.enter_context(plane)
        (self.folder / "admin.conf").write_text(self.plane.kubeconfig.read_text())
        self._stack.enter_context(self.plane.controllers(*SIGNERS))
        for name in MASTERS:
            masters.equip(self.hosts[name], self.folder / "machines", self.plane)
        controllers = Controllers(self.plane.driven)
        controllers.start()
        self._stack.callback(controllers.ended.set)
        (self.folder / "serving").touch()
        while not controllers.ended.wait(0.1):
            if (self.folder / "restart").exists():
                self.plane.stop()
                self.plane.start()
                (self.folder / "restart").unlink()
            for manifest in sorted((self.folder / "manifests").glob("*.yaml")):
                self._kubelet(manifest.stem, yaml.safe_load(manifest.read_text())["spec"])
                manifest.unlink()

    def _kubelet(self, master: str, spec: dict[str, Any]) -> None:
        """A master's API server starts with its manifest's issuers, and its pod is shown as ready. There is
        one API server: it has what the master that was changed last has."""
        assert self.plane is not None
        command = spec["containers"][0]["command"]
        issuers = [word for word in command if word.startswith(ISSUERS)]
        if sorted(issuers) != sorted(flag for flag in self.plane.flags if flag.startswith(ISSUERS)):
            others = [flag for flag in self.plane.flags if not flag.startswith(ISSUERS)]
            self.plane.flags = [*others, *issuers]
            self.plane.stop()
            self.plane.start()
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
        assert self.plane is not None
        return self.plane.driven

    def brought(self, name: str) -> dict[str, Any]:
        """What a machine had in the last run of Chef."""
        rows: list[dict[str, Any]] = [
            json.loads(line) for line in (self.folder / "brought").read_text().splitlines()
        ]
        return [row for row in rows if row["node"] == name][-1]

    @property
    def project(self) -> Project:
        folders = [self.folder / "bin", Path(kubectl_program()).parent]  # Helm is beside kubectl
        variables = {
            "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
            "KUBECONFIG": "",
            "CAUSEWAY_SSH_CONFIG": str(self.hosts.config),
            "CAUSEWAY_API": f"127.0.0.1:{self.port}",
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        return Project(self.folder, "lab", variables)

    def invoke(self, *words: str, code: int = 0) -> tuple[str, str]:
        return self.project.invoke(*words, code=code)

    def refused(self, *words: str) -> str:
        """What a command says on standard error that exits with 1. How it ends is in ``errors``, once."""
        _, err = self.invoke(*words, code=1)
        end = re.search(r"^(    failed in step|error:) .*", err, re.MULTILINE | re.DOTALL)
        assert end, err
        error = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "DATE", end[0].replace(str(self.folder), "."))
        error = re.sub(r"(:|port )\d{5}\b", r"\1PORT", error).removeprefix("error: ")
        self.errors.setdefault(error, f"{' '.join(words)}: {error.lstrip()}")
        return err

    @contextmanager
    def broken(self, machine: str) -> Iterator[None]:
        """What is done on this machine meanwhile fails."""
        file = self.folder / f"broken-{machine}"
        file.touch()
        yield
        file.unlink()


@contextmanager
def running(folder: Path) -> Iterator[Lab]:
    """A lab that is applied, whose machines are bare. Skips where a program is missing."""
    need("kube-apiserver")
    need("helm")
    for name in ("environments", "nodes", "manifests", "machines", "bin"):
        (folder / name).mkdir()
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
        hosts = stack.enter_context(hosts_running(folder / "machines", *MACHINES, chef=chef))
        for name in MACHINES:
            masters.own_etc(hosts[name])
            hosts[name].shell(f"echo {name} >/run/lab-host")
        world = Lab(folder, hosts, stack)
        pki = Pki(world.store, domain="test.internal", clock=lambda: datetime.now(UTC))
        pki.create("a passphrase", "lab")
        yield world
