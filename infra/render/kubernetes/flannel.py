"""flannel: pods' packets between nodes, over every site (flannel's Documentation/kubernetes.md, backends.md).

Two DaemonSets with a configuration each, where sites differ: in a rack, neighbours on one LAN send each other
pods' packets as they are. In a VPC each network card drops what does not come from its machine's own address
(source and destination check), so there every packet travels in VXLAN.

Its configuration for containerd is what makes a node ready. It is written when network policies are in force
on the node: before, only pods on the machine's own network start there, and the autoscaler knows a node that
is not ready yet. The cookbook ``kubernetes`` takes the file away at boot.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from infra.catalogue import addons
from infra.catalogue.labels import OURS, SITE
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import firewall, rights
from infra.render.kubernetes.manifests import Documents, Object, of
from infra.render.kubernetes.pods import daemons, field, host, nodes, requests, value

NAMESPACE: Final = "kube-flannel"

_NAME: Final = "flannel"
_APP: Final = {"app.kubernetes.io/name": _NAME}
_HEALTH: Final = 8081

_SPARED: Final = "without-policies"
_WAIT: Final = f"""
grep -qxF "$NODE" /etc/kube-flannel/{_SPARED} && exit
until grep -qE '^ *{firewall.QUEUE} ' /proc/net/netfilter/nfnetlink_queue 2>/dev/null; do sleep 1; done
"""
"""The kernel lists queues that a program listens to, a line each (Linux, net/netfilter/nfnetlink_queue.c)."""

_VXLAN_PORT: Final = 8472
_VNI: Final = 1


def objects(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Documents:
    """The namespace, flannel's rights, its configurations, and who runs them."""
    direct = cluster.kubernetes.overlay.direct
    everywhere = {"key": SITE, "operator": "NotIn", "values": list(direct)}
    neighbours = {"key": SITE, "operator": "In", "values": list(direct)}
    kinds: list[tuple[str, bool, list[Object]]] = [(_NAME, False, [everywhere] if direct else [])]
    if direct:
        kinds.append((f"{_NAME}-neighbours", True, [neighbours]))
    return {
        "namespace.yaml": [
            of(
                "v1",
                "Namespace",
                NAMESPACE,
                # It sets up every node's network.
                labels={"pod-security.kubernetes.io/enforce": "privileged"},
            )
        ],
        "rights.yaml": _rights(),
        "configuration.yaml": [_configuration(cluster, name, direct=near) for name, near, _ in kinds],
        "daemons.yaml": [_daemons(cluster, name, where) for name, _, where in kinds],
    }


def backend(cluster: Cluster, *, direct: bool) -> dict[str, Any]:
    """flannel's ``Backend``. ``direct``: on nodes that are neighbours on one LAN."""
    overlay = cluster.kubernetes.overlay
    if overlay.backend == "host-gw":
        return {"Type": "host-gw"}
    if overlay.backend == "wireguard":
        return {"Type": "wireguard", "MTU": overlay.told}
    return {
        "Type": "vxlan",
        "VNI": _VNI,
        "Port": _VXLAN_PORT,
        "MTU": overlay.told,
        "DirectRouting": direct,
    }


