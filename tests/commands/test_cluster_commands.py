"""`invoke cluster.…` and `kubeconfig` as a person runs them: a walk through one cluster's life, in order.

It is begun, fails on the way and goes on; it is upgraded, its keys are rotated, its etcd is put back, and it
loses its masters. ``tests/messages/cluster.txt`` has what each command says that refuses or fails.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from commands import cluster_lab
from commands.cluster_lab import ISSUERS, MACHINES, MASTERS, OWN, Lab
from drive.kubernetes.https_pages import serving
from golden_folders import assert_text
from invoking import ROOT
from kube.api import pod
from kube.plane import member
from kube_tools import kubectl as kubectl_program
from kube_tools import need
from ports import reserved

from infra.drive import localaws
from infra.drive.kubernetes import api_server_issuers, secrets

ADDRESSES = "/api/v1/namespaces/causeway-system/configmaps/node-addresses"
MESSAGES = Path(__file__).parents[1] / "messages" / "cluster.txt"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with cluster_lab.running(tmp_path_factory.mktemp("lab")) as world:
        yield world


# -- Begun -------------------------------------------------------------------------------------------------


def test_a_plan_before_there_is_anything_makes_nothing(lab: Lab) -> None:
    out, _ = lab.invoke("cluster.up", "--plan", "--json")
    rows = {row["step"]: row["would"] for row in json.loads(out)}
    assert "initializes" in rows["master-1"]
    assert rows["master-2"] == rows["master-3"] != rows["master-1"]
    assert set(MACHINES[3:]) <= set(re.findall(r"[\w-]+", rows["machines"]))
    assert not secrets.exist(lab.store)
    for words in (("cluster.status",), ("kubeconfig", "--user", "ada"), ("cluster.drain", "titan-01")):
        lab.refused(*words)


def test_a_machine_that_fails_stops_the_run_and_it_goes_on_from_there(lab: Lab) -> None:
    with lab.broken("master-2"):
        lab.refused("cluster.up")
    first = lab.brought("master-1")["have"]
    assert "kubernetes-join.yaml" not in first
    assert {"kubernetes-pki/ca.key", "kubernetes-pki/etcd/ca.key", "kubernetes-pki/sa.key"} <= first.keys()
    assert set(first.values()) == {"0o600"}
    assert "kubernetes-join.yaml" in lab.brought("master-2")["have"]
    out, _ = lab.invoke("cluster.up", "--json")
    result = json.loads(out)
    assert [row["state"] for row in result["status"]["masters"]] == ["ready"] * 3
    assert sum(row["ready"] for row in result["status"]["nodes"]) == len(MACHINES)
    joined = lab.brought("titan-01")["have"]
    assert [path for path in joined if "pki" in path] == [], "a worker gets no keys of the cluster"
    assert lab.api.find("/api/v1/namespaces/user-ada") is not None
    assert lab.api.get(ADDRESSES)["data"]["master-2"] == "10.0.0.2", "masters approve certificates by it"
    # No secret is left here, or in a digest or a log.
    needle = secrets.made(lab.store, datetime.now(UTC)).ca.key.splitlines()[2].encode()
    files = [path for path in (lab.folder / "build").rglob("*") if path.is_file()]
    assert not [path for path in files if needle in path.read_bytes()]
    assert list((lab.folder / "build" / "lab" / "state").glob("kube-*")) == []


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    def versions() -> dict[str, str]:
        roles = lab.api.list("/apis/rbac.authorization.k8s.io/v1/clusterroles")
        return {role["metadata"]["name"]: role["metadata"]["resourceVersion"] for role in roles}

    before = versions()
    out, _ = lab.invoke("cluster.up", "--plan", "--json")
    applied = {row["would"] for row in json.loads(out) if row["step"].startswith("apply")}
    assert applied == {"nothing"}
    # One master that is down keeps nobody from the rest.
    with lab.broken("master-3"):
        out, _ = lab.invoke("cluster.up", "--json", code=1)
    result = json.loads(out)
    assert ["master-3" in failure for failure in result["failed"]] == [True]
    assert result["steps"][-1]["step"].startswith("delete")
    assert versions() == before
    assert "kubernetes-join.yaml" not in lab.brought("titan-01")["have"], "a node needs no token any more"


def test_ctrl_c_says_where_it_stopped_and_gives_the_turn_back(lab: Lab) -> None:
    running = lab.project.start("cluster.up")
    assert running.stderr is not None
    for line in running.stderr:
        if "apply namespaces" in line:
            running.send_signal(signal.SIGINT)
            break
    _, err = running.communicate(timeout=300)
    assert running.returncode == 130, err
    assert re.search(r"step \d+, apply namespaces\. .*invoke cluster\.up --env lab", err)
    lease = lab.api.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/causeway-operation")
    assert not lease["spec"].get("holderIdentity")


# -- At work -----------------------------------------------------------------------------------------------


def test_status_tells_what_is_not_well(lab: Lab) -> None:
    lab.api.patch("/api/v1/nodes/titan-02", {"metadata": {"annotations": {"causeway/gpu-health": "GPU 0"}}})
    out, err = lab.invoke("cluster.status", code=1)
    assert "titan-02" in err
    assert "GPU 0" in err
    assert "master-1" in out
    out, _ = lab.invoke("cluster.status", "--json", code=1)
    assert json.loads(out)["wanted"].startswith("1.36.")
    lab.api.patch("/api/v1/nodes/titan-02", {"metadata": {"annotations": {"causeway/gpu-health": None}}})


def kubectl(
    lab: Lab, file: str, *words: str, path: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """As a user runs it, with a kubeconfig of the project's folder."""
    path = path or f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(lab.folder / "config")}
    command = [kubectl_program(), "--kubeconfig", str(lab.folder / file), *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd or lab.folder, env=env
    )


