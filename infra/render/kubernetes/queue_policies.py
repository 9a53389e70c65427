"""Policies that change workloads before they are queued, and that enforce limits of users; their texts state
the reasons (``templates/kubernetes/after/queues``)."""

from __future__ import annotations

from typing import Any, Final

from infra.model import Cluster
from infra.render.kubernetes.manifests import Manifest, filled, joined, mutating_api
from infra.render.kubernetes.scheduling import GPU_TAINT, default_class, gpus_of_classes
from infra.render.kubernetes.tenants import members

PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
_GPUS: Final = GPU_TAINT
"""The GPU resource, which the taint is named after."""


def policies(cluster: Cluster) -> Manifest:
    """The mutating policies; and, if users' GPUs are limited, the validating ones."""
    pools, classes = sizes(cluster), cluster.kubernetes.priority_classes
    shares = _shares(cluster)
    written = filled(
        "after/queues/policy",
        **shares,
        api=mutating_api(cluster.kubernetes.version),
        pools=list(pools),
        gpus_of_pools={name: gpus for name, (gpus, _) in pools.items()},
        sites_of_pools={name: sites for name, (_, sites) in pools.items()},
        regions=sorted(each.name for each in cluster.regions),
        # Work of a class that allows all GPU models is not restricted.
        gpus_of_classes={name: gpus for name, gpus in gpus_of_classes(classes).items() if len(gpus) < 3},
        default=default_class(classes),
    )
    return joined([written, filled("after/queues/limits", **shares)]) if shares["holders"] else written


def _shares(cluster: Cluster) -> dict[str, Any]:
    """``holders``: namespace of a group with a limit → login of a member → that user's namespace;
    ``limited``: the namespaces of these users."""
    holders = {
        group.namespace: {user.login: user.namespace for user in members(cluster, group)}
        for group in cluster.access.groups
        if group.gpu_limit_per_user is not None
    }
    return {
        "holders": holders,
        "limited": sorted({name for some in holders.values() for name in some.values()}),
    }


def sizes(cluster: Cluster) -> dict[str, tuple[int, list[str]]]:
    """Pool → the GPUs of one of its nodes, and its sites."""
    found = {}
    for pool in sorted(cluster.pools, key=lambda each: each.name):
        groups = [group for group in pool.groups if group.max]
        gpus = max((int(group.allocatable.get(_GPUS, "0")) for group in groups), default=0)
        found[pool.name] = gpus, sorted(group.site for group in groups)
    return found
