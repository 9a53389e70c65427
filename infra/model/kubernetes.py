"""The Kubernetes cluster over all sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A class of work."""

    name: str
    value: int
    gpu_class: Literal["old", "standard", "new"] | None
    preempts: bool


@dataclass(frozen=True, slots=True)
class AddOn:
    """A part of the cluster that can be left out."""

    name: str
    enabled: bool
    version: str | None
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The cluster over all sites."""

    version: str
    backend: Literal["vxlan", "host-gw", "wireguard"]
    pods_per_node: int
    labels: Mapping[str, str]
    priority_classes: tuple[PriorityClass, ...]
    addons: tuple[AddOn, ...]
    audit: bool
    snapshot_seconds: int
