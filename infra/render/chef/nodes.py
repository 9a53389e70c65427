"""A node object for each named machine, with its role and hardware; and one for each image, for chef-client
during a bake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.catalogue import roles
from infra.files import Files
from infra.model import Cluster, to_json
from infra.model.machines import Image, Instance
from infra.model.places import Gpus, PhysicalNode, PhysicalSite
from infra.render.chef import objects
from infra.render.kubernetes import kubelet

_SSH_NODE: Final = "ssh-node"


def render(cluster: Cluster) -> Files:
    """``<node>.json``, by the machine's short name in DNS."""
    groups = [group.name for group in cluster.access.groups]
    physical = {
        node.name: objects.node(
            node.name,
            cluster,
            node.run_list,
            _normal(site, node, groups) | _taking_runs(node, alone=cluster.control_plane is None),
        )
        for site in cluster.sites
        for node in site.nodes
    }
    access = {fqdn: list(each.groups) for each in cluster.access.ssh for fqdn in each.nodes}
    cloud = {
        each.hostname: objects.node(
            each.hostname,
            cluster,
            each.run_list,
            _normal_instance(each, cluster.image(each.image), access),
        )
        for each in cluster.instances
    }
    return {f"{name}.json": to_json(made) for name, made in {**physical, **cloud}.items()}


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
    if roles.makes_node(node.roles):
        normal["kubernetes"] = {
            "labels": dict(node.labels),
            "taints": [each.text for each in node.taints],
            "node_ip": str(node.address),
            "reserved": {
                "kube": kubelet.quantities(node.reserved.kube),
                "system": kubelet.quantities(node.reserved.system),
            },
        }
    if node.gpus is not None:
        normal["gpu"] = _gpu(node.gpus)
    if _SSH_NODE in node.roles:
        normal["ssh_node"] = {"groups": groups}
    return normal


def _taking_runs(node: PhysicalNode, *, alone: bool) -> dict[str, Any]:
    """Attributes that disable the firewall of ``direct_runs`` on a gateway, where it would drop forwarded
    traffic. ``alone``: whether there is no cluster."""
    recipes = roles.recipes(node.run_list, alone=alone)
    guarded = "direct_runs" in recipes and roles.GATEWAYS.intersection(node.roles)
    return {"direct_runs": {"firewall": False}} if guarded else {}


def _normal_instance(instance: Instance, image: Image, access: Mapping[str, list[str]]) -> dict[str, Any]:
    """The attributes that ``/usr/local/lib/causeway/boot`` sets on an image's instances; AWS assigns the
    address."""
    normal: dict[str, Any] = {
        "causeway": {
            "name": instance.hostname,
            "fqdn": instance.fqdn,
            "site": instance.site,
            "role": instance.role,
            "roles": [instance.role],
            "baking": False,
        },
        "base": {"packages": list(image.packages)},
    }
    normal["kubernetes"] = {
        "labels": dict(instance.labels),
        "taints": [each.text for each in instance.taints],
    }
    if instance.gpus is not None and image.gpu is not None:
        normal["gpu"] = _gpu(instance.gpus, image.gpu.cuda, fabric_manager=image.gpu.fabric_manager)
    if instance.role == _SSH_NODE:
        normal["ssh_node"] = {"groups": access[instance.fqdn]}
    return normal


def _gpu(gpus: Gpus, cuda: str | None = None, *, fabric_manager: bool = False) -> dict[str, Any]:
    return {
        "driver": gpus.driver,
        "cuda": cuda,
        "open_kernel_modules": gpus.open_kernel_modules,
        "fabric_manager": fabric_manager,
        "family": gpus.family,
        "model": gpus.model,
        "count": gpus.count,
    }


def bakes(cluster: Cluster) -> Files:
    """``<image>.json``."""
    return {
        f"{image.name}.json": to_json(
            objects.node(
                f"bake-{image.name}", cluster, [f"role[{role}]" for role in image.roles], _normal_bake(image)
            )
        )
        for image in cluster.images
    }


def _normal_bake(image: Image) -> dict[str, Any]:
    normal: dict[str, Any] = {
        "causeway": {
            "baking": True,
            "image": image.name,
            "name": f"bake-{image.name}",
            "role": image.roles[-1],
            "roles": list(image.roles),
        },
        "base": {"packages": list(image.packages)},
    }
    if image.gpu is not None:
        normal["gpu"] = {
            "driver": image.gpu.driver,
            "cuda": image.gpu.cuda,
            "open_kernel_modules": image.gpu.open_kernel_modules,
            "fabric_manager": image.gpu.fabric_manager,
        }
    return normal
