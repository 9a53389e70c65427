"""What pods may connect to: each other, services and the internet, and next to nothing where machines are."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import collapse_addresses

from infra.catalogue.ports import refused
from infra.model.kubernetes import AllowedEgress, PodEgress
from infra.model.places import PhysicalSite, Region
from infra.schema import Spec


def resolve_pod_egress(spec: Spec, regions: Sequence[Region], sites: Sequence[PhysicalSite]) -> PodEgress:
    """Of whole networks, not of machines one by one: a machine that comes later is covered, and an image that
    was baked before knows it."""
    return PodEgress(
        machines=tuple(collapse_addresses([*(each.vpc for each in regions), *(each.lan for each in sites)])),
        endpoints=tuple(
            collapse_addresses(
                region.vpc
                for region in regions
                if any(endpoint.kind == "interface" for endpoint in region.endpoints)
            )
        ),
        refused=refused(spec.kubernetes.pods.backend),
        allowed=tuple(
            AllowedEgress(each.cidr, each.protocol, tuple(sorted(set(each.ports))))
            for each in spec.kubernetes.pods.egress
        ),
    )
