"""Elastic Fabric Adapters: the resources of nodes that have some, and the memory reserved for them.

libfabric's provider takes its bounce buffers from huge pages. 5,128 pages of 2 MiB are what EFA's own
installer reserves, and "enough for current Amazon EC2 instance types" (Amazon EKS User Guide, "Run machine
learning training on Amazon EKS with Elastic Fabric Adapter"; libfabric-ci-scripts, ``efa-check.sh``).
"""

from __future__ import annotations

from typing import Final

RESOURCE: Final = "vpc.amazonaws.com/efa"
"""The device plugin's resource for adapters."""
HUGE_PAGES: Final = 5128
"""The number of 2 MiB pages on a machine with adapters."""
HUGE_PAGES_RESOURCE: Final = "hugepages-2Mi"
"""The kubelet's resource for them, in bytes; they are not part of its allocatable memory."""
HUGE_PAGES_MIB: Final = HUGE_PAGES * 2

OF_A_MACHINE: Final = frozenset({RESOURCE, HUGE_PAGES_RESOURCE})
"""Resources of which a machine has the same amount whatever its type: adapters are defined in its launch
template."""