def test_a_user_works_in_their_namespace(lab: Lab, tmp_path: Path) -> None:
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
    done = kubectl(lab, "exec.yaml", "auth", "whoami", "-o", "json", path="/usr/bin:/bin", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["userInfo"]["username"] == "ada"
    lab.refused("kubeconfig", "--user", "adaa")
    lab.refused("kubeconfig", "--user", "ada", "--hours", "100000")


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
    assert {"default/web", "always-one"} <= set(re.findall(r"[\w/-]+", err))
    assert lab.api.get("/api/v1/nodes/titan-01")["spec"]["unschedulable"] is True
    lab.invoke("cluster.drain", "titan-01", "--undo")
    assert "unschedulable" not in lab.api.get("/api/v1/nodes/titan-01")["spec"]
    lab.api.delete(f"{budgets}/always-one")
    lab.api._call("DELETE", "/api/v1/namespaces/default/pods/web", query={"gracePeriodSeconds": "0"})
    for name in ("titan-03", "titan-*", ""):
        lab.refused("cluster.drain", name)
        lab.refused("cluster.remove", name, "--yes")


def test_a_node_is_removed_and_comes_back(lab: Lab) -> None:
    lab.refused("cluster.remove", "titan-02")
    lab.invoke("cluster.remove", "titan-02", "--yes")
    assert lab.api.find("/api/v1/nodes/titan-02") is None
    lab.invoke("converge", "--nodes", "titan-02")
    assert "kubernetes-join.yaml" in lab.brought("titan-02")["have"]
    assert lab.api.find("/api/v1/nodes/titan-02") is not None
    lab.api.patch(ADDRESSES, {"data": {"master-2": None}})
    lab.invoke("cluster.add-node", "master-2")
    assert lab.api.get(ADDRESSES)["data"]["master-2"] == "10.0.0.2"
    lab.refused("cluster.remove", "master-1", "--yes")


# -- Upgraded ----------------------------------------------------------------------------------------------


def test_upgrade_follows_the_spec_and_stops_at_a_gate(lab: Lab) -> None:
    lab.refused("cluster.upgrade", "--to", "1.37")
    # The same minor: nodes that are behind it go up, one at a time.
    for name in MACHINES:
        version = {"status": {"nodeInfo": {"kubeletVersion": "v1.35.4"}}}
        lab.api.patch(f"/api/v1/nodes/{name}/status", version)
    out, _ = lab.invoke("cluster.upgrade", "--to", "1.36", "--plan", "--json")
    assert json.loads(out)["masters"] == [*MASTERS]
    (lab.folder / "version").write_text("v1.35.4\n")
    lab.refused("cluster.upgrade", "--to", "1.36", "--yes", "--gate", "3")
    assert "--override-runlist" in lab.brought("master-1")["run"]
    assert "--override-runlist" not in lab.brought("master-2")["run"]
    (lab.folder / "version").write_text("v1.36.3\n")
    out, err = lab.invoke("cluster.upgrade", "--to", "1.36", "--yes", "--gate", "3", "--json")
    steps = [row["step"].split(" ")[0] for row in json.loads(out)["steps"][::2]]
    assert steps == [*MACHINES]
    assert "Continuing" in err
    assert "kubernetes-upgrade.conf" in lab.brought("titan-01")["have"]
    assert "kubernetes-upgrade.conf" not in lab.brought("master-1")["have"]
    out, _ = lab.invoke("cluster.upgrade", "--to", "1.36", "--yes", "--json")
    assert json.loads(out)["steps"] == []


# -- Rotated -----------------------------------------------------------------------------------------------


def restarted(lab: Lab) -> list[str]:
    """The masters whose API servers were started again since this was asked last."""
    file = lab.folder / "restarts"
    names = file.read_text().split()
    file.unlink()
    return names


def at_rest(lab: Lab, name: str) -> bytes:
    """A secret as etcd has it."""
    assert lab.plane is not None
    words = [need("etcdctl"), "--endpoints", lab.plane.etcd, "get", f"/registry/secrets/default/{name}"]
    return subprocess.run(words, capture_output=True, check=True, env={"ETCDCTL_API": "3"}).stdout


def test_secrets_get_another_key_at_rest_and_the_old_one_is_forgotten(lab: Lab) -> None:
    metadata = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "old"}}
    lab.api.create("/api/v1/namespaces/default/secrets", {**metadata, "stringData": {"word": "yes"}})
    assert b"k8s:enc:secretbox:v1:key1:" in at_rest(lab, "old")
    lab.refused("cluster.rotate-encryption")
    with lab.broken("master-2"):
        lab.refused("cluster.rotate-encryption", "--yes")
    assert secrets.rotation(lab.store) == "added", "nobody writes with a key that a master does not have"
    restarted(lab)
    lab.invoke("cluster.rotate-encryption", "--yes")
    assert restarted(lab) == [*MASTERS] * 3
    assert b"k8s:enc:secretbox:v1:key2:" in at_rest(lab, "old")
    assert lab.api.get("/api/v1/namespaces/default/secrets/old")["data"] == {"word": "eWVz"}
    (key,) = json.loads(secrets.made(lab.store, datetime.now(UTC)).encryption)
    assert key["name"] == "key2"


