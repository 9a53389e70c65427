"""The batch autoscaler: its configuration, rights and Deployment.

It runs on masters, beside the API that it watches, and uses their instance role. The metadata service
answers only the host and not pods behind a bridge, so it uses the host network. It uses the host's DNS
resolver, as the component that scales the cluster must not depend on the cluster's DNS.

There is a replica per master, at most two; the one that holds the Lease is active.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.machines import NodeGroup, NodePool
from infra.render.kubernetes import rights
from infra.render.kubernetes.manifests import SYSTEM, Documents, Manifest, Object, filled, joined, of, static
from infra.render.kubernetes.nodes import has_pools, is_scaled
from infra.render.kubernetes.queues import PROVISIONING_CLASS
from infra.render.kubernetes.tenants import subject

NAME: Final = "autoscaler"
LEASE: Final = "autoscaler"
MEMORY: Final = "autoscaler-memory"
"""The ConfigMap with its state."""
AVAILABILITY: Final = "availability"
"""The ConfigMap that it writes for users: free capacity, and who waits for what."""
PORT: Final = 10258
"""The port of its metrics and probes: that of the cloud controller manager, which is not used here. Masters
can connect to it on each other, like those of other controllers (``modules/network/security_groups.tf``)."""

_FOLDER: Final = "/etc/autoscaler"
_APP: Final = {"app.kubernetes.io/name": NAME}
_USER: Final = 65532
"""The user of the image."""


def objects(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Documents:
    """``kinds.yaml``; if the autoscaler is applied, also its rights, its configuration and the Deployment.

    The CRD must exist before Kueue starts, which looks for it only then.
    """
    if not has_pools(cluster):
        return {}
    kinds = static("autoscaler/kinds")
    if not is_scaled(cluster):
        return {"kinds.yaml": kinds}
    config = configuration(cluster, outputs)
    return {
        "kinds.yaml": kinds,
        "rights.yaml": joined([static("autoscaler/rights"), _readers(cluster)]),
        "configuration.yaml": [
            of("v1", "ConfigMap", NAME, namespace=SYSTEM, labels=_APP, data={"config.json": config})
        ],
        "controller.yaml": _controller(cluster, config),
    }


# -- What it is told ----------------------------------------------------------------------------------------


def configuration(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> str:
    """``config.json``: infra.autoscaler.config.Config, one line per setting and per group."""
    settings = cluster.autoscaler
    told = {
        "environment": cluster.environment,
        "cluster": cluster.name,
        "regions": {region.name: region.region for region in cluster.regions},
        "dry_run": settings.dry_run,
        "interval": settings.interval,
        "idle": settings.idle,
        "boot_timeout": settings.boot_timeout,
        "spare": dict(settings.spare),
        "max_hourly_cost": settings.max_hourly_cost,
        "max_scale_in_percent": settings.max_scale_in_percent,
        "max_cluster_scale_in_percent": settings.max_cluster_scale_in_percent,
        "stop_above_unready_percent": settings.stop_above_unready_percent,
        "backoff_min": settings.backoff_min,
        "backoff_max": settings.backoff_max,
        **({"min_priority": settings.min_priority} if settings.min_priority is not None else {}),
        "booking": settings.booking,
        "quotas": {region: dict(limits) for region, limits in settings.quotas.items()},
        "namespace": SYSTEM,
        "provisioning_class": PROVISIONING_CLASS,
    }
    lines = [f"  {json.dumps(key)}: {_line(value)}" for key, value in told.items()]
    rows = ",\n".join(f"    {_line(each)}" for each in _groups(cluster, outputs))
    lines.append(f'  "groups": [\n{rows}\n  ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _groups(cluster: Cluster, outputs: Outputs) -> Iterator[dict[str, Any]]:
    """In overflow order: regions by the spec's order, within a region pools by priority."""
    order = {region.name: region.order for region in cluster.regions}
    regions = {region.name: region.region for region in cluster.regions}
    pairs = [(pool, group) for pool in cluster.pools for group in pool.groups]
    for pool, group in sorted(pairs, key=lambda pair: (order[pair[1].site], -pair[0].priority, pair[0].name)):
        zones = [outputs.zone(group.site, zone) for zone in group.zones]
        yield _group(pool, group, regions[group.site], order[group.site], zones)


def _group(pool: NodePool, group: NodeGroup, region: str, order: int, zones: list[str]) -> dict[str, Any]:
    return {
        "name": group.name,
        "pool": pool.name,
        "site": group.site,
        "region": region,
        "order": order,
        "priority": pool.priority,
        "min": group.min,
        "max": group.max,
        "zones": zones,
        "types": [msgspec.to_builtins(each) for each in group.types],
        "on_demand_base": pool.market.on_demand_base,
        "on_demand_percent": pool.market.on_demand_percent,
        "labels": dict(group.labels),
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in pool.taints],
        "allocatable": amounts(group.allocatable),
        "drain_timeout_seconds": pool.drain_timeout_seconds,
    }


_UNITS: Final = {"Mi": 2**20, "Gi": 2**30}


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Quantities from ``resolve`` as integers: CPU in millicores, memory and disk in bytes, others in their
    own unit."""
    return {name: _amount(name, text) for name, text in quantities.items()}


def _amount(name: str, text: str) -> int:
    if name == "cpu":
        return int(text.removesuffix("m"))
    return int(text.rstrip("MGi")) * _UNITS.get(text.lstrip("0123456789"), 1)


# -- What people may read ----------------------------------------------------------------------------------


def _readers(cluster: Cluster) -> Iterator[Object]:
    """The right of the spec's users to read the ConfigMap written for them, and nothing else in this
    namespace."""
    everybody = [subject(user) for user in cluster.access.users]
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [AVAILABILITY], "verbs": ["get"]}
    ]
    if everybody:
        yield from rights.within(SYSTEM, AVAILABILITY, rules, everybody, labels=_APP)


# -- Where it runs ------------------------------------------------------------------------------------------


def _controller(cluster: Cluster, config: str) -> Manifest:
    plane = cluster.control_plane
    return filled(
        "autoscaler/controller",
        replicas=min(2, len(plane.masters) if plane is not None else 1),
        config=sha256(config.encode()).hexdigest()[:16],
        image=cluster.autoscaler.image,
        user=_USER,
        port=PORT,
        file=f"{_FOLDER}/config/config.json",
        folder=f"{_FOLDER}/config",
    )
