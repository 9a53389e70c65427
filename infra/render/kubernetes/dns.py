"""Cluster DNS: CoreDNS, and a cache on each node.

CoreDNS serves the names of the cluster; kubeadm's own deployment is disabled (``dns.disabled``). Its
replicas are spread over sites as far as there are nodes. All other names, including the private zone, are
forwarded by a node's cache to the node's own resolver: in a region the VPC's resolver, at a physical site
the gateway. So a site that is cut off can still resolve external names, and names of the cluster for as long
as the cache keeps stale entries (RFC 8767).

The cache listens on the address of the service ``kube-dns``, on a dummy interface, so clients need no other
address; if it does not run, kube-proxy routes the same address to CoreDNS (KEP 1024, NodeLocal DNSCache).
"""

from __future__ import annotations

from typing import Final, Literal

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes.manifests import Documents, Object, filled, of, static
from infra.render.templating import fill

_MOST_REPLICAS: Final = 5


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """CoreDNS, its Services, and the cache."""
    address = str(cluster.access.vpn.cluster_resolver)
    sites = len(cluster.regions) + len(cluster.sites)
    return {
        "rights.yaml": static("dns/rights"),
        "configuration.yaml": [
            _map("coredns", "kube-dns", corefile(cluster, "coredns")),
            _map("node-local-dns", "node-local-dns", corefile(cluster, "cache")),
        ],
        "coredns.yaml": filled(
            "dns/coredns",
            image=addons.image("coredns"),
            replicas=min(_MOST_REPLICAS, max(2, sites)),
        ),
        "services.yaml": filled("dns/services", address=address, coredns=str(cluster.kubernetes.coredns)),
        "cache.yaml": filled("dns/cache", image=addons.image("node-local-dns"), address=address),
    }


def corefile(cluster: Cluster, program: Literal["coredns", "cache"]) -> str:
    """The configuration of CoreDNS, or of the cache on each node."""
    return fill(
        f"kubernetes/dns/{program}.Corefile.j2",
        domain=cluster.domain,
        cluster_domain=cluster.access.vpn.cluster_domain,
        pods=cluster.network.pods,
        services=cluster.network.services,
        address=cluster.access.vpn.cluster_resolver,
        coredns=cluster.kubernetes.coredns,
    )


def _map(name: str, app: str, text: str) -> Object:
    # Charts and monitoring select them by ``k8s-app``.
    labels = {"k8s-app": app, "app.kubernetes.io/name": name}
    return of("v1", "ConfigMap", name, namespace="kube-system", labels=labels, data={"Corefile": text})
