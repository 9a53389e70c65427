"""Address ranges that are not on the public internet."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final

NOT_INTERNET: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "224.0.0.0/3",
        ),
    )
)
"""IANA's special-purpose and multicast addresses. They include 169.254.169.254, which serves an instance's
credentials."""
