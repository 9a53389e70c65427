"""Helm releases: charts take our values, in every version of Kubernetes, and know what each of them means.

Charts are found below the folder that CAUSEWAY_CHARTS names, each as ``helm pull --untar`` leaves it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kube_tools
import pytest
import yaml
from golden_clusters import golden

from infra.catalogue import releases
from infra.load import load
from infra.render.kubernetes import charts, watching
from infra.render.kubernetes.charts import monitoring
from infra.render.kubernetes.charts.release import merged
from infra.resolve.addons import nested
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[3] / "environments"
MINORS = [
    minor
    for minor in releases.kubernetes_versions()
    if (found := releases.kubernetes(minor)) is not None and found.supported
]
OPEN = ("nodeSelector", "resources", "securityContext", "grafana.ini", "spec", "affinity")
"""Values whose keys are Kubernetes' or a program's own to say."""
UNSAID: dict[str, dict[str, Any]] = {
    "aws-mountpoint-s3-csi-driver": {"controller": {"nodeSelector": {}, "tolerations": []}},
    "dcgm-exporter": {"customMetrics": ""},
}
"""Chart → values that its templates read, and that it does not list."""


@cache
def rows(name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = yaml.safe_load(charts.render(golden(name))["releases.yaml"])
    return found


RELEASES = sorted({row["name"] for name in ("minimal", "local", "research") for row in rows(name)})


@pytest.fixture
def chart() -> Any:
    return kube_tools.chart


def test_the_spec_s_values_stand_over_ours() -> None:
    ours = {"a": {"b": 1, "c": [1, 2]}, "d": "x"}
    theirs = nested({"a.c": "3", "a.e\\.f": "true", "d": "null", "g": "1.20", "h": "007"})
    assert theirs == {"a": {"c": 3, "e.f": True}, "d": None, "g": "1.20", "h": "007"}
    assert merged(ours, theirs) == {
        "a": {"b": 1, "c": 3, "e.f": True}, "d": None, "g": "1.20", "h": "007",
    }  # fmt: skip
    assert ours == {"a": {"b": 1, "c": [1, 2]}, "d": "x"}


def test_values_and_versions_of_the_spec_reach_the_charts(tmp_path: Path) -> None:
    own = {
        "prometheus": {"version": "88.0.0", "values": {"prometheus.prometheusSpec.retention": "90d"}},
        "grafana": {"values": {"persistence.enabled": True}},
        "ingress": {"enabled": False},
    }
    spec = yaml.safe_dump({"kubernetes": {"addons": own}})
    (tmp_path / "own.yaml").write_text((ENVIRONMENTS / "minimal.yaml").read_text() + spec)
    cluster = resolve(load(tmp_path / "own.yaml").spec, Lock(), "own")[0]
    values = charts.values(cluster)
    stack = values["kube-prometheus-stack"]
    assert stack["prometheus"]["prometheusSpec"]["retention"] == "90d"
    assert stack["prometheus"]["prometheusSpec"]["retentionSize"] == "32GB"
    assert stack["grafana"]["persistence"] == {"enabled": True}
    assert "traefik" not in values
    found = yaml.safe_load(charts.render(cluster)["releases.yaml"])
    assert {row["version"] for row in found if row["name"] == "kube-prometheus-stack"} == {"88.0.0"}


@pytest.mark.parametrize("release", RELEASES)
def test_a_chart_takes_our_values(chart: Any, tmp_path: Path, release: str) -> None:
    """For each version of Kubernetes; helm checks them against the chart's own schema, where it has one."""
    helm = kube_tools.helm()
    name, row = _of(release)
    values = tmp_path / "values.yaml"
    values.write_text(charts.render(golden(name))[row["values"]])
    for minor in MINORS:
        made = subprocess.run(
            [
                helm, "template", release, chart(row["chart"]), "--namespace", row["namespace"],
                "--values", values, "--kube-version", f"{minor}.0",
                "--api-versions", "monitoring.coreos.com/v1",
                "--api-versions", "monitoring.coreos.com/v1/ServiceMonitor",
            ],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        assert "kind: " in made.stdout
        for each in yaml.load_all(made.stdout, _Unambiguous):
            _is_where_machines_always_are(each)


class _Unambiguous(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML itself would have the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice the same key:{node.start_mark}"
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("release", ["metrics-server", "kube-prometheus-stack"])
def test_kubelets_are_verified(release: str) -> None:
    """By the cluster's authority, which is in each pod."""
    authority = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    name, row = _of(release)
    values = yaml.safe_load(charts.render(golden(name))[row["values"]])
    options = ["--api-versions", "monitoring.coreos.com/v1", "--set", "crds.enabled=false"]
    found = kube_tools.templated(row["chart"], values, *options)
    if release == "metrics-server":
        (server,) = (each for each in found if each["kind"] == "Deployment")
        args = server["spec"]["template"]["spec"]["containers"][0]["args"]
        assert f"--kubelet-certificate-authority={authority}" in args
        assert "--kubelet-insecure-tls" not in args
    else:
        (kubelets,) = (
            each
            for each in found
            if each["kind"] == "ServiceMonitor" and each["metadata"]["name"].endswith("-kubelet")
        )
        tls = [each["tlsConfig"] for each in kubelets["spec"]["endpoints"]]
        assert tls == [{"caFile": authority, "insecureSkipVerify": False}] * 3


def test_monitoring_is_reached_by_its_own_pods_and_has_no_page() -> None:
    """All of the release, as Helm makes it. What enforces network policies is no part of these tests."""
    row = _of("kube-prometheus-stack")[1]
    values = yaml.safe_load(charts.render(golden("research"))[row["values"]])
    options = ["--namespace", row["namespace"], "--set", "crds.enabled=false"]
    options += ["--api-versions", "monitoring.coreos.com/v1"]
    # Without that of `helm test`, which nobody runs.
    release = kube_tools.templated(row["chart"], values, *options, "--skip-tests")
    kinds = {each["kind"] for each in release}
    assert not kinds & {"Ingress", "HTTPRoute", "DaemonSet", "Pod", "CronJob"}
    assert {each["spec"]["type"] for each in release if "type" in each.get("spec", {})} == {"ClusterIP"}
    made = [each for each in release if each["kind"] in _WITH_PODS]
    assert {each["metadata"]["namespace"] for each in made} == {"monitoring"}
    (grafana,) = (each for each in made if each["kind"] == "StatefulSet")
    assert (f"{grafana['metadata']['name']}-0", grafana["spec"]["replicas"]) == (monitoring.GRAFANA_POD, 1)
    # Policies add up: one lets in the namespace's own pods, another whoever comes for the operator's port.
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in release
        if each["kind"] == "NetworkPolicy" and "Ingress" in each["spec"]["policyTypes"]
    }
    operator = policies.pop("monitoring-operator")
    own: dict[str, Any] = {"from": [{"podSelector": {}}]}
    assert policies == {"default": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [own]}}
    assert operator["ingress"] == [{"ports": [{"port": 10250}]}]
    chosen = operator["podSelector"]["matchLabels"].items()
    found = [each["metadata"]["name"] for each in made if chosen <= _pod(each)["metadata"]["labels"].items()]
    assert found == ["monitoring-operator"]


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("dcgm-exporter", {"/var/lib/kubelet/pod-resources", "/dev/null"}),
        ("node-problem-detector", {"/var/lib/causeway"}),
    ],
)
def test_agents_run_on_tainted_nodes_and_are_measured(name: str, reads: set[str]) -> None:
    row = _of(name)[1]
    values = charts.values(golden("research"))[name]
    made = kube_tools.templated(row["chart"], values, "--namespace", row["namespace"])
    (agent,) = (each for each in made if each["kind"] == "DaemonSet")
    pod = agent["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each} == reads
    (container,) = pod["containers"]
    assert container["resources"]["limits"].keys() == {"memory"}
    # Ten rounds of an update, and what an agent takes to start, are over before the release times out.
    assert container.get("readinessProbe", {}).get("initialDelaySeconds", 0) <= 15
    documents = watching.objects(golden("research"))["monitors.yaml"]
    (monitor,) = (each for each in documents if each["metadata"]["name"] == name)
    assert monitor["metadata"]["namespace"] == row["namespace"]
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    assert chosen <= agent["spec"]["template"]["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [each["name"] for each in container["ports"]]


def test_the_detector_has_the_files_that_it_is_told_of() -> None:
    row = _of("node-problem-detector")[1]
    for name, gpus in (("research", True), ("minimal", False)):
        values = charts.values(golden(name))["node-problem-detector"]
        made = kube_tools.templated(row["chart"], values)
        (files,) = (each["data"] for each in made if each["kind"] == "ConfigMap")
        (agent,) = (each for each in made if each["kind"] == "DaemonSet")
        (command,) = agent["spec"]["template"]["spec"]["containers"][0]["command"][2:]
        told = set(re.findall(r"/custom-config/([\w.-]+)", command + json.dumps(files)))
        assert told == {*files} == {"kernel.json"} | ({"gpu.json", "gpu-sick"} if gpus else set())


_WITH_PODS = ("Deployment", "StatefulSet", "Job", "Prometheus", "Alertmanager")


def _pod(each: dict[str, Any]) -> dict[str, Any]:
    """The template of its pods; the operator labels those of its own kinds."""
    found: dict[str, Any] = each["spec"].get("template", {"metadata": {"labels": {}}})
    return found


def _is_where_machines_always_are(each: Any) -> None:
    """Pools may be empty, and GPUs are kept for those who ask for them: masters are neither."""
    if each is None or "helm.sh/hook" in (each["metadata"].get("annotations") or {}):
        return
    match each["kind"]:
        case "Deployment" | "StatefulSet" | "Job":
            spec = each["spec"]["template"]["spec"]
        case "Prometheus" | "Alertmanager":
            spec = each["spec"]
        case _:
            return
    assert "node-role.kubernetes.io/control-plane" in spec.get("nodeSelector", {}), each["metadata"]["name"]
    assert any(
        toleration.get("key") == "node-role.kubernetes.io/control-plane"
        for toleration in spec.get("tolerations") or []
    ), each["metadata"]["name"]


@pytest.mark.parametrize("release", RELEASES)
def test_a_chart_knows_each_of_our_values(chart: Any, release: str) -> None:
    """A misspelled one would have no effect, and nobody would say so."""
    name, row = _of(release)
    folder = chart(row["chart"])
    known = merged(_defaults(folder), UNSAID.get(row["chart"], {}))
    ours = yaml.safe_load(charts.render(golden(name))[row["values"]])
    unknown = [".".join(path) for path in _missing(ours, known, ())]
    assert unknown == []


def _of(release: str) -> tuple[str, dict[str, str]]:
    return next(
        (name, row)
        for name in ("research", "local", "minimal")
        for row in rows(name)
        if row["name"] == release
    )


def _defaults(folder: Path) -> dict[str, Any]:
    """A chart's values, those of the charts within it beneath."""
    known: dict[str, Any] = yaml.safe_load((folder / "values.yaml").read_text()) or {}
    for inner in (folder / "charts").glob("*/values.yaml"):
        name = inner.parent.name
        known[name] = merged(_defaults(inner.parent), known.get(name) or {})
        known[name]["fullnameOverride"] = ""
    return known


def _missing(
    ours: Mapping[str, Any], known: Mapping[str, Any], at: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for key, value in ours.items():
        path = (*at, key)
        if key not in known:
            yield path
        elif isinstance(value, dict) and isinstance(known[key], dict) and known[key] and key not in OPEN:
            yield from _missing(value, known[key], path)
