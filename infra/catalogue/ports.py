"""Ports that no pod connects to, wherever it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NFS: Final = 2049
"""Of NFS servers and of EFS's mount targets. They believe a client's word on who it is, which a machine's
kernel gives truthfully and a program in a pod need not."""

OVERLAY: Final[Mapping[str, range]] = {
    "vxlan": range(8472, 8473),
    "host-gw": range(0),
    "wireguard": range(51820, 51822),
}
"""flannel's backends → the UDP ports they use (flannel, Documentation/backends.md). A machine unpacks what
comes to them, and sends it on as if it were a neighbour's."""


def refused(backend: str) -> Mapping[str, tuple[int, ...]]:
    """Protocol → the ports, in order."""
    return {"tcp": (NFS,), "udp": (NFS, *OVERLAY[backend])}
