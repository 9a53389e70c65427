"""Pods: equal ones share a shape, and what decides where they go is in it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from autoscaler.apiobjects import AT, container, listed, owner, pod, raw, shape_of

from infra.autoscaler.observed.decoding import Decoder
from infra.autoscaler.observed.snapshot import (
    NodeTerm,
    Owner,
    Pod,
    PodTerm,
    Requirement,
    Selector,
    Spread,
    Toleration,
)


def one(written: dict[str, Any]) -> Pod:
    found: Pod = Decoder().item("Pod", raw(written))[1]
    return found


def test_equal_pods_are_one_shape_whatever_else_tells_them_apart() -> None:
    pods = [
        pod(
            f"train-{number}",
            container({"cpu": "1000m" if number % 2 else "1"}, env=[{"name": "N", "value": str(number)}]),
            labels={"index": str(number)},
            volumes=[{"name": f"kube-api-access-{number}", "projected": {"sources": []}}],
            nodeName=f"n{number}" if number % 3 else None,
        )
        for number in range(50)
    ]
    decoder = Decoder()
    found = decoder.list("Pod", listed(*pods)).objects
    assert len({id(each.shape) for each in found.values()}) == 1
    assert decoder.shapes == 1
    assert decoder.item("Pod", raw(pod("later")))[1].shape is found["user-ada/train-0"].shape


def test_what_tells_shapes_apart() -> None:
    base = shape_of(pod())
    others: list[dict[str, Any]] = [
        {"namespace": "user-bob"},
        {"priority": 5},
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"overhead": {"cpu": "1"}},
        {"initContainers": [container({"cpu": "9"})]},
    ]
    shapes = [shape_of(pod(**each)) for each in others]
    assert len({base, *shapes}) == len(others) + 1


def test_shapes_that_nobody_holds_are_forgotten() -> None:
    decoder = Decoder()
    for number in range(200):
        decoder.item("Pod", raw(pod(nodeSelector={"n": str(number)})))
    gc.collect()
    assert decoder.shapes == 0


def test_05_what_keeps_a_pod_out_of_the_queue_is_seen() -> None:
    assert one(pod(nodeName="n1")).node == "n1"
    assert one(pod(status={"nominatedNodeName": "n2"})).nominated == "n2"
    assert one(pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])).gated
    assert not one(pod(schedulingGates=[])).gated
    words = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3: \n no"}
    assert one(pod(status={"conditions": [words]})).refused == "0/3: no"
    assert one(pod(status={"conditions": [words]}, nodeName="n")).refused == ""
    assert one(pod(status={"conditions": [{**words, "reason": "SchedulingGated"}]})).refused == ""
    assert one(pod(status={"conditions": [{**words, "status": "True"}]})).refused == ""
    assert one(pod(status={"conditions": None})).refused == ""
    assert one(pod()).scheduler == "default-scheduler"
    assert one(pod(schedulerName="volcano")).scheduler == "volcano"
    assert one(pod(deletionTimestamp="2027-01-15T08:00:00Z")).deleting
    assert one(pod(deletionTimestamp="2027-01-15T08:00:00Z")).ends == 1_800_000_000.0
    assert one(pod(owner=owner("DaemonSet", "flannel"))).daemon
    assert one(pod(annotations={"kubernetes.io/config.mirror": "abc"})).mirror
    assert one(pod(owner=owner("Node", "titan-a01"))).daemon
    plain = one(pod())
    assert (plain.node, plain.nominated, plain.gated, plain.deleting, plain.daemon) == (
        "",
        "",
        False,
        False,
        False,
    )


def test_the_plain_fields() -> None:
    found = one(
        pod(
            "w",
            owner=owner("Job", "train"),
            labels={"a": "b"},
            annotations={"causeway.dev/gang-min": "2", "a.huge/note": "x" * 10_000},
            terminationGracePeriodSeconds=600,
            status={"phase": "Running", "startTime": "2027-01-15T08:00:30.5Z"},
        )
    )
    assert found.owner == Owner("Job", "train", "uid-train")
    assert (found.labels, found.annotations) == ({"a": "b"}, {"causeway.dev/gang-min": "2"})
    assert (found.created, found.started) == (AT, AT + 30.5)
    assert (found.phase, found.grace, found.version, found.uid) == ("Running", 600, "7", "uid-w")


def test_an_owner_that_does_not_control_is_none() -> None:
    loose = {**owner("Workflow", "w"), "controller": False}
    assert one(pod(ownerReferences=[loose])).owner is None
    assert one(pod(ownerReferences=[loose, owner("Job", "train")])).owner == Owner(
        "Job", "train", "uid-train"
    )


def test_no_grace_is_not_the_default() -> None:
    assert one(pod(terminationGracePeriodSeconds=0)).grace == 0


@pytest.mark.parametrize(
    ("volume", "lost"),
    [
        ({"emptyDir": {}}, True),
        ({"emptyDir": {"medium": "Memory"}}, False),
        ({"hostPath": {"path": "/x"}}, True),
        ({"configMap": {"name": "x"}}, False),
        ({"persistentVolumeClaim": {"claimName": "x"}}, False),
    ],
)
def test_25_what_would_be_lost_with_the_node(volume: dict[str, Any], lost: bool) -> None:
    volumes = [{"name": "scratch", **volume}]
    assert one(pod(volumes=volumes)).local_storage is lost
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "other, scratch"}
    assert not one(pod(volumes=volumes, annotations=safe)).local_storage


def test_25_words_that_keep_a_pod_are_read() -> None:
    words = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    assert one(pod(annotations={**words, "x": "y"})).annotations == words


def test_06_labels_of_old_are_asked_for_by_their_current_names() -> None:
    old = shape_of(
        pod(
            nodeSelector={
                "failure-domain.beta.kubernetes.io/zone": "z",
                "beta.kubernetes.io/instance-type": "t",
            }
        )
    )
    new = shape_of(
        pod(nodeSelector={"topology.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "t"})
    )
    assert old == new
    assert old.selector == (("node.kubernetes.io/instance-type", "t"), ("topology.kubernetes.io/zone", "z"))


def test_07_node_affinity() -> None:
    term = {
        "matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}},
                {"weight": 7, "preference": {}},
            ],
        }
    }
    found = shape_of(pod(affinity=affinity))
    arch = Requirement("kubernetes.io/arch", "In", ("amd64",))
    name = Requirement("metadata.name", "In", ("n1",))
    assert found.affinity == (NodeTerm((arch,), (name,)), NodeTerm())
    assert found.preferred == ((7, NodeTerm((Requirement("ssd", "Exists"),))),)
    assert shape_of(pod(affinity={})).affinity is None


def test_07_pod_affinity_says_which_pods_where() -> None:
    def term(**more: Any) -> dict[str, Any]:
        return {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "x"}},
            **more,
        }

    terms = [
        term(),
        term(namespaces=["b", "a"]),
        term(namespaceSelector={}),
        term(namespaceSelector={"matchLabels": {"team": "vision"}}),
        term(labelSelector=None),
        term(matchLabelKeys=["rev", "none"], mismatchLabelKeys=["tenant"]),
    ]
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = shape_of(pod(affinity=anti, labels={"rev": "3", "tenant": "t"})).apart
    app = Selector((("app", "x"),))
    narrowed = Selector(
        app.equals, (Requirement("rev", "In", ("3",)), Requirement("tenant", "NotIn", ("t",)))
    )
    host = "kubernetes.io/hostname"
    assert found == (
        PodTerm(host, app, ("user-ada",)),
        PodTerm(host, app, ("a", "b")),
        PodTerm(host, app, ("*",)),
        PodTerm(host, app, (), Selector((("team", "vision"),))),
        PodTerm(host, None, ("user-ada",)),
        PodTerm(host, narrowed, ("user-ada",)),
    )


def test_07_spread_that_must_hold() -> None:
    constraints = [
        {
            "maxSkew": 2,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": how,
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "minDomains": 3,
            "matchLabelKeys": ["pod-template-hash"],
        }
        for how in ("DoNotSchedule", "ScheduleAnyway")
    ]
    found = shape_of(pod(topologySpreadConstraints=constraints, labels={"pod-template-hash": "h"})).spread
    chosen = Selector((), (Requirement("app", "Exists"), Requirement("pod-template-hash", "In", ("h",))))
    assert found == (Spread("topology.kubernetes.io/zone", 2, chosen, 3),)
    (constraint, _) = constraints
    policies = {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    (narrowed,) = shape_of(pod(topologySpreadConstraints=[{**constraint, **policies}])).spread
    assert (narrowed.affinity, narrowed.taints) == (False, True)
    policies = {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}
    (stated,) = shape_of(pod(topologySpreadConstraints=[{**constraint, **policies}])).spread
    assert (stated.affinity, stated.taints) == (found[0].affinity, found[0].taints)


def test_07_pods_that_select_by_their_own_labels_are_told_apart_by_them() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "x",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["rev"],
    }
    decoder = Decoder()
    a, b = (
        decoder.item("Pod", raw(pod(topologySpreadConstraints=[constraint], labels={"rev": rev})))[1].shape
        for rev in "ab"
    )
    assert a != b


def test_07_tolerations_in_any_order_without_those_that_every_pod_has() -> None:
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists"}
    mine = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    usual = [
        {
            "key": f"node.kubernetes.io/{what}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for what in ("not-ready", "unreachable")
    ]
    found = shape_of(pod(tolerations=[*usual, mine, gpu])).tolerations
    assert found == (
        Toleration("nvidia.com/gpu", "Exists"),
        Toleration("team", "Equal", "vision", "NoSchedule"),
    )
    assert found == shape_of(pod(tolerations=[gpu, mine, gpu])).tolerations


def test_07_host_ports_with_those_of_the_hosts_network() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "protocol": "UDP", "hostPort": 53},
    ]
    assert shape_of(pod("w", container(ports=ports))).ports == (
        ("TCP", "0.0.0.0", 8080),
        ("UDP", "0.0.0.0", 53),
    )
    assert shape_of(pod("w", container(ports=[{"containerPort": 80}]))).ports == ()
    assert shape_of(pod("w", container(ports=[{"containerPort": 80}]), hostNetwork=True)).ports == (
        ("TCP", "0.0.0.0", 80),
    )
    bound = [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]
    assert shape_of(pod("w", container(ports=bound))).ports == (("TCP", "10.0.0.1", 80),)


def test_claims_are_in_the_shape_and_of_volumes_made_for_one_pod_their_classes() -> None:
    volumes = [
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "a", "persistentVolumeClaim": {"claimName": "home"}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "ebs"}}}},
        {"name": "e", "csi": {"driver": "inline.example"}},
    ]
    found = shape_of(pod(volumes=volumes))
    assert (found.claims, found.ephemeral) == (("data", "home"), (None, "ebs"))
