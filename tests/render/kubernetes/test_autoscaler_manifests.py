"""The autoscaler as it is deployed: where it runs, what it may read, when it is there at all."""

from __future__ import annotations

from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace

from infra.autoscaler.kube import kinds
from infra.model import Cluster
from infra.render.kubernetes import APPLIED, autoscaler, watching
from infra.render.kubernetes.scaling import is_scaled


@pytest.fixture
def research() -> Cluster:
    return golden("research")


def rendered(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Kind → the object; of roles and bindings, the cluster's."""
    found: dict[str, dict[str, Any]] = {}
    for documents in autoscaler.objects(cluster).values():
        for each in documents:
            found.setdefault(each["kind"], each)
    return found


def pod(cluster: Cluster) -> dict[str, Any]:
    template: dict[str, Any] = rendered(cluster)["Deployment"]["spec"]["template"]
    return template


def test_without_an_image_or_turned_off_there_is_the_kind_alone(research: Cluster) -> None:
    for change in ({"image": None}, {"enabled": False}):
        other = replace(research, autoscaler=replace(research.autoscaler, **change))
        assert not is_scaled(other)
        assert [*rendered(other)] == ["CustomResourceDefinition"]
        monitors = watching.objects(other)["monitors.yaml"]
        assert "autoscaler" not in [each["metadata"]["name"] for each in monitors]


def test_without_pools_there_is_nothing(research: Cluster) -> None:
    assert autoscaler.objects(replace(research, pools=())) == {}


def test_the_kind_is_there_before_charts_are() -> None:
    """Kueue looks for it once, when it starts."""
    assert "autoscaler" in APPLIED


def test_it_starts_anew_when_what_it_is_told_changes(research: Cluster) -> None:
    noted = pod(research)["metadata"]["annotations"]["causeway.dev/config"]
    assert noted == pod(research)["metadata"]["annotations"]["causeway.dev/config"]
    other = replace(research, autoscaler=replace(research.autoscaler, idle=1234))
    assert noted != pod(other)["metadata"]["annotations"]["causeway.dev/config"]


def test_it_runs_on_masters_each_on_its_own_and_is_evicted_last(research: Cluster) -> None:
    spec = pod(research)["spec"]
    assert spec["nodeSelector"] == {"node-role.kubernetes.io/control-plane": ""}
    assert spec["priorityClassName"] == "system-cluster-critical"
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"] == pod(research)["metadata"]["labels"]
    deployment = rendered(research)["Deployment"]["spec"]
    # With one replica a node and no room for a further one, a new one waits for the old one to go.
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert deployment["replicas"] == 2
    assert rendered(one_master(research))["Deployment"]["spec"]["replicas"] == 1


def one_master(cluster: Cluster) -> Cluster:
    assert cluster.control_plane is not None
    plane = replace(cluster.control_plane, masters=cluster.control_plane.masters[:1])
    return replace(cluster, control_plane=plane)


def test_it_has_no_more_of_its_machine_than_it_needs(research: Cluster) -> None:
    spec = pod(research)["spec"]
    assert spec["hostNetwork"], "the metadata service answers no pod behind the bridge"
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not [each for each in spec["volumes"] if "hostPath" in each]


def test_secrets_come_by_reference_and_may_be_missing(research: Cluster) -> None:
    named = replace(research.autoscaler, slack="ops", webhook="notices/webhook")
    objects = rendered(replace(research, autoscaler=named))
    assert "Secret" not in objects
    (volume,) = [each for each in pod(research)["spec"]["volumes"] if "secret" in each]
    assert volume["secret"]["secretName"] == autoscaler.NOTICES
    assert volume["secret"]["optional"]
    assert "notices/webhook" not in objects["ConfigMap"]["data"]["config.json"]


def test_it_may_look_at_what_it_watches_and_at_nothing_else(research: Cluster) -> None:
    watched = set()
    for path in (path for each in kinds.KINDS for path in each.paths):
        parts = path.strip("/").split("/")
        watched.add(("" if parts[0] == "api" else parts[1], parts[-1]))
    allowed = {
        (rule["apiGroups"][0], plural)
        for rule in rendered(research)["ClusterRole"]["rules"]
        for plural in rule["resources"]
        if {"list", "watch"} <= {*rule["verbs"]}
    }
    assert allowed == watched


def test_prometheus_asks_it(research: Cluster) -> None:
    (monitor,) = [
        each
        for each in watching.objects(research)["monitors.yaml"]
        if each["metadata"]["name"] == "autoscaler"
    ]
    assert monitor["spec"]["selector"]["matchLabels"] == pod(research)["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = pod(research)["spec"]["containers"][0]["ports"]
    assert endpoint["port"] == port["name"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert pod(research)["spec"]["containers"][0][probe]["httpGet"]["port"] == port["name"]


def test_amounts_are_whole_numbers() -> None:
    found = autoscaler.amounts(
        {"cpu": "3920m", "memory": "14Mi", "ephemeral-storage": "90Gi", "pods": "110", "nvidia.com/gpu": "8"}
    )
    assert found == {
        "cpu": 3920,
        "memory": 14 << 20,
        "ephemeral-storage": 90 << 30,
        "pods": 110,
        "nvidia.com/gpu": 8,
    }
