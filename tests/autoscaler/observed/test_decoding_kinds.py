"""Nodes, DaemonSets, budgets and volumes, as the snapshot has them."""

from __future__ import annotations

from typing import Any

import pytest
from autoscaler.apiobjects import AT, condition, container, joined, meta, pod, shape_of, template

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import node_affinity
from infra.autoscaler.observed.snapshot import (
    Attachments,
    Budget,
    NodeTerm,
    Requirement,
    Selector,
    Toleration,
)

ZONE = "topology.kubernetes.io/zone"


def node(name: str = "n1", *, status: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    of_meta = {key: more.pop(key) for key in ("labels", "annotations") if key in more}
    return {
        "metadata": meta(name, namespace="", **of_meta),
        "spec": more,
        "status": {"allocatable": {"cpu": "4"}, "conditions": [condition("Ready")], **(status or {})},
    }


OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
GPU_SICK = {"key": "causeway.dev/gpu-sick", "effect": "NoSchedule"}
TAINTS = [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "l", "effect": "NoExecute"}]


def with_conditions(*conditions: dict[str, Any]) -> dict[str, Any]:
    return node(status={"conditions": list(conditions)})


def offering(**amounts: Any) -> dict[str, Any]:
    return node(status={"allocatable": amounts})


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        (node("ip-10-0-0-1"), "name", "ip-10-0-0-1"),
        (node("a"), "uid", "uid-a"),
        (node(), "version", "7"),
        (node(), "created", AT),
        (node(labels={"a": "b"}), "labels", {"a": "b"}),
        # Labels of old are there by their current names, too.
        (node(labels={OLD_ZONE: "a"}), "labels", {OLD_ZONE: "a", ZONE: "a"}),
        (node(labels={OLD_ZONE: "a", ZONE: "b"}), "labels", {OLD_ZONE: "a", ZONE: "b"}),
        (node(annotations={"causeway.dev/x": "y", "other": "z"}), "annotations", {"causeway.dev/x": "y"}),
        (node(providerID="aws:///us-west-2a/i-0123"), "instance", "i-0123"),
        (node(taints=TAINTS), "taints", (Taint("k", "v", "NoSchedule"), Taint("l", "", "NoExecute"))),
        (node(), "unschedulable", False),
        # It is ready only if it says so.
        (node(), "ready", True),
        (node(), "since", AT),
        (with_conditions(condition("Ready", "False")), "ready", False),
        (with_conditions(condition("Ready", "Unknown")), "ready", False),
        (with_conditions(), "ready", False),
        (node(), "sick", False),
        (node(taints=[GPU_SICK]), "sick", True),
        (with_conditions(condition("Ready"), condition("GpuSick")), "sick", True),
        (with_conditions(condition("GpuSick", "False")), "sick", False),
        # What it offers is rounded down, and nonsense is not there.
        (offering(cpu="3920500u", memory="7500m", pods=110), "allocatable",
         {"cpu": 3920, "memory": 7, "pods": 110}),
        (offering(cpu="4", fpga="lots"), "allocatable", {"cpu": 4000}),
        (offering(**{"nvidia.com/gpu": "0"}), "allocatable", {"nvidia.com/gpu": 0}),
    ],
)  # fmt: skip
def test_04_fields_of_a_node(written: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(joined(Node=[written]).nodes[0], field) == value


def test_08_daemons_ask_for_what_their_template_says_and_stand_what_the_controller_adds() -> None:
    written = {
        "metadata": meta("flannel", namespace="kube-flannel"),
        "spec": {
            "template": template(
                container({"cpu": "100m"}, {"memory": "50Mi"}),
                hostNetwork=True,
                nodeSelector={"kubernetes.io/os": "linux"},
            )
        },
    }
    daemon = joined(DaemonSet=[written]).daemons[0]
    assert (daemon.namespace, daemon.name) == ("kube-flannel", "flannel")
    assert daemon.shape.requests == (("cpu", 100), ("memory", 50 * 2**20), ("pods", 1))
    young = (
        Taint("node.kubernetes.io/not-ready", "", "NoExecute"),
        Taint("node.kubernetes.io/unschedulable"),
        Taint("node.kubernetes.io/network-unavailable"),
    )
    assert node_affinity.overhead([daemon], {}, young) == {"cpu": 100, "memory": 50 * 2**20, "pods": 1}
    assert node_affinity.overhead([daemon], {}, (*young, Taint("team", "x"))) == {}


def test_07_pods_of_a_template_tolerate_the_taints_of_their_resources() -> None:
    written = {"metadata": meta("d"), "spec": {"template": template(container({"nvidia.com/gpu": "1"}))}}
    gpu = Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule")
    assert gpu in joined(DaemonSet=[written]).daemons[0].shape.tolerations
    # Pods have it from the API server (ExtendedResourceToleration) where they have it at all.
    assert shape_of(pod("w", container({"nvidia.com/gpu": "1"}))).tolerations == ()


def test_24_budgets() -> None:
    def budget(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": meta(name), "spec": spec, "status": {"disruptionsAllowed": 2}}

    some = {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    found = joined(
        PodDisruptionBudget=[budget("x", selector=some), budget("y", selector={}), budget("z")]
    ).budgets
    selector = Selector((("a", "1"), ("b", "2")), (Requirement("c", "Exists"),))
    assert found == (
        Budget("user-ada", "x", selector, 2),
        Budget("user-ada", "y", Selector(), 2),
        Budget("user-ada", "z", None, 2),
    )


def claim(name: str, volume: str = "", phase: str = "Bound", storage: str | None = None) -> dict[str, Any]:
    return {
        "metadata": meta(name),
        "spec": {"volumeName": volume, "storageClassName": storage},
        "status": {"phase": phase},
    }


def volume(name: str, *zones: str, phase: str = "Bound", storage: str = "", **more: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if zones else {}
    return {
        "metadata": meta(name, namespace="", **more),
        "spec": {"storageClassName": storage, **affinity},
        "status": {"phase": phase},
    }


def storage(name: str, mode: str = "WaitForFirstConsumer", **more: Any) -> dict[str, Any]:
    of_meta = {key: more.pop(key) for key in ("annotations",) if key in more}
    return {
        "metadata": meta(name, namespace="", **of_meta),
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": mode,
        **more,
    }


def zone_is(*values: str) -> NodeTerm:
    return NodeTerm((Requirement(ZONE, "In", values),))


def test_07_a_claim_is_where_its_volume_is() -> None:
    found = joined(
        PersistentVolumeClaim=[claim("here", "v1"), claim("nowhere", "v2"), claim("lost", "v3")],
        PersistentVolume=[volume("v1", "a", "b"), volume("v2")],
    ).claims
    assert found == {"user-ada/here": (zone_is("a"), zone_is("b")), "user-ada/nowhere": ()}


def test_07_volumes_of_old_have_their_zones_in_labels() -> None:
    found = joined(
        PersistentVolumeClaim=[claim("c", "v1"), claim("d", "v2")],
        PersistentVolume=[
            volume("v1", labels={"failure-domain.beta.kubernetes.io/zone": "b__a"}),
            volume("v2", "a", labels={ZONE: "a"}),
        ],
    ).claims
    also = Requirement(ZONE, "In", ("a",))
    assert found == {"user-ada/c": (zone_is("a", "b"),), "user-ada/d": (NodeTerm((also, also)),)}


def test_07_a_claim_that_waits_for_its_pod_may_be_where_its_class_allows() -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    found = joined(
        PersistentVolumeClaim=[
            claim("free", phase="Pending", storage="ebs"),
            claim("zoned", phase="Pending", storage="zoned"),
            claim("unnamed", phase="Pending"),
            claim("made-first", phase="Pending", storage="immediate"),
            claim("by-hand", phase="Pending", storage=""),
        ],
        StorageClass=[
            storage("ebs", annotations=default),
            storage("zoned", allowedTopologies=allowed),
            storage("immediate", "Immediate"),
        ],
    ).claims
    assert found == {
        "user-ada/free": None,
        "user-ada/zoned": (zone_is("a", "b"),),
        "user-ada/unnamed": None,
    }


def test_07_a_claim_on_volumes_made_by_hand_is_where_one_is_free() -> None:
    by_hand = "kubernetes.io/no-provisioner"
    found = joined(
        PersistentVolumeClaim=[
            claim(name, phase="Pending", storage=name) for name in ("disks", "shared", "none")
        ],
        PersistentVolume=[
            volume("v1", "a", phase="Available", storage="disks"),
            volume("v2", "b", phase="Bound", storage="disks"),
            volume("v3", "c", phase="Available", storage="disks"),
            volume("v4", "c", phase="Available", storage="shared"),
            volume("v5", phase="Available", storage="shared"),
        ],
        StorageClass=[storage(name, provisioner=by_hand) for name in ("disks", "shared", "none")],
    ).claims
    assert found == {"user-ada/disks": (zone_is("a"), zone_is("c")), "user-ada/shared": ()}


def csi_node(name: str, **limits: int | None) -> dict[str, Any]:
    """Drivers as ``ebs=25``; None for one that states no limit."""
    drivers = [
        {"name": f"{driver}.csi.aws.com", **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in limits.items()
    ]
    return {"metadata": meta(name, namespace=""), "spec": {"drivers": drivers}}


def csi_volume(name: str, driver: str = "ebs", handle: str = "") -> dict[str, Any]:
    found = volume(name)
    found["spec"]["csi"] = {"driver": f"{driver}.csi.aws.com", "volumeHandle": handle or f"vol-{name}"}
    return found


def test_07_volumes_of_drivers_with_a_limit_are_known_by_their_handles() -> None:
    found = joined(
        CSINode=[csi_node("n1", ebs=25, efs=None), csi_node("n2", efs=None), csi_node("n3", ebs=0)],
        PersistentVolumeClaim=[
            claim("data", "v1"),
            claim("same", "v2"),
            claim("shared", "v3"),
            claim("path", "v4"),
            claim("new", phase="Pending", storage="ebs"),
            claim("unnamed", phase="Pending"),
            claim("other", phase="Pending", storage="efs"),
        ],
        PersistentVolume=[
            csi_volume("v1"),
            csi_volume("v2", handle="vol-v1"),
            csi_volume("v3", "efs"),
            volume("v4"),
        ],
        StorageClass=[
            storage("ebs", annotations={"storageclass.kubernetes.io/is-default-class": "true"}),
            storage("efs", provisioner="efs.csi.aws.com"),
        ],
    ).attachments
    ebs = "ebs.csi.aws.com"
    assert found.limits == {"n1": {ebs: 25}, "n3": {ebs: 0}}
    assert found.claims == {
        "user-ada/data": (ebs, "vol-v1"),
        "user-ada/same": (ebs, "vol-v1"),
        "user-ada/new": (ebs, "claim user-ada/new"),
        "user-ada/unnamed": (ebs, "claim user-ada/unnamed"),
    }
    assert found.classes == {"ebs": ebs, None: ebs}


def test_07_without_a_limit_no_volume_is_looked_at() -> None:
    """As with the drivers that Causeway installs: EFS, NFS and S3 state none."""
    found = joined(
        CSINode=[csi_node("n1", efs=None), csi_node("n2")],
        PersistentVolumeClaim=[claim("data", "v1")],
        PersistentVolume=[csi_volume("v1")],
        StorageClass=[storage("ebs")],
    )
    assert found.attachments == Attachments()


def test_pods_that_are_over_are_left_out_and_namespaces_have_their_labels() -> None:
    found = joined(
        Pod=[
            pod("done", status={"phase": "Succeeded"}),
            pod("failed", status={"phase": "Failed"}),
            pod("on"),
        ],
        Namespace=[{"metadata": meta("user-ada", namespace="", labels={"team": "vision"})}],
    )
    assert [each.name for each in found.pods] == ["on"]
    assert found.namespaces == {"user-ada": {"team": "vision"}}
    assert found.at == AT
