"""Namespaces: ours, one per user and one per group, each with quotas and network policies.

A user works in ``user-ada``, a group shares ``team-vision``. Both have the same four parts: a Pod Security
level, default requests of containers, a quota, and a network policy. The policy admits traffic from the
namespace itself, from monitoring and the ingress, and from laptops; the part ``firewall`` enforces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, collapse_addresses
from itertools import pairwise
from typing import Any, Final

from infra.catalogue import addons
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.kubernetes import tracking_service
from infra.render.kubernetes.manifests import SYSTEM, Documents, Object, of
from infra.render.kubernetes.tenants import ENFORCE, TEAM, TENANT, ids_of, ids_of_group, role_of, team_of

_ADMISSION: Final = "pod-security.kubernetes.io"
METADATA: Final = "169.254.169.254/32"
"""The address of instance metadata with the instance's credentials (EC2 User Guide, "Instance metadata"):
pods must not reach it. Hop limit 1 and the node's rules (cookbook ``kubernetes``, ``pods.nft.erb``) block
it as well."""
_EVERYWHERE: Final = "0.0.0.0/0"
_LAST: Final = 65535
_DNS: Final = 53
_HTTPS: Final = 443

_ASKED: Final = {"cpu": "500m", "memory": "1Gi"}
"""Default requests of a container. There are no default limits, so that a container without limits is not
killed for it."""

_VISITORS: Final = ("kube-prometheus-stack", "traefik")
"""Charts whose namespaces may reach pods of all users: for metrics, and for visitors of internal pages."""


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """Our own namespace, then those of groups, then those of users."""
    return {
        "system.yaml": [
            of("v1", "Namespace", SYSTEM, labels={ENFORCE: "privileged"}),
            # Before the other objects, for the Secret with the password of its database.
            *(
                [of("v1", "Namespace", tracking_service.NAMESPACE, labels={ENFORCE: "restricted"})]
                if cluster.tracking
                else []
            ),
        ],
        "teams.yaml": [
            each
            for group in cluster.access.groups
            for each in _tenant(
                cluster,
                outputs,
                "team",
                group.namespace,
                group.namespace,
                group.pod_security,
                ids_of_group(group),
            )
        ],
        "people.yaml": [
            each
            for user in cluster.access.users
            for each in _tenant(
                cluster,
                outputs,
                "user",
                user.namespace,
                team_of(cluster, user),
                "baseline",
                ids_of(cluster, user),
            )
        ],
    }


def _tenant(
    cluster: Cluster,
    outputs: Outputs,
    kind: str,
    name: str,
    team: str,
    security: str,
    ids: Mapping[str, str],
) -> Iterator[Object]:
    version = f"v{cluster.kubernetes.version}"
    yield of(
        "v1",
        "Namespace",
        name,
        labels={
            TENANT: kind,
            TEAM: team,
            ENFORCE: security,
            f"{_ADMISSION}/enforce-version": version,
            # Violations are not refused; users who create a pod are warned about them.
            f"{_ADMISSION}/warn": "restricted",
            f"{_ADMISSION}/warn-version": version,
        },
        annotations=ids,
    )
    # Kubernetes also creates it. Kept here when its role is removed, as running pods use this account.
    yield of("v1", "ServiceAccount", "default", namespace=name, annotations=role_of(name, outputs))
    yield of(
        "v1",
        "LimitRange",
        "defaults",
        namespace=name,
        spec={"limits": [{"type": "Container", "defaultRequest": dict(_ASKED)}]},
    )
    yield of("v1", "ResourceQuota", "limits", namespace=name, spec={"hard": _quota(cluster)})
    yield of(
        "networking.k8s.io/v1", "NetworkPolicy", "default", namespace=name, spec=_network_policy(cluster)
    )


def _quota(cluster: Cluster) -> dict[str, str]:
    """The quota of a namespace. GPUs are limited by queues, volumes by ``volumes``."""
    most = cluster.kubernetes.namespaces
    return {
        "pods": str(most.pods),
        "count/jobs.batch": str(most.jobs),
        # Internal pages use the ingress; a node port would be open to everyone who can reach nodes.
        "services.nodeports": "0",
        "services.loadbalancers": "0",
        **({"requests.cpu": str(most.cpu)} if most.cpu else {}),
        **({"requests.memory": f"{most.memory_mib}Mi"} if most.memory_mib else {}),
    }


def _network_policy(cluster: Cluster) -> dict[str, Any]:
    own: list[dict[str, Any]] = [{"podSelector": {}}]
    visitors = sorted({SYSTEM, *(addons.chart(name).namespace for name in _VISITORS)})
    of_ours = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": visitors}
    return {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": own},
            {"from": [{"namespaceSelector": {"matchExpressions": [of_ours]}}]},
            {"from": [{"ipBlock": {"cidr": str(block)}} for block in laptops(cluster)]},
        ],
        "egress": [
            # The egress side of the rule: the targets' own policies decide whether they accept it.
            {"to": [{"namespaceSelector": {}}]},
            *_outside(cluster),
        ],
    }


def _outside(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Allowed egress outside of the pod network, as in the rules on nodes, which also apply before policies
    are enforced."""
    egress = cluster.kubernetes.egress
    machines = [str(block) for block in egress.machines]
    yield {
        "to": [{"ipBlock": {"cidr": _EVERYWHERE, "except": [METADATA, *machines]}}],
        "ports": [
            {"protocol": protocol.upper(), "port": first, "endPort": last}
            for protocol, refused in egress.refused.items()
            for first, last in _between(refused)
        ],
    }
    plane = cluster.control_plane
    api = [("tcp", plane.port)] if plane is not None else []
    rules: list[tuple[Sequence[IPv4Network], Iterable[tuple[str, int]]]] = [
        (egress.machines, [("tcp", _DNS), ("udp", _DNS), *api]),
        (egress.endpoints, [("tcp", _HTTPS)]),
        *(([each.block], [(each.protocol, port) for port in each.ports]) for each in egress.allowed),
    ]
    for blocks, ports in rules:
        if blocks:
            yield {
                "to": [{"ipBlock": {"cidr": str(block)}} for block in blocks],
                "ports": [{"protocol": protocol.upper(), "port": port} for protocol, port in ports],
            }


def _between(refused: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The port ranges between excluded ports, in order."""
    edges = [0, *refused, _LAST + 1]
    return ((low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1)


def laptops(cluster: Cluster) -> tuple[IPv4Network, ...]:
    """The source addresses of laptops' packets: the VPN servers, which translate addresses.

    Through VXLAN the source is a server's address in the pod network, at a physical site its own. The latter
    is one of many, so all machines' networks are included: access from a machine to pods was decided when
    the laptop was admitted.
    """
    blocks = [region.vpc for region in cluster.regions] + [site.lan for site in cluster.sites]
    vpn = cluster.access.vpn
    among_pods = [vpn.pods] if vpn.pods is not None else []
    return tuple(collapse_addresses([*blocks, *among_pods, *vpn.laptops]))
