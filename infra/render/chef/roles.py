"""Roles: those that the catalogue has, and one for each family of cards that the cluster has."""

from __future__ import annotations

from typing import Any

from infra.catalogue import roles as catalogue
from infra.files import Files
from infra.model import Cluster, to_json
from infra.model.software import GpuFamily
from infra.render.chef import objects


def render(cluster: Cluster) -> Files:
    """``<role>.json``."""
    plain = [
        objects.role(
            role.name,
            role.description,
            _run_list(cluster, role),
            _of_nodes(cluster) if role.name == catalogue.GPU_WORKER else {},
        )
        for role in catalogue.roles().values()
    ]
    families = [_family(family) for family in cluster.gpu_families]
    return {f"{role['name']}.json": to_json(role) for role in [*plain, *families]}


def _run_list(cluster: Cluster, role: catalogue.Role) -> tuple[str, ...]:
    """Without a cluster, people come in all the same, and to no node."""
    if cluster.control_plane is not None or role.name not in catalogue.WAYS_IN:
        return role.run_list
    return tuple(entry for entry in role.run_list if entry not in catalogue.NODE_RECIPES)


def _of_nodes(cluster: Cluster) -> dict[str, Any]:
    """What machines with cards leave to the cluster's add-ons."""
    on = cluster.kubernetes.has
    gpu = {
        **({"dcgm": {"exporter": False}} if on("dcgm-exporter") else {}),
        **({"container_toolkit": {"devices": "mounts"}} if on("nvidia-device-plugin") else {}),
        **({"health": {"taint": True}} if on("node-feature-discovery") else {}),
    }
    return {"gpu": gpu} if gpu else {}


def run_lists(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Role → its recipes, other roles spelt out: for what knows no roles."""
    plain = {role.name: _run_list(cluster, role) for role in catalogue.roles().values()}
    families = [catalogue.family_role(family.name) for family in cluster.gpu_families]
    named = {**plain, **{family: (f"role[{family}]",) for family in families}}
    return {name: catalogue.recipes(run_list) for name, run_list in sorted(named.items())}


def _family(family: GpuFamily) -> dict[str, Any]:
    return objects.role(
        catalogue.family_role(family.name),
        f"A Kubernetes node with cards of the {family.name.title()} architecture.",
        [f"role[{catalogue.GPU_WORKER}]"],
        {
            "gpu": {
                "driver": family.driver,
                "cuda": None,
                "open_kernel_modules": family.open_kernel_modules,
                "fabric_manager": False,
                "family": family.name,
            }
        },
    )
