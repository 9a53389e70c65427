"""What the drive says to a cluster, against a real API server that was begun with keys from our store."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from golden_clusters import golden
from kube.api import node, pod
from kube.plane import NAME, Plane

from infra.catalogue.identities import CLIENT_SIGNER, KUBECONFIGS
from infra.drive.kubernetes import access, apply, certificates, joining, kubeconfig, lease, secrets, status
from infra.drive.kubernetes.access import Access, Endpoint
from infra.drive.kubernetes.api import Api, ApiError, AwayError
from infra.drive.kubernetes.apply import Part
from infra.drive.kubernetes.kubectl import Kubectl
from infra.drive.kubernetes.refs import Ref
from infra.drive.kubernetes.secrets import Keys
from infra.drive.secrets.local import LocalStore
from infra.drive.ssh import Machine, RemoteError, UnreachedError
from infra.errors import DriveError, UsageError
from infra.render.kubernetes import access as rights

OURS = {"app.kubernetes.io/managed-by": "causeway"}
HOUR = timedelta(hours=1)
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def thing(api_version: str, kind: str, name: str, namespace: str = "", **body: Any) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": dict(OURS), **place},
        **body,
    }


SYSTEM = thing("v1", "Namespace", "causeway-system")


def test_an_administrator_comes_in_and_is_named_in_the_audit_log(api: Api, admin: Access) -> None:
    review = api.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    about = review["status"]["userInfo"]
    assert about["username"] == access.who()
    assert "system:masters" in about["groups"]
    assert {path.stat().st_mode & 0o777 for path in admin.folder.iterdir()} == {0o600}
    assert api.ready()


def test_credentials_end_with_the_block_and_are_renewed_in_it(admin: Access, api: Api) -> None:
    first = (admin.folder / "client.crt").read_text() if (admin.folder / "client.crt").exists() else ""
    api.get("/version")
    admin.ends = datetime.now(UTC) + timedelta(minutes=1)
    api.get("/version")
    assert (admin.folder / "client.crt").read_text() != first
    assert admin.made >= 2


def test_another_cluster_at_the_address_is_refused(plane: Plane, tmp_path: Path) -> None:
    other = certificates.authority("kubernetes-ca", datetime.now(UTC))
    with (
        access.opened(tmp_path, plane.endpoint, other) as found,
        pytest.raises(AwayError, match="another cluster"),
    ):
        Api(found).get("/version")
    assert not list((tmp_path / "state").glob("kube-*"))


def test_an_api_that_is_away_is_said_in_words(keys: Keys, tmp_path: Path) -> None:
    with access.opened(tmp_path, Endpoint(NAME, "127.0.0.1:9"), keys.ca) as found:
        assert not Api(found).ready()
        with pytest.raises(AwayError, match=r"127\.0\.0\.1:9 \(.*refused\)"):
            Api(found).get("/version")


def test_lists_come_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.drive.kubernetes.api.PAGE", 2)
    for number in range(5):
        api.create(
            "/api/v1/namespaces/default/configmaps", thing("v1", "ConfigMap", f"page-{number}", "default")
        )
    names = [each["metadata"]["name"] for each in api.list("/api/v1/namespaces/default/configmaps")]
    assert {f"page-{number}" for number in range(5)} <= set(names)
    assert list(api.list("/apis/kueue.x-k8s.io/v1beta1/clusterqueues")) == []


def test_secrets_are_encrypted_with_the_key_from_the_store(api: Api, plane: Plane) -> None:
    api.create(
        "/api/v1/namespaces/default/secrets",
        thing("v1", "Secret", "at-rest", "default", stringData={"word": "plainly-seen"}),
    )
    from kube_tools import need

    kept = subprocess.run(
        [need("etcdctl"), "--endpoints", plane.etcd, "get", "/registry/secrets/default/at-rest"],
        capture_output=True,
        check=True,
        env={"ETCDCTL_API": "3"},
    ).stdout
    assert b"k8s:enc:secretbox:v1:key1:" in kept
    assert b"plainly-seen" not in kept


def test_a_token_lets_a_kubelet_ask_for_its_certificate(api: Api, plane: Plane, keys: Keys) -> None:
    token = joining.new_token(api, datetime.now(UTC))
    kept = api.get(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token[:6]}")
    assert kept["type"] == "bootstrap.kubernetes.io/token"
    document = json.loads(joining.join_file(token, keys.ca.certificate, "api.test.internal:6443"))
    assert document["ca_cert_hashes"][0].startswith("sha256:")
    about = plane.who(token)
    assert isinstance(about, tuple)
    assert about[0] == f"system:bootstrap:{token[:6]}"
    assert "system:bootstrappers:kubeadm:default-node-token" in about[1]


# -- Applying ----------------------------------------------------------------------------------------------


def test_what_is_no_longer_rendered_goes_and_nothing_else(kubectl: Kubectl, api: Api) -> None:
    foreign = thing("v1", "ConfigMap", "foreign", "causeway-system")
    first = Part("first", (SYSTEM, thing("v1", "ConfigMap", "old", "causeway-system", data={"a": "1"}),
                           thing("v1", "Namespace", "user-ada")))  # fmt: skip
    unseen = (thing("v1", "Namespace", "unseen"), thing("v1", "ConfigMap", "new", "unseen"))
    assert apply.changes(kubectl, Part("unseen", unseen)) is None, "a namespace is yet to come"
    apply.apply(kubectl, api, first)
    del foreign["metadata"]["labels"]
    api.create("/api/v1/namespaces/causeway-system/configmaps", foreign)
    assert apply.changes(kubectl, first) == ()
    second = Part("first", (SYSTEM, thing("v1", "ConfigMap", "new", "causeway-system", data={"a": "2"})))
    assert apply.changes(kubectl, second) == ("v1.ConfigMap.causeway-system.new",)
    ada = Ref("v1", "Namespace", "", "user-ada")
    assert set(apply.surplus(kubectl, api, second)) == {Ref("v1", "ConfigMap", "causeway-system", "old"), ada}
    done = apply.apply(kubectl, api, second)
    assert done.pruned == (Ref("v1", "ConfigMap", "causeway-system", "old"),)
    assert done.kept == (ada,), "it holds her work"
    assert api.find("/api/v1/namespaces/user-ada") is not None
    assert apply.apply(kubectl, api, second).kept == (ada,), "it is told until it is decided"
    done = apply.apply(kubectl, api, second, destroy=["Namespace/user-ada"])
    assert done.pruned == (ada,)
    assert api.get("/api/v1/namespaces/user-ada")["status"]["phase"] == "Terminating"
    assert api.find("/api/v1/namespaces/causeway-system/configmaps/foreign") is not None
    gone = apply.drop(kubectl, api, [])
    assert Ref("v1", "ConfigMap", "causeway-system", "new") in gone.pruned
    assert Ref("v1", "Namespace", "", "causeway-system") in gone.kept


def test_an_object_that_somebody_made_their_own_is_left(kubectl: Kubectl, api: Api) -> None:
    mine = thing("v1", "ConfigMap", "adopted", "causeway-system")
    apply.apply(kubectl, api, Part("adopting", (SYSTEM, mine)))
    api.patch(
        "/api/v1/namespaces/causeway-system/configmaps/adopted",
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}},
    )
    assert apply.apply(kubectl, api, Part("adopting", (SYSTEM,))).pruned == ()
    assert api.find("/api/v1/namespaces/causeway-system/configmaps/adopted") is not None


def test_what_others_changed_of_ours_is_taken_back(kubectl: Kubectl, api: Api) -> None:
    part = Part("fields", (SYSTEM, thing("v1", "ConfigMap", "fields", "causeway-system", data={"a": "1"})))
    apply.apply(kubectl, api, part)
    where = "/api/v1/namespaces/causeway-system/configmaps/fields"
    api.patch(where, {"data": {"a": "changed", "b": "added"}})
    assert apply.changes(kubectl, part) == ("v1.ConfigMap.causeway-system.fields",)
    apply.apply(kubectl, api, part)
    assert api.get(where)["data"] == {"a": "1", "b": "added"}


def test_what_the_api_refuses_is_said_in_its_words(kubectl: Kubectl, api: Api) -> None:
    wrong = thing("v1", "Service", "wrong", "default", spec={"ports": [{"port": 99999}]})
    with pytest.raises(DriveError, match="99999"):
        apply.apply(kubectl, api, Part("wrong", (wrong,)))
    with pytest.raises(ApiError, match=r"refused POST .*\(422\)"):
        api.create("/api/v1/namespaces/default/services", wrong)


# -- Rights ------------------------------------------------------------------------------------------------


def binding(*logins: str) -> Part:
    subjects = [{"kind": "User", "name": each, "apiGroup": "rbac.authorization.k8s.io"} for each in logins]
    group = "rbac.authorization.k8s.io"
    return Part(
        "access",
        (
            SYSTEM,
            thing("v1", "Namespace", "team-vision"),
            # Not ``view``, which a controller puts together.
            thing(
                f"{group}/v1",
                "ClusterRole",
                "reader",
                rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
            ),
            thing(
                f"{group}/v1",
                "RoleBinding",
                "members",
                "team-vision",
                roleRef={"apiGroup": group, "kind": "ClusterRole", "name": "reader"},
                subjects=subjects,
            ),
        ),
    )


def may_list_pods(folder: Path, document: dict[str, Any]) -> bool:
    from kube_tools import kubectl as program

    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    done = subprocess.run(
        [program(), "--kubeconfig", path, "get", "pods", "--namespace", "team-vision"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or "Forbidden" in done.stderr, done.stderr
    return done.returncode == 0


def soon(so: Callable[[], bool]) -> bool:
    """The API server's authorizer watches for changes: they take a moment."""
    deadline = time.monotonic() + 30
    while not so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def test_whose_profile_is_revoked_has_no_rights_and_gets_none_back(
    kubectl: Kubectl, api: Api, plane: Plane, store: LocalStore, signs: Machine, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    apply.apply(kubectl, api, binding("ada", "grace"))
    signed = kubeconfig.issue(store, [signs], "ada", ["vision"], now, 12 * HOUR)
    document = kubeconfig.with_certificate(plane.endpoint, signed.authority, "test", "ada", signed.pair)
    assert soon(lambda: may_list_pods(tmp_path, document))
    secrets.revoke(store, "ada")
    # Also by somebody's own hand.
    own = {"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    everywhere = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    api.create(everywhere, {"metadata": {"name": "by-hand"}, "subjects": [own], "roleRef": role})
    secrets_of = "/api/v1/namespaces/team-vision/secrets"
    api.create(secrets_of, {"metadata": {"name": "plain"}, "stringData": {"a": "b"}})
    assert kubeconfig.tokens(api, ["team-vision"]) == []
    api.create(
        secrets_of,
        {
            "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}},
            "type": "kubernetes.io/service-account-token",
        },
    )
    assert kubeconfig.tokens(api, ["team-vision"]) == ["team-vision/robot"]
    assert kubeconfig.strip(api, "ada") == ["team-vision/members", "by-hand"]
    api.delete(f"{everywhere}/by-hand")
    assert soon(lambda: not may_list_pods(tmp_path, document)), "the certificate holds, and may nothing"
    # Whoever brings the cluster in line with a spec that still has ada does not let her in again.
    part = apply.without(binding("ada", "grace"), secrets.locked_out(store, now))
    apply.apply(kubectl, api, part)
    assert not may_list_pods(tmp_path, document)
    with pytest.raises(DriveError, match="revoked"):
        kubeconfig.issue(store, [signs], "ada", ["vision"], now, HOUR)
    later = now + 13 * HOUR
    assert secrets.locked_out(store, later) == {}
    kubeconfig.issue(store, [signs], "ada", ["vision"], later, HOUR)
    assert not secrets.issued(store)["ada"].revoked


def test_a_certificate_alone_gives_nothing_whatever_group_it_names(
    plane: Plane, store: LocalStore, signs: Machine, kubectl: Kubectl, api: Api, tmp_path: Path
) -> None:
    apply.apply(kubectl, api, binding("grace"))
    signed = kubeconfig.issue(store, [signs], "mallory", ["vision"], datetime.now(UTC), HOUR)
    document = kubeconfig.with_certificate(plane.endpoint, signed.authority, "test", "mallory", signed.pair)
    assert not may_list_pods(tmp_path, document)


@pytest.fixture
def signs(master: Machine, kubectl: Kubectl, api: Api) -> Machine:
    """A master, after the rights that it needs have been applied."""
    roles = (
        each
        for file in rights.access(golden("research")).values()
        for each in file
        if each["metadata"]["name"] == KUBECONFIGS
    )
    apply.apply(kubectl, api, Part("certificates", tuple(roles)))
    return master


def test_a_master_has_a_request_signed_and_leaves_none_behind(
    store: LocalStore, keys: Keys, signs: Machine, api: Api
) -> None:
    before = datetime.now(UTC)
    signed = kubeconfig.issue(store, [signs], "grace", ["engineers", "vision"], before, 12 * HOUR)
    found = x509.load_pem_x509_certificate(signed.pair.certificate.encode())
    assert found.subject.rfc4514_string() == "CN=grace,O=causeway:vision+O=causeway:engineers"
    # Kubernetes counts from five minutes ago.
    assert 12 * HOUR - HOUR / 6 < signed.pair.ends - before < 12 * HOUR + HOUR / 6
    assert secrets.issued(store)["grace"].until == signed.pair.ends
    assert signed.authority == keys.ca.certificate
    assert not list(api.list(REQUESTS))


def test_a_master_that_is_away_is_passed_over(store: LocalStore, signs: Machine) -> None:
    away = Machine("master-2.test.internal")
    now = datetime.now(UTC)
    assert kubeconfig.issue(store, [away, signs], "ada", [], now, HOUR).pair.ends > now
    with pytest.raises(UnreachedError, match=r"master-2\.test\.internal"):
        kubeconfig.issue(store, [away], "ada", [], now, HOUR)


def test_the_account_that_approves_people_approves_nobody_else(signs: Machine, api: Api) -> None:
    """As it is impersonated on masters: its rights, and the API server's own limit, ``system:masters``."""
    groups = {"people": "vision", "masters": "system:masters", "nodes": "system:nodes"}
    signer = {"people": CLIENT_SIGNER, "masters": CLIENT_SIGNER, "nodes": f"{CLIENT_SIGNER}-kubelet"}
    answers = {}
    for name, group in groups.items():
        asked, _ = certificates.request("system:node:x" if name == "nodes" else "ada", [group])
        body = {
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(asked.encode()).decode(),
                "signerName": signer[name],
                "usages": ["digital signature", "client auth"],
            },
        }
        words = f"kubectl --kubeconfig /etc/kubernetes/admin.conf --as {KUBECONFIGS}"
        manifest = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", **body}
        script = f"{words} create -f - && {words} certificate approve {name}"
        try:
            signs.run("sh", "-c", script, stdin=json.dumps(manifest).encode())
            answers[name] = "approved"
        except RemoteError as problem:
            answers[name] = str(problem)
        finally:
            api.delete(f"{REQUESTS}/{name}")
    assert answers["people"] == "approved"
    assert "system:masters" in answers["masters"]
    assert f'signerName "{CLIENT_SIGNER}-kubelet"' in answers["nodes"]
    for question in ("get secrets", "update certificatesigningrequests/status", "create clusterrolebindings"):
        with pytest.raises(RemoteError):
            signs.run("sh", "-c", f"{words} auth can-i {question} --all-namespaces")


# -- One at a time -----------------------------------------------------------------------------------------


def test_two_people_do_not_work_on_a_cluster_at_once(api: Api, admin: Access) -> None:
    with (
        lease.held(api, Api(admin), "ada@laptop", "cluster.upgrade"),
        pytest.raises(UsageError, match=r"ada@laptop .*\(cluster\.upgrade"),
        lease.held(api, Api(admin), "grace@laptop", "cluster.up"),
    ):
        pass
    with lease.held(api, Api(admin), "grace@laptop", "cluster.up"):
        pass


def test_ones_own_other_terminal_counts_and_a_run_that_was_killed_does_not(api: Api, admin: Access) -> None:
    about = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/causeway-operation"
    with lease.held(api, Api(admin), "ada@laptop", "cluster.up"):
        other = subprocess.Popen(["sleep", "600"])
        api.patch(about, {"metadata": {"annotations": {"causeway.dev/process": str(other.pid)}}})
        with (
            pytest.raises(UsageError, match="ada@laptop"),
            lease.held(api, Api(admin), "ada@laptop", "cluster.upgrade"),
        ):
            pass
        other.kill()
        other.wait()
        with lease.held(api, Api(admin), "ada@laptop", "cluster.upgrade"):
            pass


def test_of_two_who_begin_at_the_same_moment_one_is_refused(api: Api, admin: Access) -> None:
    inside, refused = [], []
    together = threading.Barrier(2)

    def begin(who: str) -> None:
        own = Api(admin)
        own.get("/version")
        together.wait(timeout=60)
        try:
            with lease.held(own, own, who, "cluster.up"):
                inside.append(who)
                together.wait(timeout=60)
        except UsageError:
            refused.append(who)
            together.wait(timeout=60)

    threads = [threading.Thread(target=begin, args=(who,)) for who in ("ada", "grace")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inside) == len(refused) == 1


def test_a_lease_of_a_laptop_that_was_closed_is_taken_over(api: Api, admin: Access) -> None:
    long_ago = datetime.now(UTC) - HOUR
    held = lease.held(api, Api(admin), "ada@closed", "cluster.up", clock=lambda: long_ago)
    held.__enter__()
    with lease.held(api, Api(admin), "grace@laptop", "cluster.up"):
        pass
    held.__exit__(None, None, None)


# -- Status ------------------------------------------------------------------------------------------------


def test_nodes_and_gpus_are_counted(api: Api) -> None:
    for each in (
        node("titan-01", site="rack-a", gpu_model="titan-x-pascal", gpu_class="old", gpus="4"),
        node("titan-02", site="rack-a", gpu_model="titan-x-pascal", gpu_class="old", gpus="4"),
        node("titan-03", ready=False, site="rack-a", gpu_model="titan-x-pascal", gpu_class="old", gpus="4"),
        node("titan-04", site="rack-a", gpu_model="titan-x-pascal", gpu_class="old", gpus="4"),
        node("titan-05", site="rack-a", gpu_model="titan-x-pascal", gpu_class="old", gpus="4"),
    ):
        api.create("/api/v1/nodes", each)
    sick = {"metadata": {"annotations": {"causeway/gpu-health": "GPU 1"}}, "spec": {"unschedulable": True}}
    api.patch("/api/v1/nodes/titan-02", sick)
    # As Node Feature Discovery and node-problem-detector tell it, each in its own time.
    taint = {"key": "causeway.dev/gpu-sick", "value": "true", "effect": "NoSchedule"}
    api.patch("/api/v1/nodes/titan-04", {"spec": {"taints": [taint]}})
    found = api.get("/api/v1/nodes/titan-05")["status"]["conditions"]
    why = {"type": "GpuSick", "status": "True", "reason": "GPUsUnhealthy", "message": "GPU 3: Xid 79"}
    api.patch("/api/v1/nodes/titan-05/status", {"status": {"conditions": [*found, why]}})
    for name, on, gpus in (("job-1", "titan-01", 2), ("job-2", "titan-02", 1), ("waiting", None, 4)):
        api.create("/api/v1/namespaces/default/pods", pod(name, on, gpus=gpus))
    nodes = [each for each in status.nodes(api) if each.site == "rack-a"]
    assert {each.name: each.state for each in nodes} == {
        "titan-01": "ready",
        "titan-02": "sick",
        "titan-03": "not ready",
        "titan-04": "sick",
        "titan-05": "sick",
    }
    assert {each.name: each.sick for each in nodes if each.sick} == {
        "titan-02": "GPU 1",
        "titan-04": "GPU",
        "titan-05": "GPU 3: Xid 79",
    }
    assert status.by_gpu(nodes) == [
        {"class": "old", "model": "titan-x-pascal", "total": 20, "used": 3, "free": 2, "out": 15}
    ]
    assert status.by_place(nodes)[0]["nodes"] == 5
    assert "default/waiting" in status.pending(api)


def test_the_end_of_the_servers_certificate_is_seen(admin: Access, api: Api) -> None:
    api.get("/version")
    ends = status.serving(admin)
    assert ends is not None
    assert status.days_left(ends) in {89, 90}
    assert status.version(api).startswith("v1.")
