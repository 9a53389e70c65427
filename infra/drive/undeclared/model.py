"""What nobody declared, as plain data that can be saved beside a plan, and what is declared.

The latter is read from the state's own format 4, which OpenTofu shares, as ``terraform state pull`` prints
it. The documented JSON form needs a start of the provider, and does not say which provider, so which region,
an instance belongs to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from infra.drive.aws import Aws
from infra.drive.plan import site_of


@dataclass(frozen=True, slots=True)
class Call:
    """One call of AWS's API that takes something away."""

    service: str
    """As boto3 names it: ``ec2``."""
    operation: str
    """As boto3 names it: ``delete_route``."""
    parameters: Mapping[str, Any]
    """JSON values only."""


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Something on a resource of ours that is in AWS and not in the state."""

    holder: str
    """The address of the resource that it is on."""
    site: str
    """Of the holder; empty for what belongs to none."""
    region: str
    """The AWS region to call."""
    kind: str
    """``security group rule``."""
    id: str
    what: str
    """In full: ``ingress tcp 22 from 0.0.0.0/0 (sgr-0123)``."""
    removal: Call | None
    """What takes it away; None for what may hold somebody's work, which is only reported."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One instance in the state."""

    address: str
    type: str
    site: str
    region: str
    values: Mapping[str, Any]


class Declared:
    """What the state holds, by type."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._of: dict[str, list[Resource]] = {}
        for resource in resources:
            self._of.setdefault(resource.type, []).append(resource)

    def of(self, kind: str, region: str = "") -> list[Resource]:
        """Those of a Terraform type, in a region or in all."""
        return [each for each in self._of.get(kind, ()) if region in ("", each.region)]

    def by(self, attribute: str, kind: str, region: str = "") -> dict[str, Resource]:
        """Those of a type by the value of an attribute; without those that were created and never read."""
        found = ((each.values.get(attribute), each) for each in self.of(kind, region))
        return {str(value): each for value, each in found if value is not None}

    def values(self, kind: str, *attributes: str) -> set[tuple[Any, ...]]:
        """What those of a type have in these attributes."""
        return {tuple(each.values.get(name) for name in attributes) for each in self.of(kind)}

    @property
    def regions(self) -> list[str]:
        """All regions with a resource."""
        return sorted({each.region for those in self._of.values() for each in those})


Find: TypeAlias = Callable[[Aws, str, Declared], Iterator[Undeclared]]
"""Looks in one region for one kind of thing."""


def on(
    holder: Resource,
    kind: str,
    name: str,
    what: str,
    service: str = "",
    operation: str = "",
    **parameters: Any,
) -> Undeclared:
    """Something on ``holder``, with the call that takes it away if there is one."""
    removal = Call(service, operation, parameters) if operation else None
    return Undeclared(holder.address, holder.site, holder.region, kind, name, what, removal)


def pages(client: Any, operation: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Every page of an answer."""
    yield from client.get_paginator(operation).paginate(**parameters)


def chunks(values: Iterable[str], size: int = 100) -> Iterator[list[str]]:
    """Lists of at most ``size``: a filter takes 200 values."""
    ordered = sorted(values)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


_ALIAS = re.compile(r"\]\.([\w-]+)$")


def declared(state: Mapping[str, Any], sites: Mapping[str, str], regions: Mapping[str, str]) -> Declared:
    """From a state in Terraform's own form; nothing from an empty one.

    ``sites`` and ``regions`` as in `infra.drive.lifecycle.Job`. What belongs to a provider that is not one of
    theirs is left out: it can't be asked.
    """
    return Declared(_resources(state, sites, regions))


def _resources(
    state: Mapping[str, Any], sites: Mapping[str, str], regions: Mapping[str, str]
) -> Iterator[Resource]:
    for block in state.get("resources", ()):
        alias = _ALIAS.search(str(block["provider"]))
        region = regions.get(sites.get(alias[1], ""), "") if alias else ""
        if block["mode"] != "managed" or not region:
            continue
        module = str(block.get("module", ""))
        for instance in block["instances"]:
            key = instance.get("index_key")
            name = f"{block['type']}.{block['name']}" + (f"[{json.dumps(key)}]" if key is not None else "")
            address = f"{module}.{name}" if module else name
            values = instance.get("attributes") or {}
            yield Resource(address, block["type"], site_of(module, sites), region, values)