def account(lab: Lab, name: str) -> Callable[[], str]:
    """Makes tokens of a new service account."""
    path = "/api/v1/namespaces/default/serviceaccounts"
    lab.api.create(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})

    def token() -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(lab.api.create(f"{path}/{name}/token", body)["status"]["token"])

    return token


def part(token: str, position: int) -> dict[str, Any]:
    """A token's header (0) or its claims (1)."""
    text = token.split(".")[position]
    value: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return value


def accepted(lab: Lab, *tokens: str) -> list[bool]:
    """Whether the API server takes each of them."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    reviews = [
        lab.api.create("/apis/authentication.k8s.io/v1/tokenreviews", {**body, "spec": {"token": token}})
        for token in tokens
    ]
    return [bool(review["status"].get("authenticated")) for review in reviews]


def test_tokens_are_signed_with_another_key_and_none_is_lost(lab: Lab) -> None:
    """What AWS makes of them is in tests/localaws/test_web_identity.py."""
    token = account(lab, "robot")
    before = token()
    with lab.broken("master-2"):
        lab.refused("cluster.rotate-signing-key", "--yes")
    old_key = part(before, 0)["kid"]
    assert part(token(), 0)["kid"] == old_key, "nobody signs with a key that a master does not know"
    out, _ = lab.invoke("cluster.rotate-signing-key", "--yes", "--json")
    forgets = json.loads(out)["forgets_from"]
    after = token()
    assert part(after, 0)["kid"] != old_key
    assert accepted(lab, before, after) == [True, True]
    assert forgets[:10] in lab.refused("cluster.rotate-signing-key", "--yes")
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
    lab.refused("cluster.rotate-signing-key", "--yes")
    lab.api.delete("/api/v1/namespaces/default/secrets/ever")
    out, _ = lab.invoke("cluster.rotate-signing-key", "--yes", "--json")
    assert json.loads(out)["forgets_from"] is None
    assert (lab.folder / "managers").read_text().split()[-3:] == [*MASTERS]
    assert accepted(lab, before, after) == [False, True]


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
        published = boto3.client("s3").get_object(Bucket="lab-oidc", Key=f"cloudfront/{path}")
        return 200, published["Body"].read()

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
    data = {"ClusterConfiguration": yaml.safe_dump(configuration)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config"}, "data": data}
    lab.api.create("/api/v1/namespaces/kube-system/configmaps", body)
    for number, master in enumerate(MASTERS, 1):
        words = [f"--advertise-address=10.0.0.{number}", "--secure-port=6443", f"{ISSUERS[0]}{OWN}"]
        lab.show_api_server(master, ["kube-apiserver", *words])
        # As the cookbook does.
        lab.hosts[master].shell("cp -rn /etc/causeway/secrets/kubernetes-pki/. /etc/kubernetes/pki")
    token = account(lab, "porter")

    volumes("s3")
    lab.invoke("cluster.change-issuer", "--yes")
    first = token()
    assert part(first, 1)["iss"] == s3

    volumes("cloudfront", "s3")
    lab.refused("cluster.change-issuer", "--yes")
    file = lab.folder / "build/lab/state/outputs.json"
    urls = {"web_identity": {"issuer": {"urls": {"s3": s3, "cloudfront": cloudfront}}}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **urls}))
    with lab.broken("master-2"):
        lab.refused("cluster.change-issuer", "--yes")
    assert part(token(), 1)["iss"] == s3, "nobody signs as an issuer that a master does not accept"
    out, _ = lab.invoke("cluster.change-issuer", "--yes", "--json")
    result = json.loads(out)
    published, readable, *accepts = [row["did"] for row in result["steps"][:5]]
    assert published != readable
    assert accepts[0] != accepts[1] == accepts[2], "master-1 was restarted before the failure"
    assert (result["signs"], result["old"]) == (cloudfront, [])
    second = token()
    assert part(second, 1)["iss"] == cloudfront
    assert accepted(lab, first, second) == [True, True]

    volumes("cloudfront")
    assert s3 in lab.refused("cluster.change-issuer", "--yes")
    # Two days later.
    api_server_issuers.note_signer(lab.api, cloudfront, datetime.now(UTC) - timedelta(days=2))
    out, _ = lab.invoke("cluster.change-issuer", "--yes")
    assert s3 in out
    assert accepted(lab, first, second) == [False, True]
    assert api_server_issuers.configured(lab.api, "") == (cloudfront, OWN), "as masters that join have it"


def test_whose_profile_is_revoked_is_out_of_the_cluster(lab: Lab) -> None:
    lab.invoke("vpn.revoke", "--user", "ada")
    assert "Forbidden" in kubectl(lab, "ada.yaml", "get", "pods").stderr
    lab.invoke("cluster.up")
    assert "Forbidden" in kubectl(lab, "ada.yaml", "get", "pods").stderr, "no way back while it holds"
    lab.refused("kubeconfig", "--user", "ada")


# -- Restored ----------------------------------------------------------------------------------------------


def test_a_copy_of_etcd_is_put_back_on_all_masters(lab: Lab) -> None:
    newest = "snapshots/20261120T1200Z.db"
    out, _ = lab.invoke("cluster.restore")
    assert out.splitlines()[1].split()[0] == newest
    lab.refused("cluster.restore", "--latest")
    lab.refused("cluster.restore", "--snapshot", "snapshots/20261120T1300Z.db", "--yes")
    lab.refused("cluster.restore", "--latest", "--lost", "master-9")
    with lab.broken("master-2"):
        lab.refused("cluster.restore", "--latest", "--yes")
    calls = lab.folder / "restored"
    assert "restore" not in calls.read_text(), "one still runs"
    calls.unlink()
    lab.invoke("cluster.restore", "--latest", "--yes", "--lost", "master-3")
    expected = ["list ", *["stop "] * 2, *[f"restore {newest}"] * 2]
    assert calls.read_text().splitlines() == expected, "nobody begins anew while another one still writes"


def test_a_cluster_whose_api_is_away_is_not_begun_anew(lab: Lab) -> None:
    assert lab.plane is not None
    lab.plane.stop()
    lab.refused("cluster.status")
    _, err = lab.invoke("converge", "--nodes", "titan-01")
    assert "join" in err
    # A master that was set up anew.
    for name in ("master-1", "master-3"):
        lab.hosts[name].shell("mv /etc/kubernetes/admin.conf /etc/kubernetes/admin.conf.before")
    lab.refused("converge", "--nodes", "master-1")
    for name in ("master-1", "master-3"):
        lab.hosts[name].shell("mv /etc/kubernetes/admin.conf.before /etc/kubernetes/admin.conf")
    lab.plane.start()
    lab.invoke("cluster.status")


# -- Without masters ---------------------------------------------------------------------------------------


@pytest.fixture
def members(lab: Lab, tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """etcd as three masters have it, beside the API server's own, and their pods."""
    (lab.folder / "etcd").mkdir()
    processes = {}
    with ExitStack() as stack:
        ports = {name: stack.enter_context(reserved(2)) for name in MASTERS}
        for name, (client, _) in ports.items():
            processes[name] = member(tmp_path, name, ports)
            stack.callback(processes[name].wait)
            stack.callback(processes[name].kill)
            (lab.folder / "etcd" / name).write_text(f"http://127.0.0.1:{client}")
            body = pod(f"etcd-{name}", name, namespace="kube-system", labels={"component": "etcd"})
            body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
            lab.api.create("/api/v1/namespaces/kube-system/pods", body)
            running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            lab.api.patch(f"/api/v1/namespaces/kube-system/pods/etcd-{name}/status", {"status": running})
        wait_until_well(lab, *MASTERS)
        yield processes


