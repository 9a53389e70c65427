"""Elastic Fabric Adapters, offered to pods as ``vpc.amazonaws.com/efa``: AWS's device plugin, on the nodes of
pools that have them.

A pod that asks for adapters gets their files in ``/dev/infiniband``; it needs neither the host's network nor
a capability. The plugin's source is not published: what its pod may do and sees is what AWS's own chart
gives it (aws/eks-charts, ``aws-efa-k8s-device-plugin``), but for a folder of the host that is Neuron's.
"""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, filled

NAME: Final = "efa-device-plugin"


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Its DaemonSet; nothing where no pool has adapters."""
    addon = cluster.kubernetes.addon(NAME)
    if addon is None or addon.image is None:
        return {}
    return {"device-plugin.yaml": filled("efa/device-plugin", image=addon.image)}
