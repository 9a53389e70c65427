"""Packer: one static template, and the values and checks of each image.

::

    <image>/image.pkr.hcl         the template, the same for all (templates/packer/static)
    <image>/plugins.pkr.hcl       plugins that Packer 1.7 and later installs
    <image>/image.pkrvars.json    its values
    <image>/checks.json           variables of the checks that are run on the build instance (packer/checks)
"""

from __future__ import annotations

from typing import Any, Final

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs, to_json
from infra.model.machines import Image
from infra.render.templating import copied

_TARGET: Final = "packer"

_KUBERNETES: Final = frozenset({"control-plane", "worker", "gpu-worker"})
"""Roles that install the kubelet and containerd."""

_USER: Final = "ubuntu"
"""The user of Canonical's images (https://documentation.ubuntu.com/aws/)."""


def render(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Files:
    """``<image>/<file>`` → text, for each image; nothing for a cluster without AWS regions."""
    if not cluster.regions:
        return {}
    return merge(
        under(image.name, merge([copied(_TARGET), _own(cluster, image)])) for image in cluster.images
    )


def _own(cluster: Cluster, image: Image) -> Files:
    return {
        "image.pkrvars.json": to_json(literal(_values(cluster, image))),
        "checks.json": to_json(_checks(cluster, image)),
    }


def _values(cluster: Cluster, image: Image) -> dict[str, Any]:
    """The template's variables, except those of a single run."""
    client = cluster.client
    return {
        "image": image.name,
        "region": cluster.regions[0].region,
        "regions": sorted({region.region for region in cluster.regions}),
        "source_owner": image.source.owner,
        "source_name": image.source.name,
        "architecture": image.architecture,
        "instance_types": [image.build_type],
        "root_disk_gib": image.root_disk_gib,
        "tags": {
            **cluster.tags,
            "role": "image",
            "image": image.name,
        },
        "ssh_username": _USER,
        "client_name": client.name,
        "client_version": client.version,
        "client_sha256": client.sha256.get(image.debian_architecture, ""),
    }


def literal(value: Any) -> Any:
    """Values with texts escaped so that Packer, which evaluates most of them as Go templates, returns them
    unchanged."""
    if isinstance(value, dict):
        return {key: literal(one) for key, one in value.items()}
    if isinstance(value, list):
        return [literal(one) for one in value]
    return value.replace("{{", '{{"{{"}}') if isinstance(value, str) else value


def _checks(cluster: Cluster, image: Image) -> dict[str, Any]:
    """The files of ``packer/checks`` that apply to the image, and their variables."""
    kubernetes = ["kubernetes"] if _KUBERNETES & set(image.roles) else []
    adapters = any(pool.efa_interfaces for pool in cluster.pools if pool.image == image.name)
    return {
        "checks": ["base", *kubernetes, *(["gpu"] if image.gpu else []), *(["efa"] if adapters else [])],
        "ubuntu": image.ubuntu,
        "kubernetes": cluster.kubernetes.version,
        "driver": image.gpu.driver if image.gpu else None,
    }
