"""Rules of work and rights of people, as a real API server and a real scheduler carry them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from golden_clusters import golden, with_masters
from kube.api import Api, RefusedError, refused
from kube.plane import Plane
from kube_tools import need, templated
from msgspec.structs import replace
from render.kubernetes.policy_world import (
    GPUS,
    add,
    in_force,
    inside,
    job,
    node,
    placed,
    pod,
    world,
)
from strategies.outputs import outputs_for
from waiting import until

from infra.drive.kubernetes.apply import Part, without
from infra.model import Cluster
from infra.model.kubernetes import PriorityClass
from infra.render import kubernetes
from infra.render.kubernetes import addon_objects, charts, guards, volumes
from infra.render.kubernetes.charts.monitoring import GRAFANA_POD
from infra.render.kubernetes.manifests import Manifest
from infra.render.kubernetes.nodes import MIRROR

ADA, ALAN = "user-ada", "user-alan"
CLASS, WITHOUT = "causeway.dev/gpu-class", "causeway.dev/without-gpus"
FORMS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (lambda each: each, job)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    research = golden("research")
    classes = (
        PriorityClass("low", -100, ("old",), preempts=False, default=False, yields=True),
        PriorityClass("normal", 0, ("standard", "old"), preempts=True, default=True, yields=False),
        PriorityClass("high", 1000, ("new", "standard", "old"), preempts=True, default=False, yields=False),
    )
    return replace(
        research, kubernetes=replace(research.kubernetes, version="1.36", priority_classes=classes)
    )


@pytest.fixture(scope="module")
def here(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with world(cluster, tmp_path_factory.mktemp("policies")) as here:
        yield here


def required(each: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = inside(each).get("affinity", {}).get("nodeAffinity", {})
    terms: list[dict[str, Any]] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", []
    )
    return terms


def preferred(each: dict[str, Any]) -> list[tuple[int, str, str, list[str]]]:
    terms = inside(each).get("affinity", {}).get("nodeAffinity", {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution", []
    )  # fmt: skip
    return [
        (term["weight"], rule["key"], rule["operator"], rule.get("values", []))
        for term in terms
        for rule in term["preference"]["matchExpressions"]
    ]


def tolerates_gpus(each: dict[str, Any]) -> bool:
    return {"key": GPUS, "operator": "Exists"} in inside(each).get("tolerations", [])


def given(*gpus: str) -> list[dict[str, Any]]:
    return [{"matchExpressions": [{"key": CLASS, "operator": "In", "values": [*gpus]}]}]


def kept_off(*nodes: str) -> list[dict[str, Any]]:
    return [{"matchExpressions": [{"key": WITHOUT, "operator": "NotIn", "values": [*nodes]}]}]


BEFORE = {"name": "first", "image": "none", "resources": {"limits": {GPUS: "1"}}}
NONE = {"name": "main", "image": "none", "resources": {"limits": {GPUS: "0"}}}


@pytest.mark.parametrize("form", FORMS, ids=("pod", "job"))
@pytest.mark.parametrize(
    ("asked", "demands", "wishes", "tolerant"),
    [
        ({"gpus": 1, "of": "low"}, given("old"), [], True),
        ({"gpus": 1, "of": "normal"}, given("standard", "old"), [(100, CLASS, "In", ["standard"])], True),
        ({"gpus": 1}, given("standard", "old"), [(100, CLASS, "In", ["standard"])], True),
        (
            {"gpus": 1, "of": "high"},
            [],
            [(100, CLASS, "In", ["new"]), (50, CLASS, "In", ["standard"])],
            True,
        ),
        # Other work keeps off nodes with GPUs; what makes way may use idle ones of ours.
        ({}, kept_off("idle", "never"), [(100, WITHOUT, "DoesNotExist", [])], False),
        ({"of": "low"}, kept_off("never"), [(100, WITHOUT, "DoesNotExist", [])], True),
        ({"containers": [NONE]}, kept_off("idle", "never"), [(100, WITHOUT, "DoesNotExist", [])], False),
        ({"of": "low", "initContainers": [BEFORE]}, given("old"), [], True),
    ],
    ids=["low", "normal", "default", "high", "without", "low without", "none of a GPU", "a container before"],
)
def test_work_is_given_the_gpus_of_its_class(
    here: Plane, form: Any, asked: dict[str, Any], demands: Any, wishes: Any, tolerant: bool
) -> None:
    made = here.admin.create(form(pod("x", ADA, **asked)), dry=True)
    assert required(made) == demands
    assert preferred(made) == wishes
    assert tolerates_gpus(made) == tolerant


OWN = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "lab.example/use", "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["titan-a01"]}]},
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 7,
                "preference": {"matchExpressions": [{"key": "lab.example/near", "operator": "Exists"}]},
            }
        ],
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
        ]
    },
}


@pytest.mark.parametrize("form", FORMS, ids=("pod", "job"))
def test_what_work_asks_for_itself_stays_and_each_alternative_gets_the_demand(here: Plane, form: Any) -> None:
    made = here.admin.create(form(pod("x", ADA, gpus=2, of="normal", affinity=OWN)), dry=True)
    demand = {"key": CLASS, "operator": "In", "values": ["standard", "old"]}
    first, second = required(made)
    assert first == {"matchExpressions": [{"key": "lab.example/use", "operator": "Exists"}, demand]}
    assert second["matchExpressions"] == [demand]
    assert second["matchFields"][0]["values"] == ["titan-a01"]
    assert preferred(made) == [(7, "lab.example/near", "Exists", []), (100, CLASS, "In", ["standard"])]
    assert inside(made)["affinity"]["podAntiAffinity"] == OWN["podAntiAffinity"]


def test_what_a_job_was_given_its_pods_are_not_given_again(here: Plane) -> None:
    template = here.admin.create(job(pod("x", ADA, gpus=1, of="low")), dry=True)["spec"]["template"]["spec"]
    each = {**pod("x", ADA), "spec": template}
    again = here.admin.create(each, dry=True)
    assert again["spec"]["affinity"] == template["affinity"]
    assert [one for one in again["spec"]["tolerations"] if one["key"] == GPUS] == template["tolerations"]


def test_who_narrows_the_choice_is_not_widened(here: Plane) -> None:
    rule = {"key": CLASS, "operator": "In", "values": ["old"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    made = here.admin.create(pod("x", ADA, gpus=1, of="normal", affinity=own), dry=True)
    assert required(made) == terms["nodeSelectorTerms"]


@pytest.mark.parametrize("form", FORMS, ids=("pod", "job"))
@pytest.mark.parametrize(
    "asked",
    [
        {"of": "system-cluster-critical"},
        {"tolerations": [{"operator": "Exists"}]},
        {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
        {"tolerations": [{"key": "causeway.dev/gateway", "operator": "Exists"}]},
        {"nodeName": "titan-a01"},  # past the scheduler
    ],
    ids=str,
)
def test_what_people_may_not_ask_for(here: Plane, form: Any, asked: dict[str, Any]) -> None:
    error = refused(here.admin.create, form(pod("x", ADA, **asked)), dry=True)
    assert error is not None
    assert error.policy


def without_values() -> Cluster:
    """Nothing that policies could name: no pools, no limits, and work of every class may have all GPUs."""
    found = golden("minimal")
    everything = ("new", "standard", "old")
    classes = tuple(replace(each, gpu_classes=everything) for each in found.kubernetes.priority_classes)
    return replace(found, pools=(), kubernetes=replace(found.kubernetes, priority_classes=classes))


@pytest.mark.parametrize("name", [*with_masters(), "none"])
def test_the_api_server_compiles_every_policy(here: Plane, name: str) -> None:
    cluster = without_values() if name == "none" else golden(name)
    texts = kubernetes.render(cluster, outputs_for(cluster)).values()
    found = [each for text in texts if "AdmissionPolicy\n" in text for each in Manifest(text)]
    policies = [each for each in found if each["kind"].endswith("AdmissionPolicy")]
    assert len(policies) > 5
    for each in policies:
        metadata = {**each["metadata"], "name": f"of-{name}.{each['metadata']['name']}"}
        here.admin.create({**each, "metadata": metadata}, dry=True)


def test_what_is_ours_is_let_alone(here: Plane) -> None:
    made = here.admin.create(
        pod("x", "causeway-system", gpus=1, of="system-cluster-critical", nodeName="titan-a01"), dry=True
    )
    assert "affinity" not in made["spec"]
    assert made["spec"]["nodeName"] == "titan-a01"


def test_a_pod_that_no_one_has_seen_to_does_not_start(here: Plane) -> None:
    """The one policy refuses what the other would have written, if it were away."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
    kept = here.admin.call("GET", f"{path}/placement.causeway.dev")
    here.admin.delete(kept)
    try:
        each = pod("x", ADA, gpus=1, of="low")
        until(lambda: refused(here.admin.create, each, dry=True))
    finally:
        kept["metadata"] = {"name": kept["metadata"]["name"], "labels": kept["metadata"]["labels"]}
        here.admin.create(kept)
        in_force(here)


