"""flannel, as it is rendered for each backend and each kind of place."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from infra.load import load
from infra.model import Cluster
from infra.render.kubernetes import flannel
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[3] / "environments"


@cache
def shipped(name: str) -> Cluster:
    return resolve(load(ENVIRONMENTS / f"{name}.yaml").spec, Lock(), name)[0]


def rendered(cluster: Cluster, kind: str) -> dict[str, Any]:
    """Objects of a kind, by name."""
    objects = [each for group in flannel.objects(cluster).values() for each in group]
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def network(configuration: Any) -> Any:
    return json.loads(configuration["data"]["net-conf.json"])


def where(daemons: Any) -> list[Any]:
    affinity = daemons["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found: list[Any] = term["matchExpressions"]
    return found


def test_racks_route_among_neighbours_and_all_else_is_in_vxlan() -> None:
    cluster = shipped("research")
    maps, daemons = rendered(cluster, "ConfigMap"), rendered(cluster, "DaemonSet")
    assert set(maps) == set(daemons) == {"flannel", "flannel-neighbours"}
    size = cluster.kubernetes.overlay
    for name, direct, operator in (("flannel", False, "NotIn"), ("flannel-neighbours", True, "In")):
        assert network(maps[name]) == {
            "Network": str(cluster.network.pods),
            "EnableIPv4": True,
            "EnableIPv6": False,
            "Backend": {
                "Type": "vxlan",
                "VNI": 1,
                "Port": cluster.network.overlay_ports[0].first,
                "MTU": size.mtu + 50,
                "DirectRouting": direct,
            },
        }
        racks = {"key": "causeway.dev/site", "operator": operator, "values": ["rack-a", "rack-b"]}
        assert where(daemons[name])[1:] == [racks]
        [volume] = [
            each
            for each in daemons[name]["spec"]["template"]["spec"]["volumes"]
            if each["name"] == "configuration"
        ]
        assert volume["configMap"]["name"] == name


def test_without_racks_there_is_one_for_all() -> None:
    assert set(rendered(shipped("minimal"), "DaemonSet")) == {"flannel"}
    [daemons] = rendered(shipped("minimal"), "DaemonSet").values()
    assert [each["key"] for each in where(daemons)] == ["kubernetes.io/os"]


@pytest.mark.parametrize(
    ("backend", "told"),
    [("wireguard", {"Type": "wireguard", "MTU": 1466}), ("host-gw", {"Type": "host-gw"})],
)
def test_other_backends(backend: Literal["wireguard", "host-gw"], told: dict[str, object]) -> None:
    cluster = shipped("research")
    overlay = replace(cluster.kubernetes.overlay, backend=backend, mtu=1386, told=1466, direct=())
    other = replace(cluster, kubernetes=replace(cluster.kubernetes, overlay=overlay))
    [configuration] = rendered(other, "ConfigMap").values()
    assert network(configuration)["Backend"] == told
    # flannel's host-gw takes no size: it stands in what pods' interfaces are made from.
    plugins = json.loads(configuration["data"]["cni-conf.json"])["plugins"]
    assert plugins[0]["delegate"]["mtu"] == 1386


def test_it_runs_on_every_node_by_the_nodes_own_address() -> None:
    for daemons in rendered(shipped("research"), "DaemonSet").values():
        pod = daemons["spec"]["template"]["spec"]
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert pod["priorityClassName"] == "system-node-critical"
        [container] = pod["containers"]
        assert "--iface=$(NODE_IP)" in container["args"]
        assert {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}} in container[
            "env"
        ]


def test_a_change_of_the_network_restarts_it() -> None:
    cluster = shipped("minimal")
    overlay = replace(cluster.kubernetes.overlay, mtu=1300)
    changed = replace(cluster, kubernetes=replace(cluster.kubernetes, overlay=overlay))

    def annotations(of: Cluster) -> Any:
        return rendered(of, "DaemonSet")["flannel"]["spec"]["template"]["metadata"]["annotations"]

    assert annotations(cluster) != annotations(changed)
