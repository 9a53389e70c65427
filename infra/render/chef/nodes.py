"""A node object for each physical machine: what it is, and what it has."""

from __future__ import annotations

from typing import Any, Final

from infra.catalogue import roles
from infra.files import Files
from infra.model import Cluster, to_json
from infra.model.places import Gpus, PhysicalNode, PhysicalSite
from infra.render.chef import objects

_KUBELETS: Final = frozenset({"worker", roles.GPU_WORKER})
_SSH_NODE: Final = "ssh-node"


def render(cluster: Cluster) -> Files:
    """``<node>.json``."""
    groups = [group.name for group in cluster.access.groups]
    return {
        f"{node.name}.json": to_json(
            objects.node(node.name, cluster, run_list(node), _normal(site, node, groups))
        )
        for site in cluster.sites
        for node in site.nodes
    }


def run_list(node: PhysicalNode) -> list[str]:
    """A machine's roles, what serves others first. Cards have their driver, whatever the machine is for."""
    ordered = sorted(node.roles, key=roles.SERVERS_FIRST.index)
    entries = [f"role[{_role(role, node.gpus)}]" for role in ordered]
    if node.gpus is not None and roles.GPU_WORKER not in node.roles:
        return ["role[base]", "recipe[gpu]", *entries]
    return entries


def _role(role: str, cards: Gpus | None) -> str:
    return roles.family_role(cards.family) if role == roles.GPU_WORKER and cards is not None else role


def _normal(site: PhysicalSite, node: PhysicalNode, groups: list[str]) -> dict[str, Any]:
    normal: dict[str, Any] = {
        "causeway": {
            "name": node.name,
            "fqdn": node.fqdn,
            "site": site.name,
            "address": str(node.address),
            "rack": node.rack,
            "role": node.roles[0],
            "roles": list(node.roles),
        },
        "storage": {
            "disks": [
                {"device": disk.device, "size_mib": disk.size_mib, "use": disk.use} for disk in node.disks
            ]
        },
    }
    if _KUBELETS.intersection(node.roles):
        normal["kubernetes"] = {
            "labels": dict(node.labels),
            "taints": [],
            "node_ip": str(node.address),
        }
    if node.gpus is not None:
        normal["gpu"] = _gpu(node.gpus)
    if _SSH_NODE in node.roles:
        normal["ssh_node"] = {"groups": groups}
    return normal


def _gpu(cards: Gpus) -> dict[str, Any]:
    return {
        "driver": cards.driver,
        "cuda": None,
        "open_kernel_modules": cards.open_kernel_modules,
        "fabric_manager": False,
        "family": cards.family,
        "model": cards.model,
        "count": cards.count,
    }
