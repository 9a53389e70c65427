"""Why a run waits and until when: Kueue, the autoscaler with its own rights, and people with theirs.

Two machines of a rack are there (as objects: no kubelet runs on them); one run takes both for an hour.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from autoscaler.kube.account import account
from client.jobset_world import World, person, worlds
from client.pods import can_run, wait
from client.process import Causeway, program
from golden_clusters import golden
from kube.api import MERGE
from msgspec import structs

from causeway.cluster import runs
from causeway.cluster.connection import Cluster as Connection
from causeway.cluster.connection import RefusedError
from causeway.commands import waiting
from infra.autoscaler import config as configuration
from infra.autoscaler.kube.client import Client
from infra.autoscaler.kube.credentials import Credentials
from infra.autoscaler.kube.events import Events
from infra.autoscaler.reporting.pod_events import News
from infra.model import Cluster as Spec
from infra.render.kubernetes import autoscaler

pytestmark = [pytest.mark.skipif(bool(can_run()), reason=can_run()), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def small() -> Spec:
    """The golden ``research`` with two of its machines with GPUs."""
    spec = golden("research")
    first = spec.sites[0]
    rest = [node for node in first.nodes if "gpu-worker" not in node.roles]
    gpus = [node for node in first.nodes if "gpu-worker" in node.roles]
    others = [
        structs.replace(site, nodes=tuple(node for node in site.nodes if "gpu-worker" not in node.roles))
        for site in spec.sites[1:]
    ]
    return structs.replace(spec, sites=(structs.replace(first, nodes=(*rest, *gpus[:2])), *others))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("waiting")
    spec = small()
    with worlds(folder, queues=True, spec=spec) as found:
        for node in spec.sites[0].nodes:
            if "gpu-worker" in node.roles:
                _machine(found, node.name, node.labels, node.allocatable)
        with account(found.plane, spec) as own, running(found, spec, own):
            yield found
            assert found.pods.problems == []


@contextmanager
def running(world: World, spec: Spec, kubeconfig: Path) -> Iterator[None]:
    """The autoscaler's process. Its groups are not at AWS: it says so, and goes on."""
    config = configuration.parse(autoscaler.configuration(spec))
    path = world.plane.folder / "autoscaler.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(config, interval=1)))
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": world.aws.address}
    words = ["--config", str(path), "--kubeconfig", str(kubeconfig), "--port", "0"]
    with (world.plane.folder / "autoscaler.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "infra.autoscaler", "run", *words],
            stderr=log, env={**os.environ, **keys, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _machine(world: World, name: str, labels: Mapping[str, str], allocatable: Mapping[str, str]) -> None:
    all_labels = {**labels, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    world.admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all_labels}})
    # The API server adds that it is not ready, which the controller of nodes would take off.
    world.admin.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {"conditions": ready, "allocatable": dict(allocatable), "capacity": dict(allocatable)}
    world.admin.status(f"/api/v1/nodes/{name}", status)


@pytest.fixture
def alan(world: World, folder: Path, environment: Mapping[str, str], command: list[str]) -> Causeway:
    return person(world, "alan", folder, environment, command)


def titans(count: int) -> str:
    """Class `low` would get those of a pool as well, of which no machine is there."""
    return f"gpus={{count: {count}, model: titan-x-pascal}}"


def submitted(who: Causeway, name: str, *options: str) -> str:
    words = ["--name", name, "--set", titans(4), "--priority", "low", "--launcher", "none", *options]
    done = who("run", "-d", "--json", *words, "--", "sleep", "3600")
    assert done.code == 0, done.err
    return str(done.json["run"])


def why(who: Causeway, name: str) -> dict[str, Any]:
    found: dict[str, Any] = who("why", name, "--json").json
    return found


def placed(who: Causeway, name: str) -> dict[str, Any]:
    """What is published of a run, as soon as it is."""
    found: dict[str, Any] = wait(
        lambda: (seen := why(who, name))["waiting"] and seen["waiting"]["queue"], seconds=120
    )
    return found


