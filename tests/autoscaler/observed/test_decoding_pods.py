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

Json = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
CREATED = "2027-01-15T08:00:00Z"


def one(written: Json) -> Pod:
    decoded: Pod = Decoder().item("Pod", raw(written))[1]
    return decoded


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
    constraint = {
        "maxSkew": 1,
        "topologyKey": "x",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["rev"],
    }
    others: list[Json] = [
        {"namespace": "user-bob"},
        {"priority": 5},
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"overhead": {"cpu": "1"}},
        {"initContainers": [container({"cpu": "9"})]},
        # Pods that select by their own labels are told apart by them.
        *({"topologySpreadConstraints": [constraint], "labels": {"rev": rev}} for rev in "ab"),
    ]
    assert len({shape_of(pod()), *(shape_of(pod(**each)) for each in others)}) == len(others) + 1


def test_shapes_that_nobody_holds_are_forgotten() -> None:
    decoder = Decoder()
    for number in range(200):
        decoder.item("Pod", raw(pod(nodeSelector={"n": str(number)})))
    gc.collect()
    assert decoder.shapes == 0


LOOSE = {**owner("Workflow", "w"), "controller": False}
TRAIN = Owner("Job", "train", "uid-train")
SAFE, KEEP = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        (pod(), "node", ""),
        (pod(nodeName="n1"), "node", "n1"),
        (pod(), "nominated", ""),
        (pod(status={"nominatedNodeName": "n2"}), "nominated", "n2"),
        (pod(), "gated", False),
        (pod(schedulingGates=[]), "gated", False),
        (pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), "gated", True),
        (pod(), "scheduler", "default-scheduler"),
        (pod(schedulerName="volcano"), "scheduler", "volcano"),
        (pod(), "deleting", False),
        (pod(deletionTimestamp=CREATED), "deleting", True),
        (pod(deletionTimestamp=CREATED), "ends", AT),
        (pod(), "daemon", False),
        (pod(owner=owner("DaemonSet", "flannel")), "daemon", True),
        (pod(owner=owner("Node", "titan-a01")), "daemon", True),
        (pod(annotations={"kubernetes.io/config.mirror": "abc"}), "mirror", True),
        (pod(owner=owner("Job", "train")), "owner", TRAIN),
        (pod(ownerReferences=[LOOSE]), "owner", None),
        (pod(ownerReferences=[LOOSE, owner("Job", "train")]), "owner", TRAIN),
        (pod(labels={"a": "b"}), "labels", {"a": "b"}),
        (pod(annotations={"causeway.dev/gang-min": "2", "huge": "x" * 10_000}), "annotations",
         {"causeway.dev/gang-min": "2"}),
        (pod(annotations={SAFE: "false", KEEP: "true", "x": "y"}), "annotations",
         {SAFE: "false", KEEP: "true"}),
        (pod(), "created", AT),
        (pod(status={"startTime": "2027-01-15T08:00:30.5Z"}), "started", AT + 30.5),
        (pod(status={"phase": "Running"}), "phase", "Running"),
        (pod(terminationGracePeriodSeconds=600), "grace", 600),
        (pod(terminationGracePeriodSeconds=0), "grace", 0),
        (pod(), "version", "7"),
        (pod("w"), "uid", "uid-w"),
    ],
)  # fmt: skip
def test_05_fields_of_a_pod(written: Json, field: str, value: Any) -> None:
    assert getattr(one(written), field) == value


WORDS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3: \n no"}


@pytest.mark.parametrize(
    ("conditions", "node", "refused"),
    [
        ([WORDS], "", "0/3: no"),
        ([WORDS], "n", ""),
        ([{**WORDS, "reason": "SchedulingGated"}], "", ""),
        ([{**WORDS, "status": "True"}], "", ""),
        (None, "", ""),
    ],
)
def test_05_what_the_scheduler_says(conditions: list[Json] | None, node: str, refused: str) -> None:
    assert one(pod(status={"conditions": conditions}, nodeName=node)).refused == refused


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
def test_25_what_would_be_lost_with_the_node(volume: Json, lost: bool) -> None:
    volumes = [{"name": "scratch", **volume}]
    assert one(pod(volumes=volumes)).local_storage is lost
    assert not one(
        pod(volumes=volumes, annotations={f"{SAFE}-local-volumes": "other, scratch"})
    ).local_storage


def test_06_labels_of_old_are_asked_for_by_their_current_names() -> None:
    old = {"failure-domain.beta.kubernetes.io/zone": "z", "beta.kubernetes.io/instance-type": "t"}
    assert shape_of(pod(nodeSelector=old)).selector == (
        ("node.kubernetes.io/instance-type", "t"),
        (ZONE, "z"),
    )


