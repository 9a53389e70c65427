"""Parts of pod and volume specs: affinities and resources."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from infra.catalogue.labels import SITE
from infra.render.kubernetes.manifests import Object

EVERYWHERE: Final[list[Object]] = [{"operator": "Exists", "effect": "NoSchedule"}]
"""Tolerations of agents on nodes. Gateways keep other pods off with NoExecute."""


def matching(terms: Sequence[Object]) -> Object:
    """A node selector that requires all terms."""
    return {"nodeSelectorTerms": [{"matchExpressions": list(terms)}]}


def nodes(terms: Sequence[Object]) -> Object:
    """A node affinity that requires all terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": matching(terms)}}


def at(sites: Collection[str]) -> Object:
    """A node selector term for these sites, sorted by name."""
    return {"key": SITE, "operator": "In", "values": sorted(sites)}


def requests(cpu: str, memory: str, *, limit: str = "") -> Object:
    """Resources: the requests, and the memory limit, if any."""
    return {"requests": {"cpu": cpu, "memory": memory}, **({"limits": {"memory": limit}} if limit else {})}
