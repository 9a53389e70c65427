"""The network of pods: what enforces its policies, and what carries their packets between nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.catalogue import addons
from infra.catalogue.labels import GATEWAY
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Manifest, Object, filled, joined, of, static

QUEUE: Final = 98
"""The NFQUEUE it listens to, from when its rules are in force. A number of its own: 100 is what other
programs take by default."""


def firewall(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """What enforces network policies: flannel carries packets and refuses none.

    kube-network-policies (kubernetes-sigs) runs on every node where people's pods do. It sees the first
    packet of each connection to or from a pod that a policy selects, and lets it pass or not (nftables,
    NFQUEUE). Where it is too busy to answer, or has crashed, packets are dropped; on an upgrade of itself it
    takes its rules away first, and they pass. What must hold then as well is in the cookbook ``kubernetes``,
    ``pods.nft.erb``. Until it has read the policies a node has no network for pods: ``flannel`` waits for
    ``QUEUE``.

    Gives its rights, and the DaemonSet.
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
    """Nodes on which it does not run: gateways and SSH nodes, which run nobody's pods."""
    machines = {each.hostname: each.taints for each in cluster.instances}
    machines |= {node.name: node.taints for site in cluster.sites for node in site.nodes}
    return sorted(name for name, taints in machines.items() if GATEWAY in {each.key for each in taints})


def _kept_for(cluster: Cluster) -> list[str]:
    """Taints that keep pods off nodes for something else: those that are let on have policies, too."""
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
    """flannel: pods' packets between nodes, over every site (flannel's Documentation/kubernetes.md,
    backends.md).

    Two DaemonSets with a configuration each, where sites differ: in a rack, neighbours on one LAN send each
    other pods' packets as they are. In a VPC each network card drops what does not come from its machine's
    own address (source and destination check), so there every packet travels in VXLAN.

    Its configuration for containerd is what makes a node ready. It is written when network policies are in
    force on the node: before, only pods on the machine's own network start there, and the autoscaler knows a
    node that is not ready yet. The cookbook ``kubernetes`` takes the file away at boot.

    Gives the namespace, flannel's rights, its configurations, and who runs them.
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
