"""What kubeadm and kubelets are told, against Kubernetes' own kubeadm and what machines make of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cookbooks.kitchen import ask
from golden_clusters import golden, with_masters
from msgspec import structs

from infra.catalogue import instances
from infra.model import NO_OUTPUTS
from infra.render.chef import nodes
from infra.render.chef.environment import attributes
from infra.render.kubernetes import kubeadm, kubelet
from infra.resolve import reservations

SECRETS = re.compile(r"PRIVATE KEY|\b[a-z0-9]{6}\.[a-z0-9]{16}\b|certificateKey|secret: ")


@pytest.fixture
def ruby() -> str:
    found = shutil.which("ruby")
    if found is None:
        pytest.skip("ruby is not here: apt install ruby")
    return found


@pytest.fixture
def own_kubeadm() -> str:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    found = shutil.which("kubeadm", path=os.pathsep.join([assets, os.environ["PATH"]]))
    if found is None:
        pytest.skip("kubeadm is not here: put it on the PATH, or into $KUBEBUILDER_ASSETS")
    return found


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.37"])
@pytest.mark.parametrize("scenario", with_masters())
def test_kubeadm_takes_every_file(scenario: str, version: str, own_kubeadm: str, tmp_path: Path) -> None:
    """The test stands in for the cookbook as far as the file with the token goes, which has to be there."""
    cluster = golden(scenario)
    cluster = structs.replace(cluster, kubernetes=structs.replace(cluster.kubernetes, version=version))
    discovery = tmp_path / "discovery.conf"
    discovery.write_text("")
    seen: set[str] = set()
    for path, text in kubeadm.render(cluster).items():
        # What the API server reads, and not kubeadm.
        if path in ("audit-policy.yaml", "authentication.yaml") or text in seen:
            continue
        seen.add(text)
        file = tmp_path / path.replace("/", "-")
        # A version, as the cookbook adds it: without one kubeadm asks the internet for the newest.
        text = text.replace(
            "kind: ClusterConfiguration\n", "kind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"
        )
        file.write_text(text.replace(kubeadm.DISCOVERY, str(discovery)))
        done = subprocess.run(
            [own_kubeadm, "config", "validate", "--config", file], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "ok\n"), f"{path}: {done.stderr}"


@pytest.mark.parametrize("scenario", with_masters())
def test_no_file_holds_a_secret(scenario: str) -> None:
    for path, text in kubeadm.render(golden(scenario)).items():
        assert not SECRETS.search(text), path


def documents(text: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("scenario", with_masters())
def test_a_master_begins_with_what_is_rendered(scenario: str, ruby: str) -> None:
    """The cookbook's own defaults with the environment's attributes over them, merged by the cookbook."""
    cluster = golden(scenario)
    rendered = documents(kubeadm.render(cluster)["init.yaml"])

    plane = attributes(cluster, NO_OUTPUTS)["kubernetes"]["control_plane"]
    made = ask(
        ruby,
        "kubernetes",
        "own = Causeway::Kubeadm.cluster(name: 'x', endpoint: 'x:1', pods: '10.0.0.0/8', "
        "services: '10.0.0.0/8', domain: 'x', pods_per_node: 8, sans: ['x'], audit: nil, encrypted: false)\n"
        "init = Causeway::Kubeadm.init(name: 'master-1', address: '10.0.0.1')\n"
        "[Causeway::Kubeadm.merge(own, plane['cluster']), Causeway::Kubeadm.merge(init, plane['init'])]",
        plane=plane,
    )
    assert made[0] == rendered["ClusterConfiguration"]
    init = rendered["InitConfiguration"]
    assert made[1] == {
        **init,
        "nodeRegistration": {**init["nodeRegistration"], "name": "master-1"},
        "localAPIEndpoint": {**init["localAPIEndpoint"], "advertiseAddress": "10.0.0.1"},
    }
    assert plane["proxy"] == rendered["KubeProxyConfiguration"]


def test_a_machine_in_a_rack_runs_with_the_kubelet_configuration_that_is_rendered(ruby: str) -> None:
    cluster = golden("research")

    settings = attributes(cluster, NO_OUTPUTS)["kubernetes"]
    site = next(each for each in cluster.sites if each.name == "rack-a")
    node = next(each for each in site.nodes if each.name == "titan-a01")
    own = yaml.safe_load(nodes.render(cluster)["titan-a01.json"])["normal"]["kubernetes"]
    made = ask(
        ruby,
        "kubernetes",
        "Causeway::KubeletConfiguration.document(given)",
        given={
            "kubernetes": {**settings, **own},
            # What a kernel sees is less than what was bought; what is reserved does not follow it.
            "cpu": {"total": node.cpus},
            "memory": {"total": f"{(node.memory_mib - 4000) * 1024}kB"},
        },
    )
    assert made == yaml.safe_load(kubeadm.render(cluster)["kubelet/sites/rack-a/40-cpus-256-gib.yaml"])


def test_a_worker_joins_as_is_rendered(ruby: str) -> None:
    rendered = yaml.safe_load(kubeadm.render(golden("research"))["join-master.yaml"])
    made = ask(
        ruby,
        "kubernetes",
        "Causeway::Kubeadm.join(name: 'master-2', endpoint: 'x:1', master: true, "
        "secrets: { 'token' => 'x', 'ca' => 'y' })",
    )
    assert made == {**rendered, "nodeRegistration": {**rendered["nodeRegistration"], "name": "master-2"}}


# -- What is kept from pods, and what is left for them -----------------------------------------------------


def test_reservations_are_the_nodes_own_on_every_shape(ruby: str) -> None:
    shapes = [
        (kind.vcpus, kind.memory_mib, pods)
        for name in instances.names()
        if (kind := instances.find(name)) is not None
        for pods in (8, 110, 500)
    ]
    made = ask(
        ruby,
        "kubernetes",
        "shapes.map { |cpus, mib, pods| [Causeway::Reservations.kube(cpus, pods), "
        "Causeway::Reservations.system(cpus, mib)] }",
        shapes=shapes,
    )
    assert made == [
        [kubelet.quantities(kept.kube), kubelet.quantities(kept.system)]
        for kept in (reservations.reserved(*shape) for shape in shapes)
    ]


def test_what_is_left_is_never_more_than_there_is() -> None:
    for name in instances.names():
        kind = instances.find(name)
        assert kind is not None
        left = reservations.allocatable(kind.vcpus, kind.memory_mib, 110, 100)
        assert 0 <= int(left["cpu"].removesuffix("m")) < kind.vcpus * 1000
        assert 0 <= int(left["memory"].removesuffix("Mi")) < kind.memory_mib
        assert left["ephemeral-storage"] == "90Gi"