def test_what_was_let_in_stays_when_rules_change(here: Plane) -> None:
    """Or a job, whose pods are updated when it ends, would never end."""
    each = pod("old", ADA, of="low")
    here.admin.create(each)
    path = f"/api/v1/namespaces/{ADA}/pods/old"
    try:
        label = {"metadata": {"labels": {"seen": "yes"}}}
        assert here.admin.call("PATCH", path, label, "application/merge-patch+json")
        tolerations = here.admin.call("GET", path)["spec"]["tolerations"]
        more = {
            "spec": {"tolerations": [*tolerations, {"key": "causeway.dev/gateway", "operator": "Exists"}]}
        }
        assert refused(here.admin.call, "PATCH", path, more, "application/merge-patch+json")
    finally:
        here.admin.delete(each)


# -- People -------------------------------------------------------------------------------------------------


def may(
    somebody: Api, verb: str, resource: str, namespace: str = "", group: str = "", name: str = ""
) -> bool:
    resource, _, part = resource.partition("/")
    asked: dict[str, Any] = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
    asked |= {"subresource": part, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": asked},
    }
    answer = somebody.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_a_researcher_works_in_the_own_namespace_and_in_the_groups(here: Plane) -> None:
    alan = here.somebody("alan", "causeway:researchers")
    assert alan.create(pod("x", ALAN), dry=True)
    assert may(alan, "create", "jobs", "team-researchers", "batch")
    assert may(alan, "list", "nodes")
    assert may(alan, "list", "clusterqueues", group="kueue.x-k8s.io")
    for verb, resource, namespace, group in [
        ("create", "pods", ADA, ""),
        ("get", "secrets", "team-engineers", ""),
        ("get", "secrets", "kube-system", ""),
        ("patch", "namespaces", "", ""),
        ("delete", "networkpolicies", ALAN, "networking.k8s.io"),
        ("patch", "resourcequotas", ALAN, ""),
        ("create", "rolebindings", ALAN, "rbac.authorization.k8s.io"),
        ("create", "daemonsets", ALAN, "apps"),
        ("create", "localqueues", ALAN, "kueue.x-k8s.io"),
        ("delete", "validatingadmissionpolicies", "", "admissionregistration.k8s.io"),
        ("patch", "nodes", "", ""),
    ]:
        assert not may(alan, verb, resource, namespace, group), f"{verb} {resource} in {namespace}"


