"""Limits of the GPUs that one user holds in a group's queue (``gpu_limit_per_user``), implemented with
Kueue.

Kueue limits what a ClusterQueue holds, by flavor, and a group is one ClusterQueue. So each pod that requests
GPUs also requests as many of a resource that only Kueue counts (Kueue, "Resource Transformations"), and for
that resource the ClusterQueue has one flavor per user, with the limit as its quota. A user's work cannot be
assigned another one: each flavor has a taint, which admission policies let only that user's work tolerate.
No node has the taint.

Work in a user's namespace counts for that user; in the group's, for the member who submitted it, and for the
group itself if it was not submitted by a member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.catalogue.labels import GPU_LIMIT, LIMITED_GPUS
from infra.model import Cluster
from infra.model.platform import Group
from infra.render.kubernetes.manifests import Object, of
from infra.render.kubernetes.scheduling import GPU_TAINT
from infra.render.kubernetes.tenants import members


def flavors(cluster: Cluster) -> Iterator[Object]:
    """A ResourceFlavor for each user of each group with a limit, and for the group itself."""
    for group in limited(cluster):
        for holder in _holders(cluster, group):
            taint = {"key": GPU_LIMIT, "value": holder, "effect": "NoSchedule"}
            yield of(
                "kueue.x-k8s.io/v1beta2",
                "ResourceFlavor",
                _flavor(group, holder),
                spec={"nodeTaints": [taint]},
            )


def resource_groups(cluster: Cluster, group: Group) -> Iterator[dict[str, Any]]:
    """The resource groups of the group's ClusterQueue for these limits: without lending and borrowing."""
    if group.gpu_limit_per_user is None:
        return
    quota = {
        "name": LIMITED_GPUS,
        "nominalQuota": str(group.gpu_limit_per_user),
        "borrowingLimit": "0",
        "lendingLimit": "0",
    }
    yield {
        "coveredResources": [LIMITED_GPUS],
        "flavors": [
            {"name": _flavor(group, holder), "resources": [quota]} for holder in _holders(cluster, group)
        ],
    }


def transformations(cluster: Cluster) -> dict[str, Any]:
    """The part of Kueue's configuration that counts GPUs a second time. Queues without a limit do not have
    the resource, and ignore it."""
    if not limited(cluster):
        return {}
    return {
        "transformations": [{"input": GPU_TAINT, "strategy": "Retain", "outputs": {LIMITED_GPUS: "1"}}],
    }


def limited(cluster: Cluster) -> tuple[Group, ...]:
    """Groups with a limit."""
    return tuple(group for group in cluster.access.groups if group.gpu_limit_per_user is not None)


def _holders(cluster: Cluster, group: Group) -> list[str]:
    """Namespaces that represent the holders of GPUs in a group's queue: its members, and the group itself."""
    return [group.namespace, *(user.namespace for user in members(cluster, group))]


def _flavor(group: Group, holder: str) -> str:
    """The flavor of a user. It contains a dot, which flavors of pools do not."""
    return f"limit.{group.namespace}.{holder}"
