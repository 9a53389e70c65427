"""Names of services and pods: CoreDNS, and a cache on each node.

CoreDNS has the names of the cluster; kubeadm's own is turned off (``dns.disabled``). Its replicas stand
apart, a site each as far as there are nodes. What else a pod asks for, the private zone too, its node's
cache asks of whom the node itself asks: in a region the VPC's resolver, in a rack the site's gateway. So a
place that is cut off still has its outer names, and those of the cluster for as long as the cache remembers
(RFC 8767).

The cache listens on the address of the service ``kube-dns``, on an interface of its own, and so nobody is
told another one; where it does not run, kube-proxy leads the same address to CoreDNS (KEP 1024, NodeLocal
DNSCache).
"""

from __future__ import annotations

from typing import Any, Final

from infra.catalogue import addons
from infra.catalogue.labels import SITE
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import rights
from infra.render.kubernetes.manifests import Documents, Object, of
from infra.render.kubernetes.pods import daemons, host, requests

NAMESPACE: Final = "kube-system"

_COREDNS: Final = "coredns"
_CACHE: Final = "node-local-dns"
_UPSTREAM: Final = "kube-dns-upstream"
_APP: Final = {"k8s-app": "kube-dns", "app.kubernetes.io/name": _COREDNS}
"""``k8s-app``: what charts and monitoring look for."""
_CACHE_APP: Final = {"k8s-app": _CACHE, "app.kubernetes.io/name": _CACHE}

_MOST_REPLICAS: Final = 5
_PORTS: Final = (("dns", "UDP"), ("dns-tcp", "TCP"))

_TTL: Final = 30
"""Seconds that an answer is remembered."""
_REMEMBERED: Final = "1h"
"""How long an answer is given that nobody can renew."""


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """CoreDNS, its services, and the cache."""
    return {
        "rights.yaml": _rights(),
        "coredns.yaml": [
            _map(_COREDNS, _APP, corefile(cluster)),
            _coredns(cluster),
            of(
                "policy/v1",
                "PodDisruptionBudget",
                _COREDNS,
                namespace=NAMESPACE,
                labels=_APP,
                spec={"maxUnavailable": 1, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}},
            ),
        ],
        "services.yaml": [
            _service("kube-dns", cluster.access.vpn.cluster_resolver),
            _service(_UPSTREAM, cluster.kubernetes.coredns),
        ],
        "cache.yaml": [_map(_CACHE, _CACHE_APP, cache_corefile(cluster)), _cache(cluster)],
    }


def corefile(cluster: Cluster) -> str:
    """CoreDNS's configuration: the cluster's names, and all others for whoever asks it directly."""
    network = cluster.network
    return _blocks(
        {
            f"{cluster.domain}:53": [
                "errors",
                *_cached(denial=5),
                "forward . /etc/resolv.conf",
                "prometheus :9153",
                "reload",
            ],
            ".:53": [
                "errors",
                "health {",
                # Others learn that it goes before it does.
                "    lameduck 5s",
                "}",
                "ready",
                f"kubernetes {cluster.access.vpn.cluster_domain} {network.pods} {network.services} {{",
                # A name like 10-4-7-3.team.pod exists where such a pod does.
                "    pods verified",
                f"    ttl {_TTL}",
                "}",
                "prometheus :9153",
                "forward . /etc/resolv.conf {",
                "    max_concurrent 1000",
                "}",
                *_cached(denial=5),
                "loop",
                "reload",
                "loadbalance",
            ],
        }
    )


def cache_corefile(cluster: Cluster) -> str:
    """The cache's configuration: the cluster's names of CoreDNS, all others of whom the node asks."""
    network, vpn = cluster.network, cluster.access.vpn
    bind = f"bind {vpn.cluster_resolver}"
    ours = f"{vpn.cluster_domain}:53 {network.pods}:53 {network.services}:53"
    return _blocks(
        {
            ours: [
                "errors",
                bind,
                *_cached(denial=5, stale=True),
                f"forward . {cluster.kubernetes.coredns} {{",
                # UDP through the overlay would leave traces in every node's connection tracking.
                "    force_tcp",
                "}",
                "prometheus :9253",
                "reload",
                "loop",
                f"health {vpn.cluster_resolver}:8080",
            ],
            ".:53": [
                "errors",
                bind,
                *_cached(denial=5, stale=True),
                "forward . /etc/resolv.conf",
                "prometheus :9253",
                "reload",
                "loop",
            ],
        }
    )


