"""The pod network: its MTU, its routes, and the allowed egress of pods."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import collapse_addresses
from typing import Final

from infra.catalogue.ports import OVERLAY, refused
from infra.model.kubernetes import AllowedEgress, Overlay, PodEgress
from infra.model.machines import Instance
from infra.model.places import PhysicalSite, Port, Region
from infra.schema import Spec
from infra.schema.lines import POD_OVERHEAD, most_for_pods, narrowest

_INTERFACES: Final = {"vxlan": "flannel.1", "host-gw": None, "wireguard": "flannel-wg"}
"""The name of flannel's interface; with VXLAN it includes the network identifier, 1."""

_TAKEN_OFF: Final = {"vxlan": 50, "host-gw": 0, "wireguard": 80}
"""Bytes that flannel subtracts from the MTU it is given (pkg/backend, ``encapOverhead`` and ``overhead``).
WireGuard's value allows for IPv6 between nodes, which is not used."""


def overlay_ports(backend: str) -> tuple[Port, ...]:
    """The ports that machines' firewalls open to each other for flannel."""
    used = OVERLAY[backend]
    return (Port(backend, "udp", used[0], used[-1]),) if used else ()


def resolve_overlay(
    spec: Spec,
    sites: Sequence[PhysicalSite],
    gateways: Sequence[Instance],
) -> Overlay:
    """How packets of pods get from node to node."""
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
        routers=_routers(gateways),
    )


def _routers(gateways: Sequence[Instance]) -> dict[str, str]:
    """Region → its access gateway, which routes the region's pod traffic: unlike machines of node pools, it
    is permanent.

    The first of several, as a VPC route has one target.
    """
    return dict(sorted((each.site, each.hostname) for each in reversed(gateways)))


def resolve_pod_egress(spec: Spec, regions: Sequence[Region], sites: Sequence[PhysicalSite]) -> PodEgress:
    """What pods may connect to. It names whole networks rather than machines, so that machines added later
    are covered, and images baked earlier know them."""
    return PodEgress(
        machines=tuple(collapse_addresses([*(each.vpc for each in regions), *(each.lan for each in sites)])),
        endpoints=tuple(
            collapse_addresses(
                region.vpc
                for region in regions
                if any(endpoint.kind == "interface" for endpoint in region.endpoints)
            )
        ),
        refused=refused(spec.kubernetes.pods.backend),
        allowed=tuple(
            AllowedEgress(each.cidr, each.protocol, tuple(sorted(set(each.ports))))
            for each in spec.kubernetes.pods.egress
        ),
    )
