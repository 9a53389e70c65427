"""The MTU of each kind of link, and inside each kind of tunnel. Sizes in bytes."""

from __future__ import annotations

from typing import Final

IPV4: Final = 20
"""A header without options (RFC 791)."""
UDP: Final = 8
TCP: Final = 20
"""A header without options (RFC 9293)."""

_ESP: Final = 8
"""Security parameters index and sequence number (RFC 4303)."""
_GCM_IV: Final = 8
_GCM_ICV: Final = 16
"""AES-GCM's explicit nonce and check value (RFC 4106)."""
_ESP_TRAILER: Final = 2
"""Pad length and next header, encrypted with the packet, and padded together to a multiple of four bytes."""
_ESP_ALIGNED: Final = 4

VPC: Final = 9001
"""Within a VPC (EC2 User Guide, "Network MTU for your EC2 instance"; for types released since 2013)."""
BETWEEN_REGIONS: Final = 8500
"""Between regions, the same in both directions: over VPC peering (EC2 User Guide, "Network MTU"; jumbo
frames since March 2025), and through transit gateways (Transit Gateways Guide, "Transit gateway MTU")."""
AWS_VPN: Final = 1500
"""The MTU at AWS's end of a VPN connection, which does not support jumbo frames (EC2 User Guide, "Network
MTU")."""

VXLAN: Final = 50
"""Overhead of VXLAN over IPv4: Ethernet 14, VXLAN 8, UDP 8, IPv4 20 (RFC 7348)."""
WIREGUARD: Final = 60
"""Overhead of WireGuard over IPv4: type and receiver 8, counter 8, tag 16, UDP 8, IPv4 20 (WireGuard's
paper, 5.4.6). It pads to 16 bytes, but never beyond the interface's MTU."""

_IPV6_MORE: Final = 20
"""How much longer IPv6's header is than IPv4's (RFC 8200)."""

_OPENVPN: Final = 24
"""Overhead of a data packet over UDP: opcode and peer id 4, packet id 4, authentication tag 16 (OpenVPN's
wire protocol, P_DATA_V2 with an AEAD cipher)."""


def esp(path: int, *, encapsulated: bool) -> int:
    """The MTU inside an AES-GCM tunnel over a path with an MTU of ``path``: 1446 for 1500, 1438 in UDP.

    The same values as AWS's (Site-to-Site VPN User Guide, "Best practices for a customer gateway device").
    """
    sealed = path - IPV4 - (UDP if encapsulated else 0) - _ESP - _GCM_IV - _GCM_ICV
    return sealed // _ESP_ALIGNED * _ESP_ALIGNED - _ESP_TRAILER


def openvpn(path: int) -> int:
    """The MTU inside OpenVPN over UDP on a path with an MTU of ``path``: 1440 for 1492."""
    return path - IPV4 - UDP - _OPENVPN


def wireguard(path: int) -> int:
    """The MTU inside WireGuard on a path with an MTU of ``path``: 1412 for 1492.

    Mobile networks may carry IPv4 as IPv6 (464XLAT, RFC 6877), whose header is longer.
    """
    return path - WIREGUARD - _IPV6_MORE


def mss(mtu: int) -> int:
    """The largest TCP segment for an MTU of ``mtu``."""
    return mtu - IPV4 - TCP
