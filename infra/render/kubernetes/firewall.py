"""What enforces network policies: flannel carries packets and refuses none.

kube-network-policies (kubernetes-sigs) runs on every node where people's pods do. It sees the first packet
of each connection to or from a pod that a policy selects, and lets it pass or not (nftables, NFQUEUE). While
it is away, on an upgrade of itself, packets pass: a network that stops for that costs more than it saves.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import SYSTEM, Documents, of

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
    rbac = "rbac.authorization.k8s.io"
    return {
        "rights.yaml": [
            of("v1", "ServiceAccount", _NAME, namespace=SYSTEM),
            of(f"{rbac}/v1", "ClusterRole", f"causeway:{_NAME}", rules=rules),
            of(
                f"{rbac}/v1",
                "ClusterRoleBinding",
                f"causeway:{_NAME}",
                roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": f"causeway:{_NAME}"},
                subjects=[{"kind": "ServiceAccount", "name": _NAME, "namespace": SYSTEM}],
            ),
        ],
        "daemons.yaml": [
            of(
                "apps/v1",
                "DaemonSet",
                _NAME,
                namespace=SYSTEM,
                labels=_APP,
                spec={
                    "selector": {"matchLabels": _APP},
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
                    "template": {
                        "metadata": {"labels": _APP},
                        "spec": {
                            "hostNetwork": True,
                            "priorityClassName": "system-node-critical",
                            "serviceAccountName": _NAME,
                            "nodeSelector": {"kubernetes.io/os": "linux"},
                            # Of every worker, with cards or without. Gateways and SSH nodes, tainted with
                            # NoExecute, run nobody's pods.
                            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                            "containers": [
                                {
                                    "name": _NAME,
                                    "image": addons.image(_NAME, cluster.kubernetes.version),
                                    "args": [
                                        "/bin/netpol",
                                        "--hostname-override=$(NODE)",
                                        f"--nfqueue-id={_QUEUE}",
                                        "--v=2",
                                    ],
                                    "env": [
                                        {
                                            "name": "NODE",
                                            "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                                        }
                                    ],
                                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                                    # It writes nftables of the node, and looks into pods' network namespaces.
                                    "securityContext": {"privileged": True},
                                    "volumeMounts": [
                                        {"name": "nri", "mountPath": "/var/run/nri"},
                                        {
                                            "name": "netns",
                                            "mountPath": "/var/run/netns",
                                            "mountPropagation": "HostToContainer",
                                        },
                                    ],
                                }
                            ],
                            "volumes": [
                                # containerd tells it of a pod's address here, before the pod's first packet.
                                _folder("nri", "/var/run/nri"),
                                _folder("netns", "/var/run/netns"),
                            ],
                        },
                    },
                },
            )
        ],
    }


def _folder(name: str, path: str) -> dict[str, object]:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
