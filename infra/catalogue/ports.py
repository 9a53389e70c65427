"""Ports that no pod may connect to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NFS: Final = 2049
"""The port of NFS servers and EFS mount targets. They trust the client's claim of its user, which a
machine's kernel sends truthfully, but a program in a pod may not."""

OVERLAY: Final[Mapping[str, range]] = {
    "vxlan": range(8472, 8473),
    "host-gw": range(0),
    "wireguard": range(51820, 51822),
}
"""flannel's backends → the UDP ports they use (flannel, Documentation/backends.md). A machine decapsulates
packets sent to them, and forwards the contents as if they came from a node."""


def refused(backend: str) -> Mapping[str, tuple[int, ...]]:
    """Protocol → the ports, sorted."""
    return {"tcp": (NFS,), "udp": (NFS, *OVERLAY[backend])}
