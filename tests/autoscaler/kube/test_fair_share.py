"""Who is next in a group's queue, by what each has used lately, as the real Kueue has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from autoscaler.kube.clusters import Cluster, Object, until
from autoscaler.kube.plane import planes
from autoscaler.kube.queueing import kueue

from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
SPEC = """\
version: 1
extends: base.yaml
name: fair
domain: fair.internal
sites: {us-west-2: {kind: aws, primary: true}}
pools: {cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 1}}}}
kubernetes: {usage_half_life: 7d}
autoscaler: {image: "registry.lab.example/autoscaler:1"}
access:
  users:
    ada: {name: Ada Lovelace, email: ada@lab.example, uid: 10001, groups: [researchers]}
    alan: {name: Alan Turing, email: alan@lab.example, uid: 10002, groups: [researchers]}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("fair")
    (folder / "base.yaml").write_text((ROOT / "environments/base.yaml").read_text())
    (folder / "fair.yaml").write_text(SPEC)
    spec, _ = resolve(load(folder / "fair.yaml").spec, Lock(), "fair")
    (folder / "kueue").mkdir()
    with planes(folder / "plane", spec) as (found, _), kueue(found, spec, folder / "kueue"):
        yield found


def jobs(user: str) -> str:
    return f"/apis/batch/v1/namespaces/user-{user}/jobs"


def submit(cluster: Cluster, user: str, name: str, priority: str = "normal") -> None:
    """A job that fills the queue's share by itself."""
    container: Object = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
    inside = {"containers": [container], "restartPolicy": "Never", "priorityClassName": priority}
    body: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    cluster.create(jobs(user), {**body, "spec": {"template": {"spec": inside}}})


def admitted(cluster: Cluster) -> set[str]:
    """Jobs that have been let in."""
    return {
        f"{user}/{each['metadata']['name']}"
        for user in ("ada", "alan")
        for each in (cluster.get(jobs(user)) or {"items": []})["items"]
        if not each["spec"].get("suspend", False)
    }


def end(cluster: Cluster, user: str, name: str) -> None:
    cluster.client.call("DELETE", f"{jobs(user)}/{name}", body={"propagationPolicy": "Background"})


def test_who_has_used_least_lately_is_next(cluster: Cluster) -> None:
    submit(cluster, "ada", "first")
    until(lambda: admitted(cluster) == {"ada/first"})
    submit(cluster, "ada", "second", "low")
    submit(cluster, "ada", "third")
    submit(cluster, "alan", "first")
    end(cluster, "ada", "first")
    # Ada's have waited for longer.
    until(lambda: admitted(cluster) == {"alan/first"})
    end(cluster, "alan", "first")
    # Among her own the class counts.
    until(lambda: admitted(cluster) == {"ada/third"})