def _configuration(cluster: Cluster, name: str, *, direct: bool) -> Object:
    network = {
        "Network": str(cluster.network.pods),
        "EnableIPv4": True,
        "EnableIPv6": False,
        "Backend": backend(cluster, direct=direct),
    }
    # flannel would tell it, but for host-gw, which knows no size but the network card's.
    delegate = {"hairpinMode": True, "isDefaultGateway": True, "mtu": cluster.kubernetes.overlay.mtu}
    cni = {
        "cniVersion": "0.3.1",
        "name": "cbr0",
        "plugins": [
            {"type": "flannel", "delegate": delegate},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    spared = "".join(f"{node}\n" for node in firewall.spared(cluster))
    data = {"cni-conf.json": _json(cni), "net-conf.json": _json(network), _SPARED: spared}
    return of("v1", "ConfigMap", name, namespace=NAMESPACE, labels=_APP, data=data)


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _rights() -> list[Object]:
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    return rights.everywhere(_NAME, NAMESPACE, rules, role=_NAME, labels=_APP)


def _daemons(cluster: Cluster, name: str, where: Sequence[Object]) -> Object:
    labels = {**_APP, "app.kubernetes.io/instance": name}
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    spec = {
        "affinity": nodes([linux, *where]),
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "serviceAccountName": _NAME,
        # On every node, whatever it is kept for: without it nothing else runs there.
        "tolerations": [{"operator": "Exists"}],
        "initContainers": _installers(cluster),
        "containers": [_flanneld(cluster)],
        "volumes": [
            host("run", "/run/flannel"),
            host("cni-plugin", "/opt/cni/bin"),
            host("cni", "/etc/cni/net.d"),
            {"name": "configuration", "configMap": {"name": name}},
            host("xtables-lock", "/run/xtables.lock", "FileOrCreate"),
        ],
    }
    # Pods' packets flow on while it restarts.
    return daemons(name, NAMESPACE, labels, spec, annotations=_seen(cluster))


def _seen(cluster: Cluster) -> dict[str, str]:
    """flannel reads its configuration when it starts: a change of it is a change of its pods."""
    overlay = cluster.kubernetes.overlay
    return {f"{OURS}/overlay": f"{cluster.network.pods} {overlay.backend} {overlay.mtu}"}


def _installers(cluster: Cluster) -> list[Object]:
    minor = cluster.kubernetes.version
    return [
        {
            "name": "install-plugin",
            "image": addons.image("flannel-cni-plugin", minor),
            "command": ["cp", "-f", "/flannel", "/opt/cni/bin/flannel"],
            "resources": requests("10m", "16Mi"),
            "volumeMounts": [{"name": "cni-plugin", "mountPath": "/opt/cni/bin"}],
        },
        {
            "name": "wait-for-policies",
            "image": addons.image("busybox"),
            "command": ["sh", "-c", _WAIT],
            "env": [field("NODE", "spec.nodeName")],
            "resources": requests("10m", "16Mi"),
            "volumeMounts": [{"name": "configuration", "mountPath": "/etc/kube-flannel"}],
        },
        {
            "name": "install-configuration",
            "image": addons.image("flannel", minor),
            "command": [
                "/opt/bin/install-conf",
                "/etc/kube-flannel/cni-conf.json",
                "/etc/cni/net.d/10-flannel.conflist",
            ],
            "resources": requests("10m", "16Mi"),
            "volumeMounts": [
                {"name": "cni", "mountPath": "/etc/cni/net.d"},
                {"name": "configuration", "mountPath": "/etc/kube-flannel"},
            ],
        },
    ]


def _flanneld(cluster: Cluster) -> Object:
    probe = {"port": _HEALTH}
    return {
        "name": _NAME,
        "image": addons.image("flannel", cluster.kubernetes.version),
        "command": ["/opt/bin/flanneld"],
        "args": [
            "--kube-subnet-mgr",
            # What leaves the pods' range, and what comes into it from machines that are no nodes, has a
            # node's address: others know no way back.
            "--ip-masq",
            # The node's own address inside, not the one of its default route: a site's gateway has a line to
            # the internet.
            "--iface=$(NODE_IP)",
            f"--healthz-port={_HEALTH}",
            # On gateways with a leg outside, too.
            "--healthz-ip=$(NODE_IP)",
        ],
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("NODE_IP", "status.hostIP"),
            value("EVENT_QUEUE_DEPTH", "5000"),
            value("CONT_WHEN_CACHE_NOT_READY", "false"),
        ],
        "ports": [{"name": "health", "containerPort": _HEALTH, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", **probe},
            "initialDelaySeconds": 10,
            "periodSeconds": 30,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", **probe},
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
        },
        "resources": requests("50m", "64Mi"),
        "securityContext": {"privileged": False, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
        "volumeMounts": [
            {"name": "run", "mountPath": "/run/flannel"},
            {"name": "configuration", "mountPath": "/etc/kube-flannel"},
            {"name": "xtables-lock", "mountPath": "/run/xtables.lock"},
        ],
    }
