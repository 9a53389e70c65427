"""What of manifests depends on the spec, or on an apply, where no golden folder has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace
from strategies.outputs import outputs_for

from infra.autoscaler.kube import kinds
from infra.catalogue import efa as catalogue
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render import kubernetes
from infra.render.kubernetes import (
    addon_objects,
    autoscaler,
    gpu,
    kubeadm,
    queues,
    research,
    tracking,
    watching,
)
from infra.render.kubernetes.containers import pulled

REFERENCE = golden("research")


def by_name(documents: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Kind and name → object."""
    return {(one["kind"], one["metadata"]["name"]): one for some in documents.values() for one in some}


def without_addon(name: str) -> Cluster:
    addons = tuple(each for each in REFERENCE.kubernetes.addons if each.name != name)
    return replace(REFERENCE, kubernetes=replace(REFERENCE.kubernetes, addons=addons))


def without_tools() -> Cluster:
    assert REFERENCE.research is not None
    return replace(REFERENCE, research=replace(REFERENCE.research, tools=None))


def in_a_pod() -> Cluster:
    """With MLflow's database in a pod instead of at AWS."""
    assert REFERENCE.tracking is not None
    return replace(REFERENCE, tracking=replace(REFERENCE.tracking, managed=None))


UNTRACKED = replace(REFERENCE, tracking=None)


@pytest.mark.parametrize(
    "documents",
    [
        lambda: gpu.objects(golden("minimal")),
        lambda: addon_objects.features(golden("minimal")),
        lambda: addon_objects.efa(golden("minimal")),
        lambda: addon_objects.efa(without_addon(addon_objects.EFA)),
        lambda: queues.objects(without_addon("kueue")),
        lambda: autoscaler.objects(replace(REFERENCE, pools=())),
        lambda: tracking.objects(UNTRACKED, outputs_for(REFERENCE)),
        lambda: tracking.objects(REFERENCE, NO_OUTPUTS),
        lambda: research.sweeps(UNTRACKED, outputs_for(REFERENCE)),
        lambda: research.sweeps(REFERENCE, NO_OUTPUTS),
        lambda: research.sweeps(without_tools(), outputs_for(REFERENCE)),
    ],
    ids=[
        "GPUs", "features", "no adapters", "EFA off", "Kueue off", "no pools", "MLflow off",
        "before MLflow's database", "sweeps without MLflow", "sweeps before an apply", "sweeps without tools",
    ],
)  # fmt: skip
def test_a_part_that_is_off_has_no_objects(documents: Callable[[], object]) -> None:
    assert documents() == {}


def test_what_there_is_none_of_is_not_watched() -> None:
    def watched(cluster: Cluster) -> set[str]:
        objects = watching.objects(cluster)
        names = {
            each["metadata"]["name"] for kind in ("rules.yaml", "dashboards.yaml") for each in objects[kind]
        }
        return names & {"causeway-gateways", "causeway-remote-access", "dashboard-private-network"}

    nobody = replace(REFERENCE.access, vpn=replace(REFERENCE.access.vpn, servers=()))
    assert watched(replace(REFERENCE, gateways=())) == {"causeway-remote-access", "dashboard-private-network"}
    assert watched(replace(REFERENCE, access=nobody)) == {"causeway-gateways", "dashboard-private-network"}
    assert watched(replace(REFERENCE, gateways=(), access=nobody)) == set()


@pytest.mark.parametrize("change", [{"image": None}, {"enabled": False}], ids=str)
def test_without_an_autoscaler_there_is_its_kind_alone(change: dict[str, Any]) -> None:
    cluster = replace(REFERENCE, autoscaler=replace(REFERENCE.autoscaler, **change))
    assert {kind for kind, _ in by_name(autoscaler.objects(cluster))} == {"CustomResourceDefinition"}
    monitors = watching.objects(cluster)["monitors.yaml"]
    assert "autoscaler" not in [each["metadata"]["name"] for each in monitors]


def test_a_changed_configuration_restarts_its_pods() -> None:
    """Their ConfigMap is read once: the template notes what is in it."""

    def noted(documents: Any, kind: str, name: str) -> object:
        return by_name(documents)[kind, name]["spec"]["template"]["metadata"]["annotations"]

    overlay = replace(REFERENCE.kubernetes.overlay, mtu=1300)
    network = replace(REFERENCE, kubernetes=replace(REFERENCE.kubernetes, overlay=overlay))
    slower = replace(REFERENCE, autoscaler=replace(REFERENCE.autoscaler, idle=1234))
    for part, name, changed in (
        ("flannel", ("DaemonSet", "flannel"), network),
        ("autoscaler", ("Deployment", "autoscaler"), slower),
    ):
        before = noted(kubernetes.objects(part, REFERENCE), *name)
        assert before == noted(kubernetes.objects(part, REFERENCE), *name)
        assert before != noted(kubernetes.objects(part, changed), *name)


def test_the_autoscaler_may_look_at_what_it_watches_and_at_nothing_else() -> None:
    watched = set()
    for path in (path for each in kinds.KINDS for path in each.paths):
        parts = path.strip("/").split("/")
        watched.add(("" if parts[0] == "api" else parts[1], parts[-1]))
    (role,) = (
        each for (kind, _), each in by_name(autoscaler.objects(REFERENCE)).items() if kind == "ClusterRole"
    )
    looking = [rule for rule in role["rules"] if {"list", "watch"} <= {*rule["verbs"]}]
    assert {(rule["apiGroups"][0], plural) for rule in looking for plural in rule["resources"]} == watched


def test_machines_set_aside_the_huge_pages_that_the_autoscaler_expects_of_them() -> None:
    pages = f"{kubeadm.attributes(REFERENCE)['efa']['huge_pages'] * 2}Mi"
    groups = [group for pool in REFERENCE.pools for group in pool.groups if pool.efa_interfaces]
    assert groups
    for group in groups:
        assert group.allocatable[catalogue.HUGE_PAGES_RESOURCE] == pages
        assert group.resources[catalogue.HUGE_PAGES_RESOURCE] == pages


# -- MLflow -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "outputs", "offered"),
    [
        (REFERENCE, outputs_for(REFERENCE), True),
        (REFERENCE, NO_OUTPUTS, False),
        (in_a_pod(), NO_OUTPUTS, True),
        (UNTRACKED, outputs_for(REFERENCE), False),
    ],
    ids=["at AWS", "before an apply", "in a pod", "off"],
)
def test_mlflow_is_offered_where_it_is_rendered(cluster: Cluster, outputs: Outputs, offered: bool) -> None:
    assert cluster.research is not None
    assert ("tracking" in research.contract(cluster, cluster.research, outputs)) == offered
    assert any("tracking" in path for path in kubernetes.render(cluster, outputs)) == offered


def test_a_database_in_a_pod_stays_on_the_first_master() -> None:
    objects = by_name(tracking.objects(in_a_pod(), NO_OUTPUTS))
    assert ("StatefulSet", "database") in objects
    volume = objects["PersistentVolume", "mlflow-database"]["spec"]
    (term,) = volume["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["master-1"]
    policy = objects["NetworkPolicy", "database"]["spec"]
    clients = [each["podSelector"]["matchLabels"] for each in policy["ingress"][0]["from"]]
    assert clients == [{"app.kubernetes.io/name": name} for name in ("mlflow", "thin")]
    images = {each.repository for each in pulled(in_a_pod()).images if "tracking" in each.users}
    assert images == {"library/postgres", "causeway/mlflow"}
