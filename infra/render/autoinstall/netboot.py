"""How machines of a site start from the network: dnsmasq leads to iPXE, iPXE to the installer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from infra.files import Files
from infra.model.places import PhysicalNode, PhysicalSite
from infra.render.templating import fill

_TEMPLATES: Final = "autoinstall"

HTTP_PORT: Final = 8080
"""Where the site's folder is served from, on the machine that runs dnsmasq."""


def render(site: PhysicalSite, nodes: Iterable[PhysicalNode]) -> Files:
    """``dnsmasq.conf``, and ``mac-<MAC>.ipxe`` for each machine."""
    nodes = list(nodes)
    scripts = {
        f"mac-{_hex(node.mac)}.ipxe": fill(
            f"{_TEMPLATES}/node.ipxe.j2", node=node.name, ubuntu=node.ubuntu, port=HTTP_PORT
        )
        for node in nodes
    }
    conf = fill(f"{_TEMPLATES}/dnsmasq.conf.j2", site=site.name, lan=site.lan, port=HTTP_PORT, nodes=nodes)
    return {"dnsmasq.conf": conf, **scripts}


def _hex(mac: str | None) -> str:
    """As iPXE's ``hexraw`` has it: ``0cc47a0a000b``."""
    return (mac or "").replace(":", "")
