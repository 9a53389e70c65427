"""Labels and taints of nodes that more than one layer goes by: who writes them, who selects by them, and who
reads them back."""

from __future__ import annotations

from typing import Final

OURS: Final = "causeway.dev"
"""The domain of our own Kubernetes labels and AWS tags."""

SITE: Final = f"{OURS}/site"
"""Where a node is."""
POOL: Final = f"{OURS}/pool"
CAPACITY: Final = f"{OURS}/capacity-type"
"""How a machine in the cloud is paid for (``market.kind``); ``physical`` for one of ours."""
GPU_MODEL: Final = f"{OURS}/gpu-model"
"""On every node with GPUs."""
GPU_CLASS: Final = f"{OURS}/gpu-class"
INTERCONNECT: Final = f"{OURS}/interconnect"
"""What connects the GPUs within a node: ``nvlink``, ``nvswitch``, else ``ethernet``. On nodes with adapters
that joined while there was no `EFA` it is ``efa``."""
EFA: Final = f"{OURS}/efa"
"""``true`` on nodes with Elastic Fabric Adapters, by which GPUs of several nodes reach each other."""
GPU_SICK: Final = f"{OURS}/gpu-sick"
"""The taint of a node whose GPUs are sick, and the feature by which its machine says so."""
GPU_SICK_CONDITION: Final = "GpuSick"
"""The condition that says why; True while they are."""
SCRATCH_MISSING: Final = f"{OURS}/scratch-missing"
"""The same of a node whose scratch space is not mounted."""
GATEWAY: Final = f"{OURS}/gateway"
"""The taint of ways in: what runs there is flannel and kube-proxy."""
WITHOUT_GPUS: Final = f"{OURS}/without-gpus"
"""Whether a node with GPUs takes work without a use for them: ``idle``, as long as nobody else wants it, or
``never``, as a machine in the cloud goes away when its GPUs are idle."""

GPU_LIMIT: Final = f"{OURS}/gpu-limit"
"""The taint of ResourceFlavors, never of nodes, that stand for the GPUs a user may hold."""
LIMITED_GPUS: Final = f"{OURS}/gpus"
"""The resource by which Kueue counts a user's GPUs of all pools together."""

PLUGIN: Final = "nvidia.com/device-plugin.config"
"""Which of the device plugin's configurations a node takes (k8s-device-plugin, README)."""
WHOLE: Final = "whole"
"""The configuration by which a GPU is one pod's, and what a node takes that has no such label."""