def _cached(*, denial: int, stale: bool = False) -> list[str]:
    """What does not exist is forgotten sooner: a pod may be about to be there."""
    return [
        f"cache {_TTL} {{",
        f"    denial 9984 {denial}",
        *([f"    serve_stale {_REMEMBERED} verify"] if stale else []),
        "}",
    ]


def _blocks(blocks: dict[str, list[str]]) -> str:
    return "".join(
        f"{zones} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
        for zones, lines in blocks.items()
    )


def _map(name: str, labels: dict[str, str], text: str) -> Object:
    return of("v1", "ConfigMap", name, namespace=NAMESPACE, labels=labels, data={"Corefile": text})


def _rights() -> list[Object]:
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        *rights.everywhere(_COREDNS, NAMESPACE, rules, role="system:coredns", labels=_APP),
        rights.account(_CACHE, NAMESPACE, labels=_CACHE_APP),
    ]


def _service(name: str, address: object) -> Object:
    named = {"kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}
    metrics = [{"name": "metrics", "port": 9153, "targetPort": 9153, "protocol": "TCP"}]
    spec = {
        "selector": {"k8s-app": "kube-dns"},
        "clusterIP": str(address),
        "ports": [
            *({"name": port, "port": 53, "targetPort": 53, "protocol": over} for port, over in _PORTS),
            *(metrics if name == "kube-dns" else []),
        ],
        # The nearest where there is one; any other else.
        "trafficDistribution": "PreferSameZone",
    }
    return of("v1", "Service", name, namespace=NAMESPACE, labels={**_APP, **named}, spec=spec)


def _coredns(cluster: Cluster) -> Object:
    sites = len(cluster.regions) + len(cluster.sites)
    match = {"labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}}, "maxSkew": 1}
    container = {
        "name": _COREDNS,
        "image": addons.image(_COREDNS, cluster.kubernetes.version),
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [*_container_ports(), {"name": "metrics", "containerPort": 9153, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
        "resources": requests("100m", "70Mi", limit="512Mi"),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    spec = {
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": _COREDNS,
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        # A region may have no node at all, so wishes rather than demands.
        "topologySpreadConstraints": [
            {**match, "topologyKey": SITE, "whenUnsatisfiable": "ScheduleAnyway"},
            {**match, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [_volume(_COREDNS, "Corefile")],
    }
    # A node that is to go may go: another replica is elsewhere.
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    return of(
        "apps/v1",
        "Deployment",
        _COREDNS,
        namespace=NAMESPACE,
        labels=_APP,
        spec={
            "replicas": min(_MOST_REPLICAS, max(2, sites)),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "template": {"metadata": {"labels": _APP, "annotations": annotations}, "spec": spec},
        },
    )


def _cache(cluster: Cluster) -> Object:
    vpn = cluster.access.vpn
    container = {
        "name": "node-cache",
        "image": addons.image(_CACHE, cluster.kubernetes.version),
        "args": [
            "-localip",
            str(vpn.cluster_resolver),
            # It writes this one, from what is mounted, and reads it again when that changes.
            "-conf",
            "/etc/Corefile",
            "-pidfile",
            "/run/node-cache.pid",
        ],
        "ports": [*_container_ports(), {"name": "metrics", "containerPort": 9253, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"host": str(vpn.cluster_resolver), "path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
        },
        "resources": requests("25m", "32Mi"),
        "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc/coredns"},
            {"name": "xtables-lock", "mountPath": "/run/xtables.lock"},
        ],
    }
    spec = {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": _CACHE,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        # Wherever pods are; not on gateways, whose resolver is another.
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "operator": "Exists"},
        ],
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [
            _volume(_CACHE, "Corefile.base"),
            host("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
        ],
    }
    return daemons(_CACHE, NAMESPACE, _CACHE_APP, spec, selector={"k8s-app": _CACHE})


def _container_ports() -> list[Object]:
    return [{"name": name, "containerPort": 53, "protocol": over} for name, over in _PORTS]


def _volume(name: str, file: str) -> dict[str, Any]:
    items = [{"key": "Corefile", "path": file}]
    return {"name": "configuration", "configMap": {"name": name, "items": items}}
