"""The cluster of the embedded AWS, which has no machines, is previewed: steps, nodes, and a job's machines.

Where there is a real API server, the rendered objects and the job are sent to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_tools import find, kubectl, need

from benchmarks.lifecycle.project import Project
from infra.drive.kubernetes import preview
from infra.drive.kubernetes.apply import Part
from infra.drive.kubernetes.kubectl import Kubectl, Program
from infra.errors import UsageError

find("kube-apiserver")  # it remembers, and tests are without the variable that names the folder

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 4}}}
"""


@pytest.fixture(autouse=True)
def no_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that wants one says so."""
    monkeypatch.delenv(preview.ASSETS, raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    made = Project.copied(tmp_path, "local")
    yield made
    made.run("local.down")


@pytest.fixture
def assets(no_api_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a control plane; the test is skipped without."""
    monkeypatch.setenv(preview.ASSETS, str(Path(need("kube-apiserver")).parent))
    monkeypatch.setenv("PATH", f"{Path(kubectl()).parent}:{Path(need('etcd')).parent}", prepend=":")


def test_the_steps_are_planned_without_an_api_server(project: Project) -> None:
    rows = json.loads(project.invoke("cluster.up", "--plan", "--json"))
    steps = [row["step"] for row in rows]
    assert steps[0] == "master-1"
    assert {"apply namespaces", "chart kueue", "apply queues"} <= {*steps}


def test_the_cluster_that_would_be(project: Project) -> None:
    status = json.loads(project.invoke("cluster.status", "--json"))
    assert status["preview"] is True
    assert status["masters"] == ["master-1"]
    assert {"place": "lab", "nodes": "2", "gpus": "4", "class": "old"} in status["nodes"]
    assert {row["place"] for row in status["nodes"]} > {"cpu, us-west-2", "gpu, eu-west-1"}


def test_a_job_takes_the_racks_first(project: Project) -> None:
    found = json.loads(project.invoke("autoscaler.explain", "--file", "job.yaml", "--json"))
    assert sorted((verdict["outcome"], verdict["count"]) for verdict in found["verdicts"]) == [
        ("fits", 2),
        ("waits", 1),
    ]
    assert found["sizes"] == []


def test_nothing_waits_without_a_file(project: Project) -> None:
    assert "--file" in project.invoke("autoscaler.explain")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("kind: Deployment\nmetadata: {name: a}", ["document 1: Deployment"]),
        ("- a", ["document 1"]),
        (
            "kind: Job\nmetadata: {name: a}\n---\nkind: Pod\nspec: {}",
            ["document 1: Job a", "document 2: Pod"],
        ),
        ("a: [", ["not YAML"]),
        ("", ["no Pod or Job"]),
    ],
)
def test_a_file_that_holds_no_work(project: Project, text: str, wrong: list[str]) -> None:
    (project.folder / "bad.yaml").write_text(text, encoding="utf-8")
    result = project.run("autoscaler.explain", "--file", "bad.yaml")
    assert result.code == 1
    assert all(part in result.err for part in ["bad.yaml", *wrong])
    assert "Traceback" not in result.err


def test_a_file_that_is_not_there(project: Project) -> None:
    assert project.run("autoscaler.explain", "--file", "none.yaml").code == 1


def test_assets_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preview.ASSETS, str(tmp_path))
    with pytest.raises(UsageError, match="kube-apiserver not found"):
        preview.programs()


@pytest.mark.usefixtures("assets")
def test_a_real_api_server_takes_what_is_rendered(project: Project) -> None:
    rows = json.loads(project.invoke("cluster.up", "--plan", "--json"))
    applied = [row["would"] for row in rows if row["step"].startswith("apply ")]
    assert all("accepted by kube-apiserver v1." in would for would in applied)
    assert not any(row["objects"] for row in rows)


@pytest.mark.usefixtures("assets")
def test_a_real_api_server_admits_the_job_first(project: Project) -> None:
    """The GPU pools' taint is tolerated by the admission plugin, which only an API server has."""
    found = json.loads(project.invoke("autoscaler.explain", "--file", "job.yaml", "--json"))
    [waits] = [verdict for verdict in found["verdicts"] if verdict["outcome"] == "waits"]
    assert "taint" not in {obstacle["code"] for obstacle in waits["obstacles"]}


@pytest.mark.usefixtures("assets")
def test_what_a_real_api_server_refuses_is_named() -> None:
    programs = preview.programs()
    assert programs is not None
    good = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    bad = {**good, "metadata": {"name": "Not A Name", "namespace": "default"}}
    unknown = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}}
    with preview.serving(programs, services="10.96.0.0/16", admission=["NodeRestriction"]) as access:
        answer = preview.offer(Kubectl(Program(kubectl(), (1, 36)), access), Part("p", (good, bad, unknown)))
    assert answer.accepted == 1
    assert answer.to_come == ("Thing",)
    assert len(answer.refused) == 1
