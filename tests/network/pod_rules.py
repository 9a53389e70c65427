"""What nodes' rules refuse to pods, as the cookbook ``kubernetes`` writes it on a machine of a cluster."""

from __future__ import annotations

import shutil
from typing import Any

from cookbooks.kitchen import render
from network.node import Node
from strategies.outputs import outputs_for

from infra.model import Cluster
from infra.render.chef.environment import attributes

FILE = "/etc/causeway/pods.nft"


def load(node: Node, cluster: Cluster, *, master: bool = False) -> None:
    """The rules in force on a node of the lab, as its unit loads them."""
    node.write(FILE, text(cluster, master=master))
    node.check("nft", "--file", FILE)


def unload(node: Node) -> None:
    """As before Chef first ran."""
    node.run("nft", "delete", "table", "inet", "causeway-pods")


def text(cluster: Cluster, *, master: bool = False, **changed: Any) -> str:
    """The file. ``changed``: variables of the template that are others."""
    ruby = shutil.which("ruby")
    assert ruby is not None, "ruby is missing (package ruby)"
    made = attributes(cluster, outputs_for(cluster))
    of_all, plane = made["causeway"], cluster.control_plane
    assert plane is not None
    variables = {
        "pods": of_all["pods"],
        "services": of_all["services"],
        "dns": of_all["cluster_dns"],
        "api_port": plane.port,
        "master": master,
        **made["kubernetes"]["egress"],
        **changed,
    }
    return render(ruby, "kubernetes", "pods.nft.erb", variables=variables)
