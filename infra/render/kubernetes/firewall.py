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
from infra.render.kubernetes import rights
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object
from infra.render.kubernetes.pods import EVERYWHERE, daemons, field, host, requests

_NAME: Final = "kube-network-policies"
_APP: Final = {"app.kubernetes.io/name": _NAME}
QUEUE: Final = 98
"""The NFQUEUE it listens to, from when its rules are in force. A number of its own: 100 is what other
programs take by default."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Its rights, and the DaemonSet."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["networking.k8s.io"],
            "resources": ["networkpolicies"],
            "verbs": ["list", "watch"],
        },
    ]
    return {
        "rights.yaml": rights.everywhere(_NAME, SYSTEM, rules, role=f"causeway:{_NAME}"),
        "daemons.yaml": [daemons(_NAME, SYSTEM, _APP, _spec(cluster))],
    }


def _spec(cluster: Cluster) -> Object:
    container = {
        "name": _NAME,
        "image": addons.image(_NAME, cluster.kubernetes.version),
        "args": [
            "/bin/netpol",
            "--hostname-override=$(NODE)",
            f"--nfqueue-id={QUEUE}",
            "--fail-open=false",
            "--v=2",
        ],
        "env": [field("NODE", "spec.nodeName")],
        "resources": requests("100m", "64Mi"),
        # It writes nftables of the node, and looks into pods' network namespaces.
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "nri", "mountPath": "/var/run/nri"},
            {"name": "netns", "mountPath": "/var/run/netns", "mountPropagation": "HostToContainer"},
        ],
    }
    return {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "serviceAccountName": _NAME,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [*EVERYWHERE, *_kept(cluster)],
        "containers": [container],
        "volumes": [
            # containerd tells it of a pod's address here, before the pod's first packet.
            host("nri", "/var/run/nri"),
            host("netns", "/var/run/netns"),
        ],
    }


def spared(cluster: Cluster) -> list[str]:
    """Nodes on which it does not run: gateways and SSH nodes, which run nobody's pods."""
    machines = {each.hostname: each.taints for each in cluster.instances}
    machines |= {node.name: node.taints for site in cluster.sites for node in site.nodes}
    return sorted(name for name, taints in machines.items() if GATEWAY in {each.key for each in taints})


def _kept(cluster: Cluster) -> list[Object]:
    """Tolerations of what else keeps pods off nodes: those that are let on have policies, too."""
    taints = [taint for pool in cluster.pools for taint in pool.taints]
    taints += [taint for site in cluster.sites for node in site.nodes for taint in node.taints]
    keys = {taint.key for taint in taints if taint.effect == "NoExecute"} - {GATEWAY}
    return [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in sorted(keys)]