def etcdctl(lab: Lab, *words: str, through: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    endpoints = ",".join((lab.folder / "etcd" / name).read_text() for name in through)
    command = [need("etcdctl"), f"--endpoints={endpoints}", *words]
    return subprocess.run(command, capture_output=True, env={"ETCDCTL_API": "3"}, check=False)


def wait_until_well(lab: Lab, *names: str) -> None:
    """These members answer, and have a leader."""
    deadline = time.monotonic() + 120
    while (done := etcdctl(lab, "endpoint", "health", through=names)).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(1)


def member_names(lab: Lab) -> list[str]:
    listing = etcdctl(lab, "member", "list", "--write-out=json", through=("master-1",)).stdout
    return sorted(member["name"] for member in json.loads(listing)["members"])


def forget_pod(lab: Lab, master: str) -> None:
    """As the garbage collector does with pods of a node that is gone."""
    path = f"/api/v1/namespaces/kube-system/pods/etcd-{master}"
    lab.api._call("DELETE", path, query={"gracePeriodSeconds": "0"})


def test_masters_leave_etcd_while_most_of_it_stays(
    lab: Lab, members: dict[str, subprocess.Popen[bytes]]
) -> None:
    out, _ = lab.invoke("cluster.status", "--json")
    assert [member["healthy"] for member in json.loads(out)["etcd"]["members"]] == [True] * 3
    # With one of three down, the others must stay.
    members["master-2"].send_signal(signal.SIGSTOP)
    lab.refused("cluster.remove", "master-1", "--yes")
    members["master-2"].send_signal(signal.SIGCONT)
    wait_until_well(lab, *members)
    # One that can be reached, and whose reset did not take the member out.
    lab.invoke("cluster.remove", "master-3", "--yes")
    assert member_names(lab) == ["master-1", "master-2"]
    assert lab.api.find("/api/v1/nodes/master-3") is None
    forget_pod(lab, "master-3")
    # One whose machine is gone, for good. The two that are left may have to find a leader first.
    wait_until_well(lab, "master-1", "master-2")
    lab.hosts["master-2"].stop()
    out, _ = lab.invoke("cluster.remove", "master-2", "--yes", "--lost", "--json")
    assert json.loads(out)["failed"] == []
    assert member_names(lab) == ["master-1"]
    forget_pod(lab, "master-2")
    lab.refused("cluster.remove", "master-1", "--yes")


def test_nobody_begins_a_cluster_while_a_master_can_not_be_asked(lab: Lab) -> None:
    assert lab.plane is not None
    lab.plane.stop()
    for name in ("master-1", "master-3"):
        lab.hosts[name].shell("rm /etc/kubernetes/admin.conf")
    assert "master-2" in lab.refused("converge", "--nodes", "master-1")


def test_what_was_said(lab: Lab, request: pytest.FixtureRequest) -> None:
    """The end of each command above that refused or failed."""
    assert_text(MESSAGES, "".join(lab.errors.values()), rewrite=request.config.getoption("--update-golden"))
