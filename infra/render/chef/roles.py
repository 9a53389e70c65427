"""Roles: those of the catalogue, and one for each GPU family in the cluster; and a Policyfile."""

from __future__ import annotations

from typing import Any

from infra.catalogue import roles as catalogue
from infra.files import Files
from infra.model import Cluster, to_json
from infra.model.software import GpuFamily
from infra.render.chef import objects
from infra.render.chef.environment import versions
from infra.render.templating import fill


def render(cluster: Cluster) -> Files:
    """``<role>.json``."""
    plain = [
        objects.role(
            role.name,
            role.description,
            role.run_list,
            _of_nodes(cluster) if role.name == catalogue.GPU_WORKER else {},
        )
        for role in catalogue.roles(alone=_alone(cluster)).values()
    ]
    families = [_family(family, alone=_alone(cluster)) for family in cluster.gpu_families]
    return {f"{role['name']}.json": to_json(role) for role in [*plain, *families]}


def _alone(cluster: Cluster) -> bool:
    """Whether there is no control plane, so that machines are not nodes."""
    return cluster.control_plane is None


def _of_nodes(cluster: Cluster) -> dict[str, Any]:
    """Attributes of GPU machines for functions that the cluster's add-ons take over."""
    if _alone(cluster):
        return {}
    on = cluster.kubernetes.has
    gpu = {
        **({"dcgm": {"exporter": False}} if on("dcgm-exporter") else {}),
        **({"container_toolkit": {"devices": "mounts"}} if on("nvidia-device-plugin") else {}),
        **({"health": {"taint": True}} if on("node-feature-discovery") else {}),
    }
    return {"gpu": gpu} if gpu else {}


def run_lists(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Role → its recipes, with nested roles expanded: for tools without roles."""
    alone = _alone(cluster)
    families = [catalogue.family_role(family.name) for family in cluster.gpu_families]
    return {
        name: catalogue.recipes([f"role[{name}]"], alone=alone)
        for name in sorted([*catalogue.roles(alone=alone), *families])
    }


def _family(family: GpuFamily, *, alone: bool) -> dict[str, Any]:
    kind = "machine" if alone else "Kubernetes node"
    return objects.role(
        catalogue.family_role(family.name),
        f"A {kind} with GPUs of the {family.name.title()} architecture.",
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


def policyfile(cluster: Cluster) -> Files:
    """``Policyfile.rb``, for users who prefer policies to roles and environments. Its names need no quoting:
    the spec and the cookbooks ensure that."""
    return {
        "Policyfile.rb": fill(
            "chef/Policyfile.rb.j2",
            environment=cluster.environment,
            cluster=cluster.name,
            cookbooks=list(versions()),
            run_lists=[
                {"role": role, "recipes": ", ".join(f"'{recipe}'" for recipe in recipes)}
                for role, recipes in run_lists(cluster).items()
            ],
        )
    }
