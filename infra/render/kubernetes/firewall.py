"""What enforces network policies: flannel carries packets and refuses none.

kube-network-policies (kubernetes-sigs) runs on every node where people's pods do. It sees the first packet
of each connection to or from a pod that a policy selects, and lets it pass or not (nftables, NFQUEUE). Where
it is too busy to answer, or has crashed, packets are dropped; on an upgrade of itself it takes its rules away
first, and they pass. What must hold then as well is in the cookbook ``kubernetes``, ``pods.nft.erb``. Until
it has read the policies a node has no network for pods: ``flannel`` waits for ``QUEUE``.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue import addons
from infra.catalogue.labels import GATEWAY
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled, static

QUEUE: Final = 98
"""The NFQUEUE it listens to, from when its rules are in force. A number of its own: 100 is what other
programs take by default."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Its rights, and the DaemonSet."""
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
