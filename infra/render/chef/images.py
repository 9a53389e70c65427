"""What a machine is while an image is baked on it: a node object a bake, for Packer's chef-client."""

from __future__ import annotations

from typing import Any

from infra.files import Files
from infra.model import Cluster, to_json
from infra.model.machines import Image
from infra.render.chef import objects


def render(cluster: Cluster) -> Files:
    """``<image>.json``."""
    return {
        f"{image.name}.json": to_json(
            objects.node(
                f"bake-{image.name}", cluster, [f"role[{role}]" for role in image.roles], _normal(image)
            )
        )
        for image in cluster.images
    }


def _normal(image: Image) -> dict[str, Any]:
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
