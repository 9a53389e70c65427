"""What flannel is told, as it stands in the rendered ConfigMaps: labs draw the pods' network from it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from infra.model import Cluster
from infra.render.kubernetes import pod_network

_TAKEN_OFF = 50
"""What flannel's VXLAN takes off the size it is told (flannel, pkg/backend/vxlan)."""


@dataclass(frozen=True)
class Figures:
    """Of the pods' network. `mtu`: of `flannel.1`, `cni0` and pods."""

    network: str
    vni: int
    port: int
    mtu: int


def figures(cluster: Cluster) -> Figures:
    """The same for all kinds of nodes, or it would be no network."""
    maps = pod_network.flannel(cluster)["configuration.yaml"]
    found = {_read(each["data"]) for each in maps}
    assert len(found) == 1, found
    return found.pop()


def _read(data: dict[str, str]) -> Figures:
    network = json.loads(data["net-conf.json"])
    plugins = json.loads(data["cni-conf.json"])["plugins"]
    told = network["Backend"]
    mtu = told["MTU"] - _TAKEN_OFF
    assert plugins[0]["delegate"]["mtu"] == mtu
    return Figures(network["Network"], told["VNI"], told["Port"], mtu)
