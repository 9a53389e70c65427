"""flannel: pods' packets between nodes, over every site (flannel's Documentation/kubernetes.md, backends.md).

Two DaemonSets with a configuration each, where sites differ: in a rack, neighbours on one LAN send each other
pods' packets as they are. In a VPC each network card drops what does not come from its machine's own address
(source and destination check), so there every packet travels in VXLAN.

Its configuration for containerd is what makes a node ready. It is written when network policies are in force
on the node: before, only pods on the machine's own network start there, and the autoscaler knows a node that
is not ready yet. The cookbook ``kubernetes`` takes the file away at boot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import firewall
from infra.render.kubernetes.manifests import Documents, Manifest, Object, filled, joined, of, static

NAMESPACE: Final = "kube-flannel"

_NAME: Final = "flannel"
_APP: Final = {"app.kubernetes.io/name": _NAME}
_NEIGHBOURS: Final = "flannel-neighbours"
_VXLAN_PORT: Final = 8472
_VNI: Final = 1


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The namespace, flannel's rights, its configurations, and who runs them."""
    direct = list(cluster.kubernetes.overlay.direct)
    kinds = {_NAME: {"operator": "NotIn", "sites": direct}}
    if direct:
        kinds[_NEIGHBOURS] = {"operator": "In", "sites": direct}
    return {
        "namespace.yaml": static("flannel/namespace"),
        "rights.yaml": static("flannel/rights"),
        "configuration.yaml": [_configuration(cluster, name) for name in kinds],
        "daemons.yaml": joined(_daemons(cluster, name, where) for name, where in kinds.items()),
    }


def backend(cluster: Cluster, *, direct: bool) -> dict[str, Any]:
    """flannel's ``Backend``. ``direct``: on nodes that are neighbours on one LAN."""
    overlay = cluster.kubernetes.overlay
    if overlay.backend == "host-gw":
        return {"Type": "host-gw"}
    if overlay.backend == "wireguard":
        return {"Type": "wireguard", "MTU": overlay.told}
    return {
        "Type": "vxlan",
        "VNI": _VNI,
        "Port": _VXLAN_PORT,
        "MTU": overlay.told,
        "DirectRouting": direct,
    }


def _configuration(cluster: Cluster, name: str) -> Object:
    network = {
        "Network": str(cluster.network.pods),
        "EnableIPv4": True,
        "EnableIPv6": False,
        "Backend": backend(cluster, direct=name == _NEIGHBOURS),
    }
    # flannel would tell it, but for host-gw, which knows no size but the network card's.
    delegate = {"hairpinMode": True, "isDefaultGateway": True, "mtu": cluster.kubernetes.overlay.mtu}
    cni = {
        "cniVersion": "0.3.1",
        "name": "cbr0",
        "plugins": [
            {"type": "flannel", "delegate": delegate},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    spared = "".join(f"{node}\n" for node in firewall.spared(cluster))
    data = {"cni-conf.json": _json(cni), "net-conf.json": _json(network), "without-policies": spared}
    return of("v1", "ConfigMap", name, namespace=NAMESPACE, labels=_APP, data=data)


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _daemons(cluster: Cluster, name: str, where: Mapping[str, Any]) -> Manifest:
    overlay = cluster.kubernetes.overlay
    return filled(
        "flannel/daemons",
        name=name,
        overlay=f"{cluster.network.pods} {overlay.backend} {overlay.mtu}",
        queue=firewall.QUEUE,
        plugin=addons.image("flannel-cni-plugin"),
        busybox=addons.image("busybox"),
        image=addons.image("flannel"),
        **where,
    )