def test_07_node_affinity() -> None:
    term = {
        "matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }
    ssd = {"weight": 7, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
    rules = {REQUIRED: {"nodeSelectorTerms": [term, {}]}, PREFERRED: [ssd, {"weight": 7, "preference": {}}]}
    shape = shape_of(pod(affinity={"nodeAffinity": rules}))
    arch = Requirement("kubernetes.io/arch", "In", ("amd64",))
    name = Requirement("metadata.name", "In", ("n1",))
    assert shape.affinity == (NodeTerm((arch,), (name,)), NodeTerm())
    assert shape.preferred == ((7, NodeTerm((Requirement("ssd", "Exists"),))),)
    assert shape_of(pod(affinity={})).affinity is None


APP = Selector((("app", "x"),))
NARROWED = Selector(APP.equals, (Requirement("rev", "In", ("3",)), Requirement("tenant", "NotIn", ("t",))))


@pytest.mark.parametrize(
    ("more", "term"),
    [
        ({}, PodTerm(HOST, APP, ("user-ada",))),
        ({"namespaces": ["b", "a"]}, PodTerm(HOST, APP, ("a", "b"))),
        ({"namespaceSelector": {}}, PodTerm(HOST, APP, ("*",))),
        ({"namespaceSelector": {"matchLabels": {"t": "v"}}}, PodTerm(HOST, APP, (), Selector((("t", "v"),)))),
        ({"labelSelector": None}, PodTerm(HOST, None, ("user-ada",))),
        ({"matchLabelKeys": ["rev", "no"], "mismatchLabelKeys": ["tenant"]},
         PodTerm(HOST, NARROWED, ("user-ada",))),
    ],
)  # fmt: skip
def test_07_pod_affinity_says_which_pods_where(more: Json, term: PodTerm) -> None:
    written = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "x"}}, **more}
    labels = {"rev": "3", "tenant": "t"}
    anti = shape_of(pod(affinity={"podAntiAffinity": {REQUIRED: [written]}}, labels=labels))
    beside = shape_of(pod(affinity={"podAffinity": {REQUIRED: [written]}}, labels=labels))
    assert (anti.apart, anti.together, beside.apart, beside.together) == ((term,), (), (), (term,))


def test_07_spread_that_must_hold() -> None:
    def spread(**more: Any) -> tuple[Spread, ...]:
        constraint = {
            "maxSkew": 2,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "minDomains": 3,
            "matchLabelKeys": ["pod-template-hash"],
        }
        labels = {"pod-template-hash": "h"}
        return shape_of(pod(topologySpreadConstraints=[{**constraint, **more}], labels=labels)).spread

    chosen = Selector((), (Requirement("app", "Exists"), Requirement("pod-template-hash", "In", ("h",))))
    assert spread() == (Spread(ZONE, 2, chosen, 3),)
    assert spread(whenUnsatisfiable="ScheduleAnyway") == ()
    assert spread(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor") == (
        Spread(ZONE, 2, chosen, 3, affinity=False, taints=True),
    )
    assert spread(nodeAffinityPolicy="Honor", nodeTaintsPolicy="Ignore") == spread()


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
    tolerations = shape_of(pod(tolerations=[*usual, mine, gpu])).tolerations
    assert tolerations == (
        Toleration("nvidia.com/gpu", "Exists"),
        Toleration("team", "Equal", "vision", "NoSchedule"),
    )
    assert tolerations == shape_of(pod(tolerations=[gpu, mine, gpu])).tolerations


@pytest.mark.parametrize(
    ("port", "host_network", "bound"),
    [
        ({"containerPort": 80, "hostPort": 8080}, False, (("TCP", "0.0.0.0", 8080),)),
        ({"containerPort": 53, "protocol": "UDP", "hostPort": 53}, False, (("UDP", "0.0.0.0", 53),)),
        ({"containerPort": 80}, False, ()),
        ({"containerPort": 80}, True, (("TCP", "0.0.0.0", 80),)),
        ({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}, False, (("TCP", "10.0.0.1", 80),)),
    ],
)
def test_07_host_ports(port: Json, host_network: bool, bound: tuple[tuple[str, str, int], ...]) -> None:
    assert shape_of(pod("w", container(ports=[port]), hostNetwork=host_network)).ports == bound


def test_claims_are_in_the_shape_and_of_volumes_made_for_one_pod_their_classes() -> None:
    volumes = [
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "a", "persistentVolumeClaim": {"claimName": "home"}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "ebs"}}}},
        {"name": "e", "csi": {"driver": "inline.example"}},
    ]
    shape = shape_of(pod(volumes=volumes))
    assert (shape.claims, shape.ephemeral) == (("data", "home"), (None, "ebs"))
