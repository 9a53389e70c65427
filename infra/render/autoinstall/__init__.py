"""Ubuntu's autoinstall: a seed for the unattended installation of each physical machine with a MAC address.

::

    <site>/<node>/{user-data,meta-data,network-config}   a NoCloud seed: by HTTP, or on a USB stick as CIDATA
    <site>/mac-<MAC>.ipxe                                the boot script of a machine
    <site>/boot.ipxe, <site>/dnsmasq.conf                the chain to that script

The formats are those of the Ubuntu installer's "Autoinstall configuration reference manual". There are no
passwords: the only account, ``causeway``, accepts the keys of users who may become root.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.places import PhysicalNode, PhysicalSite
from infra.render.autoinstall import seeds
from infra.render.templating import copied, fill

_TARGET: Final = "autoinstall"

HTTP_PORT: Final = 8080
"""The port that serves the site's folder, on the machine that runs dnsmasq."""


def render(cluster: Cluster, _: Outputs = NO_OUTPUTS) -> Files:
    """``<site>/…`` → text, for each site with autoinstall enabled and a machine whose MAC address is
    known."""
    return merge(
        under(site.name, _site(cluster, site, nodes))
        for site in cluster.sites
        if site.autoinstall and (nodes := [node for node in site.nodes if node.mac is not None])
    )


def _site(cluster: Cluster, site: PhysicalSite, nodes: list[PhysicalNode]) -> Files:
    return merge(
        [
            copied(_TARGET),
            _netboot(site, nodes),
            *(under(node.name, seeds.render(cluster, site, node)) for node in nodes),
        ]
    )


def _netboot(site: PhysicalSite, nodes: Iterable[PhysicalNode]) -> Files:
    """The network boot of machines, from dnsmasq to iPXE to the installer: ``dnsmasq.conf``, and
    ``mac-<MAC>.ipxe`` for each machine."""
    nodes = list(nodes)
    scripts = {
        f"mac-{_hex(node.mac)}.ipxe": fill(
            f"{_TARGET}/node.ipxe.j2", node=node.name, ubuntu=node.ubuntu, port=HTTP_PORT
        )
        for node in nodes
    }
    conf = fill(f"{_TARGET}/dnsmasq.conf.j2", site=site.name, lan=site.lan, port=HTTP_PORT, nodes=nodes)
    return {"dnsmasq.conf": conf, **scripts}


def _hex(mac: str | None) -> str:
    """A MAC address in the format of iPXE's ``hexraw``: ``0cc47a0a000b``."""
    return (mac or "").replace(":", "")
