"""What of MLflow depends on the spec and on what AWS has decided. The rest is in `test_tracking_live.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace
from strategies.outputs import outputs_for

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render import kubernetes
from infra.render.kubernetes import research, tracking
from infra.render.kubernetes.containers import pulled


@pytest.fixture
def cluster() -> Cluster:
    return golden("research")


def rendered(cluster: Cluster, outputs: Outputs | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    documents = tracking.objects(cluster, outputs_for(cluster) if outputs is None else outputs)
    return {(one["kind"], one["metadata"]["name"]): one for each in documents.values() for one in each}


def in_a_pod(cluster: Cluster) -> Cluster:
    assert cluster.tracking is not None
    return replace(cluster, tracking=replace(cluster.tracking, managed=None))


def offered(cluster: Cluster, outputs: Outputs) -> dict[str, Any]:
    assert cluster.research is not None
    return research.contract(cluster, cluster.research, outputs)


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


def server(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment", "mlflow"]["spec"]["template"]["spec"]
    return pod


def test_before_its_database_is_there_nothing_is_rendered_or_offered(cluster: Cluster) -> None:
    assert tracking.objects(cluster, NO_OUTPUTS) == {}
    assert "tracking" not in offered(cluster, NO_OUTPUTS)
    assert offered(cluster, outputs_for(cluster))["tracking"] == {
        "url": "http://mlflow.mlflow.svc:5000",
        "namespace": "mlflow",
        "service": "mlflow",
        "port": 5000,
    }
    assert "tracking" in offered(in_a_pod(cluster), NO_OUTPUTS)


def test_a_cluster_without_it_has_nothing_of_it(cluster: Cluster) -> None:
    off = replace(cluster, tracking=None)
    assert tracking.objects(off, outputs_for(off)) == {}
    assert "tracking" not in offered(off, outputs_for(off))
    assert not [path for path in kubernetes.render(off, outputs_for(off)) if "tracking" in path]


def test_the_database_at_aws_is_reached_over_tls_and_by_its_name(cluster: Cluster) -> None:
    objects = rendered(cluster)
    (container,) = server(objects)["containers"]
    host = outputs_for(cluster).tracking_database
    assert environment(container)["MLFLOW_BACKEND_STORE_URI"] == (
        f"postgresql+psycopg2://mlflow@{host}:5432/mlflow"
    )
    assert environment(container)["PGSSLMODE"] == "verify-full"
    assert environment(container)["PGSSLROOTCERT"] == "/var/run/secrets/database/authorities.pem"
    cron = objects["CronJob", "thin"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for pod in (server(objects), cron):
        (volume,) = [each for each in pod["volumes"] if "secret" in each]
        assert volume["secret"]["secretName"] == "database"
        for each in (*pod.get("initContainers", ()), *pod["containers"]):
            (mount,) = [one for one in each["volumeMounts"] if one["name"] == volume["name"]]
            assert mount["mountPath"] == "/var/run/secrets/database"
    assert environment(container)["AWS_ROLE_ARN"].endswith(":role/research-mlflow")
    assert ("StatefulSet", "database") not in objects


def test_a_database_in_a_pod_stays_on_the_first_master(cluster: Cluster) -> None:
    objects = rendered(in_a_pod(cluster), NO_OUTPUTS)
    assert ("StatefulSet", "database") in objects
    (term,) = objects["PersistentVolume", "mlflow-database"]["spec"]["nodeAffinity"]["required"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["values"] == ["master-1"]
    policy = objects["NetworkPolicy", "database"]["spec"]
    clients = [each["podSelector"]["matchLabels"] for each in policy["ingress"][0]["from"]]
    assert clients == [{"app.kubernetes.io/name": name} for name in ("mlflow", "thin")]
    images = {each.name for each in pulled(in_a_pod(cluster)).images if "tracking" in each.users}
    assert images == {
        "docker.io/library/postgres:17.6-bookworm",
        "registry.lab.example/causeway/mlflow:3.17.2",
    }


def test_no_secret_is_rendered(cluster: Cluster) -> None:
    for one in (cluster, in_a_pod(cluster)):
        objects = rendered(one)
        assert not [kind for kind, _ in objects if kind == "Secret"]
        named = json.dumps(list(objects.values())).count('"secretKeyRef": {"name": "database"')
        assert named >= 3


def test_who_reaches_the_server_is_who_may_use_it(cluster: Cluster) -> None:
    policy = rendered(cluster)["NetworkPolicy", "mlflow"]["spec"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 5000}]
    selectors = [each["namespaceSelector"] for each in rule["from"] if "namespaceSelector" in each]
    assert selectors == [{"matchExpressions": [{"key": "causeway.dev/tenant", "operator": "Exists"}]}]
    assert all("except" in each["ipBlock"] for each in policy["egress"][1]["to"])