def test_an_engineer_runs_the_cluster_and_not_by_a_certificate_alone(here: Plane) -> None:
    ada = here.somebody("ada", "causeway:engineers")
    assert may(ada, "delete", "nodes")
    assert may(ada, "create", "pods", "kube-system")
    # Somebody who has left, and whose certificate still says otherwise.
    gone = here.somebody("gone", "causeway:engineers", "causeway:researchers")
    assert not may(gone, "list", "nodes")
    assert not may(gone, "create", "pods", ALAN)


MONITORING = "monitoring"
PODS = (GRAFANA_POD, "prometheus-monitoring-prometheus-0", "alertmanager-monitoring-alertmanager-0")


@pytest.fixture
def monitored(here: Plane, cluster: Cluster) -> Iterator[Plane]:
    """With the pods of monitoring, which nobody runs, and who may open Grafana."""
    here.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}})
    for each in addon_objects.grafana(cluster)["access.yaml"]:
        here.admin.apply(each)
    made = [pod(name, MONITORING) for name in PODS]
    for each in made:
        here.admin.create(each)
    yield here
    for each in made:
        here.admin.delete(each)


def sees_grafana(somebody: Api) -> bool:
    return may(somebody, "get", "pods", MONITORING, name=GRAFANA_POD)


def opened(somebody: Api, name: str) -> bool:
    """Whether the API server would go on to the pod's kubelet, of which it then finds none."""
    path = f"/api/v1/namespaces/{MONITORING}/pods/{name}/portforward?ports=3000"
    error = refused(somebody.call, "POST", path)
    assert error is not None
    assert error.code in (400, 403), error
    return error.code == 400


