"""Fixed addresses in the service range, each at a fixed offset.

Kubernetes assigns these dynamically only when all others are used (KEP-3070: at least the first 16 are kept
free).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

_RESOLVER: Final = 10
_COREDNS: Final = 11
_INGRESS: Final = 12


def resolver(services: IPv4Network) -> IPv4Address:
    """The DNS server of pods: on a node its DNS cache, elsewhere CoreDNS (kubeadm, ``GetDNSIP``)."""
    return services[_RESOLVER]


def coredns(services: IPv4Network) -> IPv4Address:
    """CoreDNS as the upstream of the caches, which themselves listen on the resolver's address."""
    return services[_COREDNS]


def ingress(services: IPv4Network) -> IPv4Address:
    """The ingress for internal pages."""
    return services[_INGRESS]
