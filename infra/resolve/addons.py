"""Which add-ons are enabled, in which version, and the address of internal pages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from infra.catalogue import addons
from infra.model import kubernetes as made
from infra.model.machines import NodePool, has_gpus
from infra.model.places import PhysicalSite
from infra.model.platform import Storage
from infra.resolve import services
from infra.schema import Spec
from infra.schema.addons import INGRESS, is_on, page_domain, split_path, typed


def offers(
    pools: Collection[NodePool], sites: Collection[PhysicalSite], storage: Storage
) -> frozenset[addons.Where]:
    """What the cluster has that add-ons depend on: GPUs, EFA interfaces, file systems, buckets."""
    has: dict[addons.Where, bool] = {
        "always": True,
        "gpus": has_gpus(pools, sites),
        "efa": any(pool.efa_interfaces for pool in pools),
        "efs": bool(storage.efs),
        "s3": bool(storage.s3),
        "nfs": bool(storage.nfs),
    }
    return frozenset(each for each, there in has.items() if there)


def resolve_addons(spec: Spec, offered: Collection[addons.Where]) -> tuple[made.AddOn, ...]:
    """The add-ons that are enabled and apply to this cluster, sorted by name."""
    known = (found for name in addons.names() if (found := addons.find(name)) and is_on(spec, name))
    return tuple(_addon(spec, each) for each in known if each.where in offered)


def _addon(spec: Spec, known: addons.AddOn) -> made.AddOn:
    stated = spec.kubernetes.addons.get(known.name)
    version = stated.version if stated is not None else None
    chart = image = None
    if known.chart is not None:
        chart = addons.chart(known.chart)
        if version:
            chart = replace(chart, version=version, minors=(), images=())
    if known.image is not None:
        image = addons.image(known.image)
        image = f"{image.rpartition(':')[0]}:{version}" if version else image
    return made.AddOn(known.name, chart, image, nested(dict(stated.values)) if stated is not None else {})


def nested(values: dict[str, str]) -> dict[str, Any]:
    """``{"a.b": "1"}`` → ``{"a": {"b": 1}}``: keys and values are parsed as by Helm's ``--set``."""
    found: dict[str, Any] = {}
    for path, text in sorted(values.items()):
        *above, last = split_path(path)
        place = found
        for key in above:
            below = place.setdefault(key, {})
            if not isinstance(below, dict):  # only if a finding was waived: the deeper key wins
                below = place[key] = {}
            place = below
        place[last] = typed(text)
    return found


def resolve_ingress(spec: Spec, on: tuple[made.AddOn, ...], block: IPv4Network) -> made.Ingress | None:
    """The address and DNS name of the ingress for internal pages; None if the add-on is disabled."""
    if not any(each.name == INGRESS for each in on):
        return None
    return made.Ingress(services.ingress(block), f"{INGRESS}.{page_domain(spec)}")