def test_people_open_grafana_and_engineers_all_of_monitoring(monitored: Plane) -> None:
    engineer = monitored.somebody("ada", "causeway:engineers")
    assert [opened(engineer, name) for name in PODS] == [True, True, True]
    for login in ("alan", "grace"):
        person = monitored.somebody(login, "causeway:researchers")
        until(partial(sees_grafana, person))
        assert [opened(person, name) for name in PODS] == [True, False, False]
        for verb, resource, name in [
            ("list", "pods", ""),
            ("get", "pods", PODS[1]),
            ("get", "pods/log", GRAFANA_POD),
            ("create", "pods/exec", GRAFANA_POD),
            ("create", "pods/attach", GRAFANA_POD),
            ("get", "pods/proxy", GRAFANA_POD),
            ("get", "services/proxy", "grafana"),
            ("get", "services/proxy", "monitoring-prometheus"),
            ("get", "secrets", "grafana"),
            ("create", "pods", ""),
            ("create", "serviceaccounts/token", "grafana"),
        ]:
            assert not may(person, verb, resource, MONITORING, name=name), f"{verb} {resource} {name}"


def test_who_has_left_opens_nothing(monitored: Plane, cluster: Cluster) -> None:
    """By the spec, or for as long as a certificate that was taken back still holds."""
    alan, grace = monitored.somebody("alan"), monitored.somebody("grace")
    until(partial(sees_grafana, alan))
    users = tuple(user for user in cluster.access.users if user.login != "alan")
    left = addon_objects.grafana(replace(cluster, access=replace(cluster.access, users=users)))
    for each in without(Part("grafana", tuple(left["access.yaml"])), ["grace"]).objects:
        monitored.admin.apply(dict(each))
    until(lambda: not sees_grafana(alan) and not sees_grafana(grace))
    assert not any(opened(person, name) for person in (alan, grace) for name in PODS)


def test_pods_of_people_are_no_roots_of_machines(here: Plane) -> None:
    root = pod("x", ALAN)
    root["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    host = pod("x", ALAN, volumes=[{"name": "all", "hostPath": {"path": "/"}}])
    for each in (root, host):
        with pytest.raises(RefusedError, match="PodSecurity"):
            here.admin.create(each, dry=True)


def test_what_training_on_gpus_needs_runs(here: Plane) -> None:
    """As root in its container (with no path of the machines), shared memory, a volume on demand, a port."""
    train = pod("x", ALAN, gpus=8)
    train["spec"]["volumes"] = [
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "own", "persistentVolumeClaim": {"claimName": "own"}},
    ]
    train["spec"]["containers"][0] |= {
        "securityContext": {"runAsUser": 0},
        "ports": [{"containerPort": 29500}],
        "volumeMounts": [
            {"name": "memory", "mountPath": "/dev/shm"},
            {"name": "own", "mountPath": "/own"},
        ],
    }
    assert here.admin.create(train, dry=True)


def test_a_container_that_says_nothing_asks_for_something(here: Plane) -> None:
    each = pod("x", ALAN)
    del each["spec"]["containers"][0]["resources"]
    made = here.admin.create(each, dry=True)
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}


def test_there_is_no_way_in_but_internal_pages(here: Plane) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "x", "namespace": ALAN},
        "spec": spec,
    }
    with pytest.raises(RefusedError, match="quota: limits"):
        here.admin.create(service, dry=True)


# -- The scheduler ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(here: Plane) -> Iterator[Api]:
    """One of each kind: no GPUs; ours with old ones; the cloud's with standard and with new ones."""
    need("kube-scheduler")
    with here.scheduler():
        add(here.admin, node("plain", {}))
        ours = {CLASS: "old", WITHOUT: "idle", "causeway.dev/capacity-type": "physical"}
        add(here.admin, node("titan", ours, gpus=2))
        add(here.admin, node("g5", {CLASS: "standard", WITHOUT: "never"}, gpus=2, taint=GPUS))
        add(here.admin, node("p5", {CLASS: "new", WITHOUT: "never"}, gpus=2, taint=GPUS))
        yield here.admin


@pytest.fixture
def place(nodes: Api) -> Iterator[Callable[..., str | None]]:
    """Creates work, says where it went, and takes it away in the end."""
    made: list[dict[str, Any]] = []

    def created(name: str, **asked: Any) -> str | None:
        each = pod(name, ALAN, **asked)
        nodes.create(each)
        made.append(each)
        return placed(nodes, each)

    yield created
    for each in made:
        error = refused(nodes.delete, each)
        if error and error.code != 404:
            raise error


