"""A machine's seed: the answers to the installer's questions."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from infra.files import Files
from infra.model import Cluster
from infra.model.places import PhysicalNode, PhysicalSite
from infra.render.autoinstall import disks
from infra.render.templating import fill

_TEMPLATES: Final = "autoinstall"

_USUAL: Final = 1500
"""Ethernet's MTU, used if the spec does not set one."""

_UNLIKE_JSON: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def render(cluster: Cluster, site: PhysicalSite, node: PhysicalNode) -> Files:
    """``user-data``, ``meta-data`` and ``network-config``."""
    system = tuple(disk.device for disk in node.disks if disk.use == "system")
    values: dict[str, object] = {key: quoted(value) for key, value in _values(cluster, site, node).items()}
    values["mtu"] = None if site.mtu == _USUAL else site.mtu
    # The disk to erase is never guessed: if the spec does not name it, the installer asks at the console.
    values["interactive"] = None if system else quoted(["storage"])
    layout = disks.layout(system, node.system)
    values["layout"] = quoted(layout) if layout else None
    values["actions"] = [quoted(action) for action in disks.actions(system, node.system)]
    names = ("user-data", "meta-data", "network-config")
    return {name: fill(f"{_TEMPLATES}/{name}.j2", node=node.name, site=site.name, **values) for name in names}


def quoted(value: object) -> str:
    """A value as YAML on one line: as JSON, which YAML contains (YAML 1.2, 1.3), with escapes for characters
    that YAML takes as line breaks or does not allow."""
    return _UNLIKE_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _values(cluster: Cluster, site: PhysicalSite, node: PhysicalNode) -> dict[str, Any]:
    admin = cluster.access.admin
    return {
        "instance": f"{cluster.environment}-{node.name}",
        "hostname": node.name,
        "fqdn": node.fqdn,
        "domain": cluster.domain,
        "mac": node.mac,
        "address": f"{node.address}/{site.lan.prefixlen}",
        "router": str(node.router),
        "resolvers": [str(each) for each in node.resolvers],
        "login": admin.login,
        "keys": list(admin.ssh_keys),
    }
