"""Two physical sites with a gateway each and a region: the smallest cluster that has every kind of tunnel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from infra.load import load
from infra.model import Cluster
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

_SPEC: Final = """\
version: 1
name: tiny
domain: tiny.internal
sites:
  east:
    kind: physical
    cidr: 10.200.0.0/24
    gateway: {{addresses: [198.51.100.1{second}], behind_nat: {nat}{east}}}
    nodes: {{gate-e: {{address: 10.200.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}{standby}}}
  west:
    kind: physical
    cidr: 10.200.1.0/24
    gateway: {{addresses: [198.51.100.3], behind_nat: {west_nat}}}
    nodes: {{gate-w: {{address: 10.200.1.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}}}
{region}
network: {{{network}}}
"""
_STANDBY: Final = """\
,
            {node}: {{address: 10.200.0.3, cpus: 4, memory: 8 GiB, roles: [site-gateway]}},
            node: {{address: 10.200.0.9, cpus: 4, memory: 8 GiB}}"""
_TWO: Final = ", standby: {node}, virtual_address: 10.200.0.4"
_REGION: Final = """\
  {name}: {{kind: aws, region: us-west-2, zones: [us-west-2a]}}
images:
  cpu: {{}}
"""


def two_sites(
    folder: Path,
    *,
    nat: bool = False,
    west_nat: bool = False,
    second: bool = False,
    standby: bool = False,
    standby_node: str = "gate-f",
    network: str = "",
    east: str = "",
    region: str = "us-west-2",
) -> Cluster:
    """The cluster, from a spec that is written into ``folder``.

    ``second``: east's gateway has two public addresses; ``standby``: east has two gateways, the second
    one on ``standby_node``. ``nat``, ``west_nat``: a gateway is behind NAT.
    ``east`` and ``network`` are what else stands there; ``region`` is the region's name, empty for none.
    """
    spec = folder / "tiny.yaml"
    text = _SPEC.format(
        nat=str(nat).lower(),
        west_nat=str(west_nat).lower(),
        second=", 198.51.100.2" if second or standby else "",
        standby=_STANDBY.format(node=standby_node) if standby else "",
        network=network,
        east=east + (_TWO.format(node=standby_node) if standby else ""),
        region=_REGION.format(name=region) if region else "",
    )
    spec.write_text(text, encoding="utf-8")
    return resolve(load(spec).spec, Lock(), "tiny")[0]
