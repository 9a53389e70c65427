"""Cards in pods: how they are shared, by what label, and what nodes' agents may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalogue.labels import GPU_MODEL, PLUGIN
from infra.load import load
from infra.model import Cluster
from infra.render.kubernetes import gpu
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[3] / "environments"

SHARED = """
extends: research.yaml
pools:
  gpu-g5: {gpus: {time_slices: 4}}
  gpu-p4d: {gpus: {mig: 3g.20gb}}
  gpu-p5: {gpus: {mig: 1g.10gb, time_slices: 2}}
sites:
  rack-a: {nodes: {titan-a01: {gpus: {time_slices: 2}}}}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The reference with GPUs that pods share in all ways."""
    folder = tmp_path_factory.mktemp("shared")
    for name in ("base", "research"):
        (folder / f"{name}.yaml").write_text((ENVIRONMENTS / f"{name}.yaml").read_text())
    (folder / "shared.yaml").write_text(SHARED)
    return resolve(load(folder / "shared.yaml").spec, Lock(), "shared")[0]


def objects(documents: Any, kind: str) -> dict[str, Any]:
    found = [each for group in documents.values() for each in group if each["kind"] == kind]
    return {each["metadata"]["name"]: each for each in found}


def terms(daemons: Any) -> list[Any]:
    affinity = daemons["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found: list[Any] = term["matchExpressions"]
    return found


def meets(labels: Any, daemons: Any) -> bool:
    """Whether a node with these labels is one of the DaemonSet's (Kubernetes, "Node affinity")."""
    answers = {
        "Exists": lambda term: term["key"] in labels,
        "In": lambda term: labels.get(term["key"]) in term["values"],
        "NotIn": lambda term: labels.get(term["key"]) not in term["values"],
    }
    return all(answers[term["operator"]](term) for term in terms(daemons))


def test_what_a_node_offers_counts_slices_and_instances(shared: Cluster) -> None:
    offered = {pool.name: pool.groups[0].resources.get("nvidia.com/gpu") for pool in shared.pools}
    # Four GPUs in four slices; eight A100 in two; eight H100 in seven, twice; 8 x p2 as they are.
    assert offered["gpu-g5"] == "16"
    assert offered["gpu-p4d"] == "16"
    assert offered["gpu-p5"] == "112"
    assert offered["gpu-p2"] == "8"
    assert offered["cpu"] is None
    [group] = next(pool for pool in shared.pools if pool.name == "gpu-p5").groups
    tag = "k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu"
    assert group.autoscaler_tags[tag] == "112"
    assert group.allocatable["nvidia.com/gpu"] == "112"
    assert group.labels["nvidia.com/mig.config"] == "all-1g.10gb"
    assert group.labels[PLUGIN] == "mig-1g-10gb-slices-2"
    titan = next(node for site in shared.sites for node in site.nodes if node.name == "titan-a01")
    assert titan.labels[PLUGIN] == "slices-2"
    assert titan.allocatable["nvidia.com/gpu"] == "8"


@pytest.mark.parametrize("kind", ["nvidia-device-plugin", "gpu-feature-discovery"])
def test_each_node_with_gpus_has_exactly_one_agent_of_a_kind(shared: Cluster, kind: str) -> None:
    agents = [
        each
        for each in objects(gpu.objects(shared), "DaemonSet").values()
        if each["metadata"]["labels"]["app.kubernetes.io/name"] == kind
    ]
    nodes = [group.labels for pool in shared.pools for group in pool.groups]
    nodes += [node.labels for site in shared.sites for node in site.nodes]
    assert len(agents) == 5
    for labels in nodes:
        assert sum(meets(labels, agent) for agent in agents) == (GPU_MODEL in labels), labels


def test_the_plugin_reads_the_configuration_of_its_nodes(shared: Cluster) -> None:
    documents = gpu.objects(shared)
    files = objects(documents, "ConfigMap")["nvidia-sharing"]["data"]
    for name, daemons in objects(documents, "DaemonSet").items():
        if not name.startswith("nvidia-device-plugin"):
            continue
        [container] = daemons["spec"]["template"]["spec"]["containers"]
        said = {each["name"]: each.get("value") for each in container["env"]}
        assert Path(str(said["CONFIG_FILE"])).name in files, name
    whole, sliced, split = (
        yaml.safe_load(files[f"{name}.yaml"]) for name in ("whole", "slices-4", "mig-3g-20gb")
    )
    assert "sharing" not in whole
    assert whole["flags"]["migStrategy"] == "none"
    [resource] = sliced["sharing"]["timeSlicing"]["resources"]
    assert resource == {"name": "nvidia.com/gpu", "replicas": 4}
    assert split["flags"]["migStrategy"] == "single"
    assert "sharing" not in split