def test_low_work_goes_to_old_gpus_and_high_work_to_new_ones(place: Callable[..., str | None]) -> None:
    assert place("low", gpus=1, of="low") == "titan"
    assert place("normal", gpus=1, of="normal") == "g5"
    assert place("high", gpus=1, of="high") == "p5"
    # The next best, when the best are taken.
    assert place("high-2", gpus=1, of="high") == "p5"
    assert place("high-3", gpus=1, of="high") == "g5"


def test_low_work_waits_rather_than_take_a_newer_gpu(place: Callable[..., str | None]) -> None:
    assert place("low", gpus=2, of="low") == "titan"
    assert place("low-2", gpus=1, of="low") is None


def test_work_without_a_use_for_gpus_fills_plain_nodes_and_waits(place: Callable[..., str | None]) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "8"}}}
    assert place("large", containers=[container]) == "plain"
    assert place("more", containers=[container]) is None


def test_work_that_yields_uses_idle_machines_of_ours_and_makes_way(
    place: Callable[..., str | None], nodes: Api
) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "8"}}}
    assert place("first", of="low", containers=[container]) == "plain"
    assert place("second", of="low", containers=[container]) == "titan"
    # Neither of the cloud's, idle as they are.
    assert place("third", of="low", containers=[container]) is None
    # All GPUs of the class but ours are taken; it has a use for them, and needs a processor.
    assert place("taken", gpus=2, of="high", nodeSelector={CLASS: "standard"}) == "g5"
    work = pod("work", ALAN, gpus=1, of="normal")
    nodes.create(work)
    try:

        def moved() -> str | None:
            found: dict[str, Any] = nodes.call("GET", f"/api/v1/namespaces/{ALAN}/pods/work")["spec"]
            return found.get("nodeName")

        assert until(moved) == "titan"
        with pytest.raises(RefusedError, match="404"):
            nodes.call("GET", f"/api/v1/namespaces/{ALAN}/pods/second")
    finally:
        nodes.delete(work)


def test_a_volume_keeps_its_pods_where_it_can_be_mounted(here: Plane, cluster: Cluster) -> None:
    for each in volumes.objects(cluster, outputs_for(cluster))["classes.yaml"]:
        here.admin.apply(each)

    def made(name: str, storage_class: str, **more: Any) -> dict[str, Any]:
        spec = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class, "csi": {"driver": "a.b", "volumeHandle": name}, **more,
        }  # fmt: skip
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        found: dict[str, Any] = here.admin.create(volume, dry=True)
        return found

    def sites(volume: dict[str, Any]) -> list[list[str]]:
        terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
        return [rule["values"] for term in terms for rule in term["matchExpressions"]]

    until(lambda: sites(made("x", "efs-results")))
    assert sites(made("x", "efs-results")) == [["us-west-2"]]
    assert sites(made("x", "nfs-results")) == [["eu-west-1", "rack-a", "rack-b"]]
    assert sites(made("x", "somebodys-own")) == []
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    stated = {"required": {"nodeSelectorTerms": [term]}}
    assert sites(made("x", "nfs-results", nodeAffinity=stated)) == [["b"]]


def test_no_container_makes_packets_of_its_own(here: Plane, cluster: Cluster) -> None:
    for each in guards.guards(cluster)["packets.yaml"]:
        here.admin.apply(each)
    alan = here.somebody("alan", "causeway:researchers")
    said: list[tuple[dict[str, Any] | None, list[str]]] = [
        (None, ["NET_RAW"]),
        ({}, ["NET_RAW"]),
        ({"capabilities": {}}, ["NET_RAW"]),
        ({"capabilities": {"add": ["SYS_CHROOT"]}}, ["NET_RAW"]),
        ({"capabilities": {"drop": ["KILL"]}}, ["KILL", "NET_RAW"]),
        ({"capabilities": {"drop": ["NET_RAW"]}}, ["NET_RAW"]),
        ({"capabilities": {"drop": ["ALL"]}}, ["ALL"]),
    ]

    def made(kind: str) -> list[list[str]]:
        each = pod("x", ALAN)
        each["spec"][kind] = [
            {
                "name": f"c{number}",
                "image": "none",
                **({} if context is None else {"securityContext": context}),
            }
            for number, (context, _) in enumerate(said)
        ]
        found = alan.create(each, dry=True)["spec"][kind]
        return [one.get("securityContext", {}).get("capabilities", {}).get("drop", []) for one in found]

    wanted = [drop for _, drop in said]
    until(lambda: made("containers") == wanted)
    assert made("initContainers") == wanted
    alan.create(pod("debugged", ALAN))
    where = f"/api/v1/namespaces/{ALAN}/pods/debugged/ephemeralcontainers"
    more = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}}
    debugged = here.admin.call("PATCH", where, more, "application/strategic-merge-patch+json")
    (added,) = debugged["spec"]["ephemeralContainers"]
    assert added["securityContext"]["capabilities"]["drop"] == ["NET_RAW"]
    here.admin.delete(pod("debugged", ALAN))


