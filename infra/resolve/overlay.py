"""The pods' network between nodes: how large its packets are, and by which way they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.model.kubernetes import Overlay
from infra.model.machines import ControlPlane, Instance
from infra.model.places import PhysicalSite, Port
from infra.spec import Spec
from infra.spec.lines import POD_OVERHEAD, most_for_pods, narrowest

PORTS: Final[Mapping[str, tuple[Port, ...]]] = {
    "vxlan": (Port("vxlan", "udp", 8472, 8472),),
    "host-gw": (),
    "wireguard": (Port("wireguard", "udp", 51820, 51821),),
}
"""flannel's backends → the ports they use (flannel, Documentation/backends.md)."""

_INTERFACES: Final = {"vxlan": "flannel.1", "host-gw": None, "wireguard": "flannel-wg"}
"""What flannel calls its interface: with VXLAN by its network identifier, which is 1."""

_TAKEN_OFF: Final = {"vxlan": 50, "host-gw": 0, "wireguard": 80}
"""What flannel takes off the size it is told (pkg/backend, ``encapOverhead`` and ``overhead``): WireGuard's
is for IPv6 between nodes, which we do not have."""


def resolve_overlay(
    spec: Spec,
    sites: Sequence[PhysicalSite],
    masters: ControlPlane | None,
    gateways: Sequence[Instance],
) -> Overlay:
    """How pods' packets get from node to node."""
    pods = spec.kubernetes.pods
    size = pods.mtu or most_for_pods(spec)
    return Overlay(
        backend=pods.backend,
        interface=_INTERFACES[pods.backend],
        mtu=size,
        overhead=POD_OVERHEAD[pods.backend],
        told=size + _TAKEN_OFF[pods.backend],
        why="kubernetes.pods.mtu" if pods.mtu else narrowest(spec).name,
        direct=tuple(site.name for site in sites) if pods.backend == "vxlan" else (),
        routers=_routers(masters, gateways),
    )


def _routers(masters: ControlPlane | None, gateways: Sequence[Instance]) -> dict[str, str]:
    """A region's access gateway, which forwards for a living; without one, the first master.

    Machines of node pools come and go, and a route needs one that stays.
    """
    found = {}
    if masters is not None:
        found[masters.region] = masters.masters[0].hostname
    # Of several in a region, the first: routes of a VPC have one way each.
    for gateway in reversed(gateways):
        found[gateway.region] = gateway.hostname
    return dict(sorted(found.items()))
