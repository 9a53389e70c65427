"""Elastic Fabric Adapters: what a node with some offers to pods, and what its machine sets aside for them.

libfabric's provider takes its bounce buffers from huge pages. 5,128 pages of 2 MiB are what EFA's own
installer reserves, and "enough for current Amazon EC2 instance types" (Amazon EKS User Guide, "Run machine
learning training on Amazon EKS with Elastic Fabric Adapter"; libfabric-ci-scripts, ``efa-check.sh``).
"""

from __future__ import annotations

from typing import Final

RESOURCE: Final = "vpc.amazonaws.com/efa"
"""What the device plugin counts adapters as."""
HUGE_PAGES: Final = 5128
"""Of 2 MiB, on a machine that has adapters."""
HUGE_PAGES_RESOURCE: Final = "hugepages-2Mi"
"""What the kubelet counts them as, in bytes; they are not a part of its memory for pods."""
HUGE_PAGES_MIB: Final = HUGE_PAGES * 2

OF_A_MACHINE: Final = frozenset({RESOURCE, HUGE_PAGES_RESOURCE})
"""What a machine has as much of whatever its type: adapters are attached by its launch template."""
