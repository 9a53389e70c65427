"""Addresses of the services' range that are known beforehand, each the n-th of the range.

Kubernetes gives services that name no address one of these only when all others are used (KEP-3070: at least
the first 16 are kept).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

_RESOLVER: Final = 10
_COREDNS: Final = 11
_INGRESS: Final = 12


def resolver(services: IPv4Network) -> IPv4Address:
    """The DNS server of pods: on a node its cache, elsewhere CoreDNS (kubeadm, ``GetDNSIP``)."""
    return services[_RESOLVER]


def coredns(services: IPv4Network) -> IPv4Address:
    """The upstream of caches, which listen on the resolver's address themselves."""
    return services[_COREDNS]


def ingress(services: IPv4Network) -> IPv4Address:
    """Internal pages."""
    return services[_INGRESS]
