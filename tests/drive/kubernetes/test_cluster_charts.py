"""Helm as it is called, against a real API server and a small chart of the test's own."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden_clusters import golden
from kube_tools import chart as real_chart
from kube_tools import helm as helm_program

from infra.drive.kubernetes import apply, helm, rollout
from infra.drive.kubernetes.access import Access
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.helm import Helm, Installed, Program, Release
from infra.drive.kubernetes.kubectl import Kubectl
from infra.drive.kubernetes.refs import Ref
from infra.errors import DriveError
from infra.render.kubernetes import charts as rendered_charts
from infra.render.kubernetes.manifests import SYSTEM, of, to_yaml

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: small}
data: {word: {{ .Values.word }}}
"""
NEVER_READY = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: never}
spec:
  selector: {matchLabels: {app: never}}
  template:
    metadata: {labels: {app: never}}
    spec: {containers: [{name: main, image: none}]}
"""

KIND = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: things.test.example}}
spec:
  group: test.example
  scope: Namespaced
  names: {{plural: things, singular: thing, kind: Thing}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, properties: {{{fields}}}}}}}
"""


@pytest.fixture
def charts(tmp_path: Path, admin: Access, monkeypatch: pytest.MonkeyPatch) -> Helm:
    monkeypatch.setenv("HELM_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HELM_CONFIG_HOME", str(tmp_path / "config"))
    program = helm_program()
    done = subprocess.run(
        [program, "version", "--template", "{{.Version}}"], capture_output=True, text=True, check=True
    )
    parts = done.stdout.removeprefix("v").split("+")[0].split(".")
    return Helm(Program(program, (int(parts[0]), int(parts[1]), int(parts[2]))), admin)


