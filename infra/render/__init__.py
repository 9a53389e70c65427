"""Cluster → Files, one renderer per target. Pure: only templates are read, and nothing is written.

Each renderer is a module of its own, imported on use::

    autoinstall installer seeds of physical machines, and their network boot
    chef        roles, environment, data bags and nodes of the Chef repository that cookbooks run with
    kubernetes  kubeadm's configuration, and all of the cluster's own objects
    openvpn     OpenVPN, nftables and dnsmasq on VPN servers
    packer      the template of machine images, with values and checks
    strongswan  strongSwan, FRR and nftables on the gateways of physical sites
    terraform   the root module's wiring, its values, and the static modules
    topology    the whole cluster as a graph for Graphviz; an HTML page and an SVG
    iam         policies of users and CI jobs that work on the environment
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs

Renderer: TypeAlias = Callable[[Cluster, Outputs], Files]


def _renderer(target: str) -> Renderer:
    def render(cluster: Cluster, outputs: Outputs) -> Files:
        module = import_module(f"infra.render.{target}")
        files: Files = module.render(cluster, outputs)
        return files

    return render


RENDERERS: Final[Mapping[str, Renderer]] = MappingProxyType(
    {
        target: _renderer(target)
        for target in ("autoinstall", "chef", "kubernetes", "openvpn", "packer", "strongswan", "terraform")
    }
)
"""Target → its renderer, whose files go to ``build/<env>/<target>/``."""


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> dict[str, str]:
    """Everything in ``build/<env>/``, by path; without outputs, what is known before apply."""
    from infra.model import to_json

    targets = [under(target, renderer(cluster, outputs)) for target, renderer in RENDERERS.items()]
    return merge([{"cluster.json": to_json(cluster)}, *targets])