def test_hosts_of_pages_belong_to_namespaces(here: Plane, cluster: Cluster) -> None:
    for each in guards.guards(cluster)["names.yaml"]:
        here.admin.apply(each)
    ada = here.somebody("ada", "causeway:engineers")
    assert cluster.kubernetes.ingress is not None
    page = cluster.kubernetes.ingress.fqdn

    def claim(host: str | None, **more: Any) -> dict[str, Any]:
        port = {"name": "x", "port": {"number": 80}}
        path = {"path": "/", "pathType": "Prefix", "backend": {"service": port}}
        rule = {"http": {"paths": [path]}, **({"host": host} if host else {})}
        made = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {"rules": [rule], **more}}
        return dict(ada.create({**made, "metadata": {"name": "x", "namespace": ADA}}, dry=True))

    until(lambda: refused(claim, page))
    own = f"{ADA}.research.internal"
    for host in (own, f"board.{own}"):
        assert not refused(claim, host), host
    others = ("user-alan.research.internal", "team-engineers.research.internal", "board.research.internal")
    for other in (
        *others,
        "*.research.internal",
        f"*.{own}",
        f"x{own}",
        f"{own}.example",
        "example.org",
        None,
    ):
        assert refused(claim, other), other
    assert not refused(claim, own, tls=[{"hosts": [own]}])
    assert refused(claim, own, tls=[{"hosts": [page], "secretName": "x"}])


def test_a_claim_on_a_path_stays_with_its_people(here: Plane, cluster: Cluster) -> None:
    for each in guards.guards(cluster)["claims.yaml"]:
        here.admin.apply(each)
    alan = here.somebody("alan", "causeway:researchers")

    def claim(name: str) -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": ALAN}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}

    for name in ("home", "own", "checkpoints"):
        here.admin.apply(claim(name))
    where = f"/api/v1/namespaces/{ALAN}/persistentvolumeclaims"

    def keeps(who: Api, name: str) -> bool:
        return refused(who.call, "DELETE", f"{where}/{name}?dryRun=All") is not None

    until(lambda: keeps(alan, "home"))
    assert keeps(alan, "checkpoints")  # a folder of a bucket
    assert not keeps(alan, "own")
    assert not keeps(here.admin, "home")


def test_the_mirror_of_images_has_no_port_on_machines(here: Plane, cluster: Cluster) -> None:
    """The chart's Service, made and changed, and one from before the policy."""
    namespace = "spegel"
    here.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    made = templated("spegel", charts.values(cluster)["spegel-rack-a"], f"--namespace={namespace}")
    (service,) = [
        each for each in made if each["kind"] == "Service" and each["spec"].get("type") == "NodePort"
    ]
    service["spec"]["ports"][0].pop("nodePort")
    before = {**service, "metadata": {**service["metadata"], "name": "before", "annotations": {}}}
    assert here.admin.apply(before)["spec"]["ports"][0]["nodePort"]
    for each in addon_objects.mirror(cluster)["services.yaml"]:
        here.admin.apply(each)
    probe = {**service, "metadata": {**service["metadata"], "name": "probe"}}
    until(lambda: here.admin.create(probe, dry=True)["spec"]["type"] == "ClusterIP")
    again = {**service, "metadata": {**service["metadata"], "name": "before"}}
    for each in (service, service, again):
        found = here.admin.apply(each)["spec"]
        assert found["type"] == "ClusterIP"
        assert "nodePort" not in found["ports"][0]
    elsewhere = {**service, "metadata": {**service["metadata"], "namespace": "kube-system"}}
    assert here.admin.create(elsewhere, dry=True)["spec"]["type"] == "NodePort"


def test_the_mirror_listens_below_the_ports_of_services(cluster: Cluster) -> None:
    (daemons,) = [
        each
        for each in templated("spegel", charts.values(cluster)["spegel-rack-a"])
        if each["kind"] == "DaemonSet"
    ]
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    ports = [each["hostPort"] for each in container["ports"] if "hostPort" in each]
    assert ports == [urlsplit(MIRROR).port]
    assert all(1024 < port < 30000 for port in ports)
