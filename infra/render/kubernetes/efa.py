"""Elastic Fabric Adapters, offered to pods as ``vpc.amazonaws.com/efa``: AWS's device plugin, on the nodes of
pools that have them.

A pod that asks for adapters gets their files in ``/dev/infiniband``; it needs neither the host's network nor
a capability. The plugin's source is not published: what its pod may do and sees is what AWS's own chart
gives it (aws/eks-charts, ``aws-efa-k8s-device-plugin``), but for a folder of the host that is Neuron's.
"""

from __future__ import annotations

from typing import Final

from infra.catalogue.labels import EFA, INTERCONNECT
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object
from infra.render.kubernetes.pods import EVERYWHERE, daemons, host, requests

NAME: Final = "efa-device-plugin"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Its DaemonSet; nothing where no pool has adapters."""
    addon = cluster.kubernetes.addon(NAME)
    if addon is None or addon.image is None:
        return {}
    return {"device-plugin.yaml": [_plugin(addon.image)]}


def _plugin(image: str) -> Object:
    container = {
        "name": NAME,
        "image": image,
        "resources": requests("10m", "20Mi"),
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
            {"name": "adapters", "mountPath": "/dev/infiniband"},
            {"name": "neuron", "mountPath": "/opt/aws/neuron"},
        ],
    }
    spec = {
        "affinity": _with_adapters(),
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": EVERYWHERE,
        "containers": [container],
        "volumes": [
            host("plugins", "/var/lib/kubelet/device-plugins", "Directory"),
            # Not there until the driver has found the adapters: until then the pod waits.
            host("adapters", "/dev/infiniband", "Directory"),
            {"name": "neuron", "emptyDir": {}},
        ],
    }
    return daemons(NAME, SYSTEM, {"app.kubernetes.io/name": NAME}, spec)


def _with_adapters() -> Object:
    """Nodes with the label; and those that joined when the other one said it, until they are replaced."""
    terms = [
        {"matchExpressions": [{"key": EFA, "operator": "In", "values": ["true"]}]},
        {"matchExpressions": [{"key": INTERCONNECT, "operator": "In", "values": ["efa"]}]},
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
