"""Labels and taints of nodes that several layers use: to set them, to select by them, and to read them."""

from __future__ import annotations

from typing import Final

OURS: Final = "causeway.dev"
"""The domain of our own Kubernetes labels and AWS tags."""

SITE: Final = f"{OURS}/site"
"""The site of a node."""
POOL: Final = f"{OURS}/pool"
CAPACITY: Final = f"{OURS}/capacity-type"
"""How a cloud machine is bought (``market.kind``); ``physical`` for physical machines."""
GPU_MODEL: Final = f"{OURS}/gpu-model"
"""The GPU model, on every node with GPUs."""
GPU_CLASS: Final = f"{OURS}/gpu-class"
INTERCONNECT: Final = f"{OURS}/interconnect"
"""The connection between GPUs of a node: ``nvlink``, ``nvswitch``, else ``ethernet``. Nodes with adapters
that joined before `EFA` existed have ``efa``."""
EFA: Final = f"{OURS}/efa"
"""``true`` on nodes with Elastic Fabric Adapters, which connect GPUs of several nodes."""
GPU_SICK: Final = f"{OURS}/gpu-sick"
"""The taint of a node whose GPUs are sick, and the feature with which its machine reports it."""
GPU_SICK_CONDITION: Final = "GpuSick"
"""The condition with the reason; True while they are sick."""
SCRATCH_MISSING: Final = f"{OURS}/scratch-missing"
"""The same for a node whose scratch space is not mounted."""
GATEWAY: Final = f"{OURS}/gateway"
"""The taint of gateways, which only run flannel and kube-proxy."""
WITHOUT_GPUS: Final = f"{OURS}/without-gpus"
"""Whether a node with GPUs accepts work without GPUs: ``idle``, while no other work needs it, or ``never``,
as a cloud machine is terminated when its GPUs are idle."""

GPU_LIMIT: Final = f"{OURS}/gpu-limit"
"""The taint of ResourceFlavors, never of nodes, that represent the GPUs a user may hold."""
LIMITED_GPUS: Final = f"{OURS}/gpus"
"""The resource with which Kueue counts a user's GPUs in all pools together."""

PLUGIN: Final = "nvidia.com/device-plugin.config"
"""The device plugin's configuration for a node (k8s-device-plugin, README)."""
WHOLE: Final = "whole"
"""The configuration without sharing, which is used by nodes without the label."""
