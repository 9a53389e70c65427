"""The pod network: enforcement of network policies, and flannel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.catalogue import addons
from infra.catalogue.labels import GATEWAY
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Manifest, Object, filled, joined, of, static

QUEUE: Final = 98
"""The NFQUEUE used for policies. Not 100, which is the default of other programs."""


def firewall(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Enforcement of network policies, as flannel does not implement them.

    kube-network-policies (kubernetes-sigs) runs on every node that runs users' pods. It receives the first
    packet of each connection to or from a pod that a policy selects, and accepts or drops it (nftables,
    NFQUEUE). If it is overloaded or has crashed, packets are dropped; when it is upgraded it removes its
    rules first, and packets pass. Rules that must hold even then are in the cookbook ``kubernetes``,
    ``pods.nft.erb``. Until it has read the policies, a node has no network for pods: ``flannel`` waits for
    ``QUEUE``.

    Returns its rights, and the DaemonSet.
    """
    return {
        "rights.yaml": static("firewall/rights"),
        "daemons.yaml": filled(
            "firewall/daemons",
            image=addons.image("kube-network-policies"),
            queue=QUEUE,
            kept_for=_kept_for(cluster),
        ),
    }


def spared(cluster: Cluster) -> list[str]:
    """Nodes on which it does not run: gateways and SSH nodes, which run no users' pods."""
    machines = {each.hostname: each.taints for each in cluster.instances}
    machines |= {node.name: node.taints for site in cluster.sites for node in site.nodes}
    return sorted(name for name, taints in machines.items() if GATEWAY in {each.key for each in taints})


def _kept_for(cluster: Cluster) -> list[str]:
    """Taints that reserve nodes for a purpose: the pods admitted there are subject to policies too."""
    taints = [taint for pool in cluster.pools for taint in pool.taints]
    taints += [taint for site in cluster.sites for node in site.nodes for taint in node.taints]
    return sorted({taint.key for taint in taints if taint.effect == "NoExecute"} - {GATEWAY})


FLANNEL: Final = "kube-flannel"

_NAME: Final = "flannel"
_APP: Final = {"app.kubernetes.io/name": _NAME}
_NEIGHBOURS: Final = "flannel-neighbours"
_VXLAN_PORT: Final = 8472
_VNI: Final = 1


def flannel(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """flannel: packets between pods of different nodes, over all sites (flannel's
    Documentation/kubernetes.md, backends.md).

    There are two DaemonSets with different configurations if sites differ: at a physical site, nodes on one
    LAN route pods' packets directly. In a VPC an interface drops packets whose source is not the instance's
    own address (source/destination check), so there all packets are encapsulated in VXLAN.

    Its CNI configuration makes a node ready. It is written once network policies are enforced on the node:
    before that, only pods with host networking start there, and the autoscaler treats the node as not ready.
    The cookbook ``kubernetes`` deletes the file at boot.

    Returns the namespace, flannel's rights, its configurations, and the DaemonSets.
    """
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
    """flannel's ``Backend``. ``direct``: for nodes that are on one LAN."""
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
    # flannel would compute it, except for host-gw, which uses the interface's MTU.
    delegate = {"hairpinMode": True, "isDefaultGateway": True, "mtu": cluster.kubernetes.overlay.mtu}
    cni = {
        "cniVersion": "0.3.1",
        "name": "cbr0",
        "plugins": [
            {"type": "flannel", "delegate": delegate},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    without = "".join(f"{node}\n" for node in spared(cluster))
    data = {"cni-conf.json": _json(cni), "net-conf.json": _json(network), "without-policies": without}
    return of("v1", "ConfigMap", name, namespace=FLANNEL, labels=_APP, data=data)


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _daemons(cluster: Cluster, name: str, where: Mapping[str, Any]) -> Manifest:
    overlay = cluster.kubernetes.overlay
    return filled(
        "flannel/daemons",
        name=name,
        overlay=f"{cluster.network.pods} {overlay.backend} {overlay.mtu}",
        queue=QUEUE,
        plugin=addons.image("flannel-cni-plugin"),
        busybox=addons.image("busybox"),
        image=addons.image("flannel"),
        **where,
    )