def test_a_run_that_waits_gets_its_place_and_its_latest_start_with_a_persons_own_rights(
    ada: Causeway, alan: Causeway, world: World, folder: Path
) -> None:
    program(folder, "print('ran')")
    both = submitted(ada, "both", "--nodes", "2", "--time", "1h")
    wait(lambda: why(ada, both)["state"] in ("starting", "running"), seconds=120)
    begun = datetime.now(UTC)
    second = submitted(ada, "second", "--time", "30m")
    third = submitted(ada, "third")

    one, two = placed(ada, second), placed(ada, third)
    assert (one["position"], one["ahead"], one["gpus_ahead"]) == (1, 0, 0)
    assert (two["position"], two["ahead"], two["gpus_ahead"]) == (2, 1, 4)
    for each in (one, two):  # both fit when the first has gone
        starts = datetime.fromisoformat(each["latest_start"])
        assert begun + timedelta(minutes=50) < starts < begun + timedelta(minutes=62)

    said = why(ada, second)
    assert said["state"] == "queued"
    assert any("0 of 8 GPUs" in line for line in said["waiting"]["quotas"])
    assert "position 1" in ada("why", second).out

    # The plan of the next one.
    done = ada("run", "-d", "--name", "next", "--priority", "low", "--set", titans(1), "--", "sleep", "1")
    assert "8 GPUs" in done.err, done.err

    rows = alan("gpus", "--json").json["gpus"]
    own = next(row for row in rows if row["site"] == "rack-a")
    assert (own["most"], own["ready"]) == (2, 2)
    assert "rack-a" in alan("gpus").out

    other = Connection(str(world.kubeconfigs["alan"]))
    seen = other.call("GET", "/api/v1/namespaces/causeway-system/configmaps/availability")
    assert second in seen["data"]["availability.json"]
    for path in (
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/user-ada/workloads",
        "/api/v1/namespaces/user-ada/pods",
        "/api/v1/namespaces/causeway-system/configmaps",
    ):
        with pytest.raises(RefusedError) as refused:
            other.call("GET", path)
        assert refused.value.code == 403
    with pytest.raises(RefusedError) as refused:
        other.call(
            "PATCH", "/api/v1/namespaces/causeway-system/configmaps/availability", {"data": {}}, form=MERGE
        )
    assert refused.value.code == 403
    ada("stop", both, second, third, "next-1")


def test_the_autoscalers_word_is_that_of_its_events_and_of_its_answers(ada: Causeway, world: World) -> None:
    """Written here as it writes them: no region is there that could be without capacity."""
    space = "user-ada"
    both = submitted(ada, "both", "--nodes", "2")
    wait(lambda: why(ada, both)["state"] in ("starting", "running"), seconds=120)
    name = submitted(ada, "asked", "--nodes", "2")
    found = wait(
        lambda: [
            each
            for each in world.admin.call("GET", f"{KUEUE}/namespaces/{space}/workloads")["items"]
            if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", ()))
        ]
    )
    workload = found[0]["metadata"]
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    requests = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{space}/provisioningrequests"
    world.admin.call("POST", requests, {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": "asked", "ownerReferences": [{**owner, "name": workload["name"], "uid": workload["uid"]}],
        },
        "spec": {
            "provisioningClassName": "batch.causeway.dev",
            "podSets": [{"count": 2, "podTemplateRef": {"name": "none"}}],
        },
    })  # fmt: skip
    answer = {
        "type": "Failed", "status": "True", "reason": "NoCapacity", "message": "us-west-2: full",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    world.admin.status(f"{requests}/asked", {"conditions": [answer]})
    said = wait(lambda: (lines := why(ada, name)["waiting"]["autoscaler"]) and lines)
    assert said[0] == "us-west-2: full"

    own = Connection(str(world.kubeconfigs["ada"]))
    run = runs.find(own, space, name)
    waits = runs.Worker("pod-1", "worker", 0, "waiting", None, None, None)
    way = Client(Credentials(world.plane.kubeconfig), chance=lambda: 0.5)
    news = [
        News("Pod", space, "pod-1", "uid-1", "WaitsForCapacity", "8 x A100"),
        News("Pod", space, "pod-2", "uid-2", "WaitsForCapacity", "another's"),
    ]
    assert Events(way, "me", now=time.time).tell(news) == ""
    seen = waiting.wait(own, replace(run, state="starting", workers=[waits]))
    assert "8 x A100" in seen.autoscaler
    assert "another's" not in seen.autoscaler
    ada("stop", name, both)
