"""Objects of add-ons beside their charts, or in place of one: parts of one or two files each."""

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
    """Elastic Fabric Adapters, offered to pods as ``vpc.amazonaws.com/efa``: AWS's device plugin, on the
    nodes of pools that have them.

    A pod that asks for adapters gets their files in ``/dev/infiniband``; it needs neither the host's network
    nor a capability. The plugin's source is not published: what its pod may do and sees is what AWS's own
    chart gives it (aws/eks-charts, ``aws-efa-k8s-device-plugin``), but for a folder of the host that is
    Neuron's.

    Gives its DaemonSet; nothing where no pool has adapters.
    """
    addon = cluster.kubernetes.addon(EFA)
    if addon is None or addon.image is None:
        return {}
    return {"device-plugin.yaml": filled("efa/device-plugin", image=addon.image)}


def features(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """What Node Feature Discovery makes of machines' reports: taints of nodes whose GPUs are sick, or whose
    scratch space is not mounted.

    A kubelet may not taint its own node (admission plugin NodeRestriction), and node-problem-detector taints
    none. The machine's own check writes a file, the agent on the node reports it, and Node Feature
    Discovery's master, which alone may change nodes, sets the taint and takes it away. An agent may report of
    its own node and of no other.

    Gives ``rules.yaml`` and ``policy.yaml``; nothing where the add-on is off.
    """
    if not cluster.kubernetes.has("node-feature-discovery"):
        return {}
    return {f"{name}.yaml": static(f"after/features/{name}") for name in ("policy", "rules")}


MIRROR: Final = "registry-mirror"


def mirror(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Image layers of neighbours are for the node's own containerd: the mirror has no port on every machine.

    Spegel's chart makes a Service of type NodePort, whatever its values say, and Kubernetes gives it a port
    between 30000 and 32767 on all machines. Nobody uses it: containerd asks the pod of its node, at the
    node's loopback address (``nodes.py``). So the API server makes a plain Service of it.

    Gives the policy, before the chart comes; nothing where the mirror is off.
    """
    addon = cluster.kubernetes.addon(MIRROR)
    if addon is None or addon.chart is None:
        return {}
    api = mutating_api(cluster.kubernetes.version)
    return {"services.yaml": filled("mirror/services", api=api, namespace=addon.chart.namespace)}


def pages(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Internal pages, https://<namespace>.<internal domain>: the authority and its certificate for all of
    them.

    The authority's key comes from the secrets store as the Secret ``internal-ca``. Traefik shows its
    certificate, which is good for every name below the domain; cert-manager renews it.

    Gives ``authority.yaml``; nothing without an ingress.
    """
    ingress = cluster.kubernetes.ingress
    if ingress is None:
        return {}
    every = f"*.{ingress.fqdn.partition('.')[2]}"
    return {"authority.yaml": filled("after/pages/authority", host=ingress.fqdn, all_hosts=every)}


def monitoring(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """Where Prometheus keeps its figures: a folder on the first master, which is always there.

    Network file systems will not do for it (Prometheus, "Storage": "NFS filesystems (including AWS's EFS) are
    not supported"). Without that master there are no figures until it is back; the cluster does not need
    them.

    Gives ``storage.yaml``; nothing without Prometheus.
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
    """Who may open Grafana: everybody of the spec, by ``kubectl port-forward`` to its pod and to no other.

    Prometheus and Alertmanager are for who runs the cluster, who may do everything anyway (``access``).

    Gives ``access.yaml``; nothing without Grafana, or without people.
    """
    if not (has_grafana(cluster) and cluster.access.users):
        return {}
    pod = {"apiGroups": [""], "resourceNames": [GRAFANA_POD]}
    rules = [
        # kubectl looks first whether it runs.
        {**pod, "resources": ["pods"], "verbs": ["get"]},
        {**pod, "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ]
    everybody = [subject(user) for user in cluster.access.users]
    return {"access.yaml": rights.within(NAMESPACE, _OPEN_GRAFANA, rules, everybody)}