def chart(folder: Path, name: str, template: str) -> Release:
    root = folder / name
    (root / "templates").mkdir(parents=True)
    (root / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
    (root / "templates" / "all.yaml").write_text(template)
    (folder / f"{name}.yaml").write_text("word: first\n")
    return Release(name, "charts", name, "1.0.0", str(root), folder / f"{name}.yaml", "20s")


def installed(charts: Helm, name: str) -> Installed | None:
    return next((each for each in charts.releases() if each.name == name), None)


def test_a_release_is_installed_changed_left_alone_and_taken_away(
    charts: Helm, api: Api, tmp_path: Path
) -> None:
    wanted = chart(tmp_path, "small", CONFIG_MAP)
    assert not charts.current(wanted, installed(charts, "small"))
    charts.install(wanted)
    assert charts.current(wanted, installed(charts, "small"))
    where = "/api/v1/namespaces/charts/configmaps/small"
    assert api.get(where)["data"] == {"word": "first"}
    wanted.values.write_text("word: second\n")
    assert not charts.current(wanted, installed(charts, "small"))
    charts.install(wanted)
    assert api.get(where)["data"] == {"word": "second"}
    assert not charts.current(replace(wanted, version="1.0.1"), installed(charts, "small"))
    ours = charts.releases(ours=True)
    assert [each.name for each in helm.strays([wanted], ours)] == []
    (stray,) = helm.strays([], ours)
    charts.uninstall(stray)
    assert api.find(where) is None


def test_what_does_not_come_up_goes_back_and_what_was_cut_off_is_taken_up(
    charts: Helm, api: Api, tmp_path: Path
) -> None:
    wanted = chart(tmp_path, "never", NEVER_READY)
    charts.install(wanted)
    assert charts.workloads(wanted) == [Ref("apps/v1", "Deployment", "charts", "never")]
    with pytest.raises(DriveError, match="charts/never: 0 of 1"):
        rollout.wait(api, charts.workloads(wanted), seconds=1)
    charts.go_back(wanted, None)
    assert installed(charts, "never") is None
    small = chart(tmp_path, "back", CONFIG_MAP.replace("name: small", "name: back"))
    charts.install(small)
    had = installed(charts, "back")
    small.values.write_text("word: second\n")
    charts.install(small)
    charts.go_back(small, had)
    assert api.get("/api/v1/namespaces/charts/configmaps/back")["data"] == {"word": "first"}
    cut = subprocess.Popen(
        [charts.program.path, "upgrade", "--install", "never", wanted.repository, "--namespace", "charts",
         "--create-namespace", "--wait", "--timeout", "300s", "--kubeconfig", str(charts.access.kubeconfig)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    found = None
    while (found is None or not found.pending) and time.monotonic() < deadline:
        found = installed(charts, "never")
    cut.kill()
    cut.wait()
    assert found is not None
    assert found.pending
    charts.recover(found)
    charts.install(wanted)
    assert charts.current(wanted, installed(charts, "never"))


def test_the_kinds_of_a_chart_are_upgraded_with_it(
    charts: Helm, api: Api, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Helm by itself leaves them as they were first made."""
    wanted = chart(tmp_path, "kinds", CONFIG_MAP.replace("name: small", "name: kinds"))
    kinds = Path(wanted.repository) / "crds" / "all.yaml"
    kinds.parent.mkdir()
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.test.example"

    def fields() -> set[str]:
        (version,) = api.get(where)["spec"]["versions"]
        return set(version["schema"]["openAPIV3Schema"]["properties"])

    kinds.write_text(KIND.format(fields="size: {type: integer}"))
    charts.install(wanted)
    assert fields() == {"size"}
    kinds.write_text(KIND.format(fields="size: {type: integer}, colour: {type: string}"))
    wanted.values.write_text("word: second\n")
    charts.install(wanted)
    assert fields() == {"size"}
    assert kubectl.apply(apply.written(kubectl, "kinds.json", charts.kinds(wanted)))
    assert fields() == {"size", "colour"}
    without = chart(tmp_path, "plain", CONFIG_MAP.replace("name: small", "name: plain"))
    assert charts.kinds(without) == []


@pytest.mark.parametrize(("said", "seconds"), [("10m", 600), ("90s", 90), ("1h30m", 5400)])
def test_how_long_a_release_may_take(said: str, seconds: float) -> None:
    assert Release("x", "x", "x", "1", "", Path(), said).seconds == seconds


def test_what_is_to_be_installed_is_read_in_its_order(tmp_path: Path) -> None:
    assert helm.read(tmp_path) == []
    rows = [
        {"name": name, "namespace": "n", "chart": name, "version": "1", "repository": "https://e.example",
         "values": f"{name}/values.yaml"}
        for name in ("b", "a")
    ]  # fmt: skip
    (tmp_path / "releases.yaml").write_text(json.dumps(rows))
    assert [each.name for each in helm.read(tmp_path)] == ["b", "a"]
    (tmp_path / "releases.yaml").write_text('[{"name": "b"}]')
    with pytest.raises(DriveError, match=r"releases\.yaml"):
        helm.read(tmp_path)


def test_a_chart_is_named_as_its_repository_wants_it(charts: Helm, tmp_path: Path) -> None:
    plain = Release("x", "n", "x", "1", "https://charts.example", tmp_path, "1m")
    assert charts._chart(plain) == ["x", "--repo", "https://charts.example"]
    assert charts._chart(replace(plain, repository="oci://r.example/charts")) == ["oci://r.example/charts/x"]
    assert charts._chart(replace(plain, repository="oci://r.example/x")) == ["oci://r.example/x"]


def agent(name: str) -> dict[str, Any]:
    """A DaemonSet as Causeway's own manifests had it, with their selector."""
    labels = {"app.kubernetes.io/name": name}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pods}
    return of("apps/v1", "DaemonSet", name, namespace=SYSTEM, labels=labels, spec=spec)


def shipped(folder: Path, name: str) -> Release:
    """A chart's release of the reference cluster, from a chart on this machine."""
    rows = yaml.safe_load(rendered_charts.render(golden("research"))["releases.yaml"])
    row = next(each for each in rows if each["name"] == name)
    values = folder / f"{name}.yaml"
    values.write_text(to_yaml([dict(rendered_charts.values(golden("research"))[name])]))
    path = str(real_chart(row["chart"]))
    return Release(name, row["namespace"], row["chart"], row["version"], path, values, "20s")


def selector(api: Api, namespace: str, name: str) -> dict[str, str] | None:
    found = api.find(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")
    return None if found is None else found["spec"]["selector"]["matchLabels"]


def test_charts_replace_agents_of_our_own(charts: Helm, api: Api, kubectl: Kubectl, tmp_path: Path) -> None:
    """Of an older cluster, in the order of `cluster.up`: parts, charts, then the parts that are gone."""
    namespace = of("v1", "Namespace", SYSTEM)
    runtime = of("node.k8s.io/v1", "RuntimeClass", "nvidia", handler="nvidia")
    dcgm, problems = agent("dcgm-exporter"), agent("node-problem-detector")
    apply.apply(kubectl, api, apply.Part("namespaces", (namespace,)))
    apply.apply(kubectl, api, apply.Part("gpu", (runtime, dcgm)))
    apply.apply(kubectl, api, apply.Part("problems", (problems,)))
    exporter, detector = shipped(tmp_path, "dcgm-exporter"), shipped(tmp_path, "node-problem-detector")
    # Helm takes over nothing, and a selector does not change: ours has to go first.
    with pytest.raises(DriveError, match="invalid ownership metadata"):
        charts.install(exporter)
    assert apply.apply(kubectl, api, apply.Part("gpu", (runtime,))).pruned == (
        Ref("apps/v1", "DaemonSet", SYSTEM, "dcgm-exporter"),
    )
    charts.install(exporter)
    ours = selector(api, SYSTEM, "dcgm-exporter")
    assert ours is not None
    assert ours["app.kubernetes.io/instance"] == "dcgm-exporter"
    # Two detectors at once are no trouble, and its part is dropped after the charts.
    charts.install(detector)
    assert selector(api, SYSTEM, "node-problem-detector") == {
        "app.kubernetes.io/name": "node-problem-detector"
    }
    apply.drop(kubectl, api, ["namespaces", "gpu"])
    assert selector(api, SYSTEM, "node-problem-detector") is None
    assert selector(api, detector.namespace, "node-problem-detector") is not None
    for each in (exporter, detector):
        assert charts.current(each, installed(charts, each.name))
        there = installed(charts, each.name)
        assert there is not None
        charts.uninstall(there)
    assert selector(api, SYSTEM, "dcgm-exporter") is None
