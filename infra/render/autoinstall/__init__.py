"""Ubuntu's autoinstall: for each physical machine with a MAC address a seed, by which it installs itself.

::

    <site>/<node>/{user-data,meta-data,network-config}   a NoCloud seed: over HTTP, or on a stick as CIDATA
    <site>/mac-<MAC>.ipxe                                what a machine does that starts from the network
    <site>/boot.ipxe, <site>/dnsmasq.conf                how it gets there

The forms are those of the Ubuntu installer's "Autoinstall configuration reference manual". Nobody has a
password: the one account, ``causeway``, lets in the keys of those who may become root.
"""

from __future__ import annotations

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.places import PhysicalNode, PhysicalSite
from infra.render.autoinstall import netboot, seeds
from infra.render.templating import copied

_TARGET = "autoinstall"


def render(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Files:
    """``<site>/…`` → text, for each site that wants it and has a machine whose MAC address is known."""
    return merge(
        under(site.name, _site(cluster, site, nodes))
        for site in cluster.sites
        if site.autoinstall and (nodes := [node for node in site.nodes if node.mac is not None])
    )


def _site(cluster: Cluster, site: PhysicalSite, nodes: list[PhysicalNode]) -> Files:
    return merge(
        [
            copied(_TARGET),
            netboot.render(site, nodes),
            *(under(node.name, seeds.render(cluster, site, node)) for node in nodes),
        ]
    )
