"""What enforces network policies: flannel carries packets and refuses none.

kube-network-policies (kubernetes-sigs) runs on every node where people's pods do. It sees the first packet
of each connection to or from a pod that a policy selects, and lets it pass or not (nftables, NFQUEUE). Where
it is too busy to answer, or has crashed, packets are dropped; on an upgrade of itself it takes its rules away
first, and they pass. What must hold then as well is in the cookbook ``kubernetes``, ``pods.nft``.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import rights
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object
from infra.render.kubernetes.pods import EVERYWHERE, daemons, field, host, requests

_NAME: Final = "kube-network-policies"
_APP: Final = {"app.kubernetes.io/name": _NAME}
_QUEUE: Final = 98
"""The NFQUEUE it listens to. A number of its own: 100 is what other programs take by default."""


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
            f"--nfqueue-id={_QUEUE}",
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
        # Of every worker, with cards or without. Gateways and SSH nodes, tainted with NoExecute, run nobody's
        # pods.
        "tolerations": EVERYWHERE,
        "containers": [container],
        "volumes": [
            # containerd tells it of a pod's address here, before the pod's first packet.
            host("nri", "/var/run/nri"),
            host("netns", "/var/run/netns"),
        ],
    }
