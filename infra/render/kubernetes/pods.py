"""What pods and volumes have in common: which nodes, and how much of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from infra.catalogue.labels import SITE
from infra.render.kubernetes.manifests import Object

EVERYWHERE: Final[list[Object]] = [{"operator": "Exists", "effect": "NoSchedule"}]
"""Tolerations of agents on nodes. Gateways keep others off by NoExecute."""


def matching(terms: Sequence[Object]) -> Object:
    """A selector of nodes that meet all terms."""
    return {"nodeSelectorTerms": [{"matchExpressions": list(terms)}]}


def nodes(terms: Sequence[Object]) -> Object:
    """The affinity to nodes that meet all terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": matching(terms)}}


def at(sites: Collection[str]) -> Object:
    """A term: nodes of these sites, which are told in the order of their names."""
    return {"key": SITE, "operator": "In", "values": sorted(sites)}


def requests(cpu: str, memory: str, *, limit: str = "") -> Object:
    """Resources: what is asked for, and the most memory, if there is a most."""
    return {"requests": {"cpu": cpu, "memory": memory}, **({"limits": {"memory": limit}} if limit else {})}
