"""Undeclared settings as plain data that can be saved beside a plan, and the resources in the state.

The latter are read from the state's format 4, which OpenTofu shares, as ``terraform state pull`` prints it.
The documented JSON format requires starting the provider, and does not say which provider, and so which
region, an instance belongs to.
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
    """A call of an AWS API that removes something."""

    service: str
    """In boto3's spelling: ``ec2``."""
    operation: str
    """In boto3's spelling: ``delete_route``."""
    parameters: Mapping[str, Any]
    """JSON values only."""


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Something in AWS on one of our resources that is not in the state."""

    holder: str
    """The address of the resource that has it."""
    site: str
    """The holder's site; empty if it belongs to none."""
    region: str
    """The AWS region of the call."""
    kind: str
    """``security group rule``."""
    id: str
    what: str
    """A full description: ``ingress tcp 22 from 0.0.0.0/0 (sgr-0123)``."""
    removal: Call | None
    """The call that removes it; None if it may hold someone's work and is only reported."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource instance in the state."""

    address: str
    type: str
    site: str
    region: str
    values: Mapping[str, Any]


class Declared:
    """The resources in the state, by type."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._of: dict[str, list[Resource]] = {}
        for resource in resources:
            self._of.setdefault(resource.type, []).append(resource)

    def of(self, kind: str, region: str = "") -> list[Resource]:
        """The resources of a Terraform type, in one region or in all."""
        return [each for each in self._of.get(kind, ()) if region in ("", each.region)]

    def by(self, attribute: str, kind: str, region: str = "") -> dict[str, Resource]:
        """Value of an attribute → resource, for a type; without resources that were created but never
        read."""
        found = ((each.values.get(attribute), each) for each in self.of(kind, region))
        return {str(value): each for value, each in found if value is not None}

    def values(self, kind: str, *attributes: str) -> set[tuple[Any, ...]]:
        """The values of these attributes for all resources of a type."""
        return {tuple(each.values.get(name) for name in attributes) for each in self.of(kind)}

    @property
    def regions(self) -> list[str]:
        """All regions that have a resource."""
        return sorted({each.region for those in self._of.values() for each in those})


Find: TypeAlias = Callable[[Aws, str, Declared], Iterator[Undeclared]]
"""Searches one region for one kind of undeclared setting."""


def on(
    holder: Resource,
    kind: str,
    name: str,
    what: str,
    service: str = "",
    operation: str = "",
    **parameters: Any,
) -> Undeclared:
    """An undeclared setting of ``holder``, with the call that removes it, if any."""
    removal = Call(service, operation, parameters) if operation else None
    return Undeclared(holder.address, holder.site, holder.region, kind, name, what, removal)


def pages(client: Any, operation: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Every page of a response."""
    yield from client.get_paginator(operation).paginate(**parameters)


def chunks(values: Iterable[str], size: int = 100) -> Iterator[list[str]]:
    """Lists of at most ``size``, as a filter takes 200 values."""
    ordered = sorted(values)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


_ALIAS = re.compile(r"\]\.([\w-]+)$")


def declared(state: Mapping[str, Any], sites: Mapping[str, str], regions: Mapping[str, str]) -> Declared:
    """The resources of a state in Terraform's format; none of an empty state.

    ``sites`` and ``regions`` as in `infra.drive.lifecycle.Job`. Resources of other providers are left out,
    as they cannot be queried.
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
