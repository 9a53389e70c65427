"""node-problem-detector: what goes wrong on a node, as conditions, events and metrics.

It reads the kernel's messages, and what the machine's own check of its cards wrote. It taints nothing: that
is ``features``' matter.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.machines import has_cards
from infra.render.kubernetes import rights
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of
from infra.render.kubernetes.pods import EVERYWHERE, daemons, field, host, requests
from infra.render.templating import copied

NAME: Final = "node-problem-detector"
PORT: Final = 20257

_FOLDER: Final = "problems/"
_REPORTS: Final = "/var/lib/causeway"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Its account, its rules, and one on each node."""
    addon = cluster.kubernetes.addon(NAME)
    if addon is None or addon.image is None:
        return {}
    cards = has_cards(cluster.pools, cluster.sites)
    static = copied("kubernetes")
    names = ["kernel.json", *(["gpu.json", "gpu-sick"] if cards else [])]
    files = {name: static[_FOLDER + name] for name in names}
    return {
        "rights.yaml": _rights(),
        "rules.yaml": [of("v1", "ConfigMap", NAME, namespace=SYSTEM, data=files)],
        "daemons.yaml": [_daemons(addon.image, cards=cards)],
    }


def _rights() -> list[Object]:
    return [
        rights.account(NAME, SYSTEM),
        # Kubernetes' own role: it may read nodes, patch their status, and write events.
        rights.bound(f"causeway:{NAME}", "system:node-problem-detector", NAME, SYSTEM),
    ]


def _daemons(image: str, *, cards: bool) -> Object:
    labels = {"app.kubernetes.io/name": NAME}
    container = {
        "name": NAME,
        "image": image,
        "command": [
            "/node-problem-detector",
            "--logtostderr",
            "--config.system-log-monitor=/etc/problems/kernel.json",
            *(["--config.custom-plugin-monitor=/etc/problems/gpu.json"] if cards else []),
            "--prometheus-address=0.0.0.0",
            f"--prometheus-port={PORT}",
        ],
        "env": [field("NODE_NAME", "spec.nodeName")],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "resources": requests("10m", "48Mi", limit="160Mi"),
        # /dev/kmsg is for those who may administer the machine.
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "rules", "mountPath": "/etc/problems", "readOnly": True},
            {"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True},
            {"name": "reports", "mountPath": _REPORTS, "readOnly": True},
        ],
    }
    spec = {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": NAME,
        "tolerations": EVERYWHERE,
        "containers": [container],
        "volumes": [
            {"name": "rules", "configMap": {"name": NAME, "defaultMode": 0o555}},
            host("kmsg", "/dev/kmsg", "CharDevice"),
            # The folder, as a file that is replaced would stay the old one in a mount of its own.
            host("reports", _REPORTS),
        ],
    }
    return daemons(NAME, SYSTEM, labels, spec)
