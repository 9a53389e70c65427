"""Objects of add-ons beside their charts, or instead of one: parts of one or two files each."""

from __future__ import annotations

from typing import Final

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import rights
from infra.render.kubernetes.charts.monitoring import (
    GRAFANA,
    GRAFANA_POD,
    NAMESPACE,
    STORAGE_CLASS,
    STORAGE_SIZE,
)
from infra.render.kubernetes.manifests import Documents, filled, mutating_api, static
from infra.render.kubernetes.tenants import subject

EFA: Final = "efa-device-plugin"


def efa(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """AWS's device plugin for Elastic Fabric Adapters, on the nodes of pools that have them; pods request
    ``vpc.amazonaws.com/efa``.

    A pod that requests adapters gets their devices in ``/dev/infiniband``; it needs neither host networking
    nor a capability. The plugin's source is not published: its pod's rights and mounts are those of AWS's
    chart (aws/eks-charts, ``aws-efa-k8s-device-plugin``), except a host folder for Neuron.

    Returns its DaemonSet; nothing if no pool has adapters.
    """
    addon = cluster.kubernetes.addon(EFA)
    if addon is None or addon.image is None:
        return {}
    return {"device-plugin.yaml": filled("efa/device-plugin", image=addon.image)}


def features(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Rules with which Node Feature Discovery taints nodes whose GPUs are sick, or whose scratch space is
    not mounted.

    A kubelet may not taint its own node (admission plugin NodeRestriction), and node-problem-detector does
    not set taints. The machine's check writes a file, the agent on the node reports it, and Node Feature
    Discovery's master, the only component that may change nodes, sets and removes the taint. An agent may
    report only for its own node.

    Returns ``rules.yaml`` and ``policy.yaml``; nothing if the add-on is disabled.
    """
    if not cluster.kubernetes.has("node-feature-discovery"):
        return {}
    return {f"{name}.yaml": static(f"after/features/{name}") for name in ("policy", "rules")}


MIRROR: Final = "registry-mirror"


def mirror(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """A policy that removes the node port of the image mirror, which only the node's own containerd uses.

    Spegel's chart always creates a Service of type NodePort, and Kubernetes opens a port between 30000 and
    32767 for it on all machines. It is not needed: containerd connects to the pod on its node, at the
    loopback address (``nodes.py``). So the API server changes the Service to ClusterIP.

    Returns the policy, applied before the chart; nothing if the mirror is disabled.
    """
    addon = cluster.kubernetes.addon(MIRROR)
    if addon is None or addon.chart is None:
        return {}
    api = mutating_api(cluster.kubernetes.version)
    return {"services.yaml": filled("mirror/services", api=api, namespace=addon.chart.namespace)}


def pages(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The CA of internal pages, https://<namespace>.<internal domain>, and one certificate for all of them.

    The CA's key is in the secrets store and is copied to the Secret ``internal-ca``. Traefik serves its
    wildcard certificate for the domain; cert-manager renews it.

    Returns ``authority.yaml``; nothing without an ingress.
    """
    ingress = cluster.kubernetes.ingress
    if ingress is None:
        return {}
    every = f"*.{ingress.fqdn.partition('.')[2]}"
    return {"authority.yaml": filled("after/pages/authority", host=ingress.fqdn, all_hosts=every)}


def monitoring(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The storage of Prometheus: a folder on the first master, which is permanent.

    Network file systems are not suitable (Prometheus, "Storage": "NFS filesystems (including AWS's EFS) are
    not supported"). While that master is down there are no metrics; the cluster does not depend on them.

    Returns ``storage.yaml``; nothing without Prometheus.
    """
    plane = cluster.control_plane
    if plane is None or not cluster.kubernetes.has("prometheus"):
        return {}
    first = plane.masters[0].hostname
    return {"storage.yaml": filled("monitoring/storage", name=STORAGE_CLASS, size=STORAGE_SIZE, master=first)}


_OPEN_GRAFANA: Final = f"open-{GRAFANA}"


def has_grafana(cluster: Cluster) -> bool:
    """Whether the cluster has Grafana: it comes with Prometheus."""
    return cluster.kubernetes.has("prometheus", "grafana")


def grafana(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The right of all users to open Grafana, by ``kubectl port-forward`` to its pod only.

    Prometheus and Alertmanager are for administrators, who have all rights anyway (``access``).

    Returns ``access.yaml``; nothing without Grafana, or without users.
    """
    if not (has_grafana(cluster) and cluster.access.users):
        return {}
    pod = {"apiGroups": [""], "resourceNames": [GRAFANA_POD]}
    rules = [
        # kubectl first checks that the pod is running.
        {**pod, "resources": ["pods"], "verbs": ["get"]},
        {**pod, "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ]
    everybody = [subject(user) for user in cluster.access.users]
    return {"access.yaml": rights.within(NAMESPACE, _OPEN_GRAFANA, rules, everybody)}
