"""Labels that describe a node and its location, for schedulers, selectors and the autoscaler.

Well-known ones are Kubernetes' own (https://kubernetes.io/docs/reference/labels-annotations-taints/). Ours
begin with ``causeway.dev/``. If a group has several zones or types, the machines set those labels at boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from infra.catalogue import labels
from infra.catalogue.instances import InstanceType
from infra.catalogue.roles import WAYS_IN
from infra.model.kubernetes import Taint
from infra.model.places import Gpus
from infra.model.sharing import sharing_labels

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
GPU_COUNT: Final = f"{labels.OURS}/gpu-count"

ETHERNET: Final = "ethernet"


GATEWAY: Final = Taint(labels.GATEWAY, "", "NoExecute")
"""On gateway nodes, which only route traffic to pods: they run only flannel and kube-proxy."""
_FOR_PODS: Final = frozenset({"control-plane", "worker", "gpu-worker"})


def role_taints(roles: Iterable[str]) -> tuple[Taint, ...]:
    """The taints of a machine with these roles that is for VPN clients, or for users who log in."""
    found = {*roles}
    return (GATEWAY,) if found & WAYS_IN and not found & _FOR_PODS else ()


def place_labels(
    site: str, region: str, zones: Sequence[str] = (), types: Sequence[str] = ()
) -> dict[str, str]:
    """The labels of a node's location and instance type, as far as they are the same for all nodes of a
    group."""
    return {
        labels.SITE: site,
        REGION: region,
        **({ZONE: zones[0]} if len(zones) == 1 else {}),
        **({INSTANCE_TYPE: types[0]} if len(types) == 1 else {}),
    }


def gpu_labels(gpus: Gpus | None, *, counted: bool = True, owned: bool = False) -> dict[str, str]:
    """The labels of GPUs, and whether work without GPUs may use idle ones. ``counted``: whether every
    machine has this number; ``owned``: whether an idle machine costs nothing."""
    if gpus is None:
        return {}
    return {
        labels.GPU_MODEL: gpus.model,
        f"{labels.OURS}/gpu-family": gpus.family,
        **({GPU_COUNT: str(gpus.count)} if counted else {}),
        f"{labels.OURS}/gpu-memory-mib": str(gpus.memory_mib),
        labels.GPU_CLASS: gpus.gpu_class,
        labels.WITHOUT_GPUS: "idle" if owned else "never",
    }


def interconnect_label(how: str = ETHERNET) -> dict[str, str]:
    """The label of the connection between GPUs of one machine: ``ethernet``, ``nvlink``, ``nvswitch``."""
    return {labels.INTERCONNECT: how}


def efa_label(*, efa: bool) -> dict[str, str]:
    """The label of nodes with Elastic Fabric Adapters, which connect GPUs of several nodes."""
    return {labels.EFA: "true"} if efa else {}


def interconnect(types: Sequence[InstanceType]) -> str:
    """The connection between GPUs of one machine, if it is the same in all types."""
    joined = {kind.interconnect for kind in types}
    return (joined.pop() if len(joined) == 1 else None) or ETHERNET


def pool_labels(
    pool: str, market: str, gpus: Gpus | None, *, joined: str, efa: bool, counted: bool = True
) -> dict[str, str]:
    """Labels of a pool's nodes that do not depend on their site. ``joined``: the connection between GPUs of
    one machine."""
    return {
        labels.POOL: pool,
        labels.CAPACITY: market,
        **interconnect_label(joined),
        **efa_label(efa=efa),
        **gpu_labels(gpus, counted=counted),
        **sharing_labels(gpus),
    }


def instance_labels(site: str, region: str, zone: str, kind: str) -> dict[str, str]:
    """Labels of a single cloud machine."""
    return place_labels(site, region, (zone,), (kind,))
