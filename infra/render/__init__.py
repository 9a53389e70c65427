"""Cluster → Files, one renderer a target. Pure: nothing is read but templates, nothing is written.

Each renderer is a module of its own, imported when it is used::

    autoinstall seeds by which physical machines install themselves, and how they start from the network
    chef        roles, environment, data bags and nodes of the Chef repository that cookbooks run with
    kubernetes  kubeadm's configuration, and every object of the cluster that is ours
    openvpn     OpenVPN, nftables and dnsmasq on the servers that laptops come to
    packer      the template that bakes a machine image, its values and its checks
    strongswan  strongSwan, FRR and nftables on the gateways of physical sites
    terraform   the root module's wiring, its values, and the static modules
    topology    the whole cluster as a graph for Graphviz; one HTML page and an SVG of what it draws
    iam         policies of those who work on the environment
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
