"""A creation as plain data that can be kept beside a state, and as an entry of that state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from infra.drive.aws import Aws

ENVIRONMENT: Final = "environment"
"""The tag with the environment of a resource; used by the policies in docs/iam."""
OWNER: Final = (ENVIRONMENT, "cluster")
"""Tags by which a resource is recognised as ours."""

_LONGEST: Final = 256
_KEYS: Final = re.compile(r"\[(?:\d+|\"(?:[^\"\\]|\\.)*\")\]")


@dataclass(frozen=True, slots=True)
class Creation:
    """A resource that an apply creates."""

    address: str
    module: str
    """``module.us_west_2.module.network``, empty in the root."""
    type: str
    name: str
    index: str | int | None
    """Its key in ``for_each``; None without one."""
    provider: str
    """As in a state: ``provider["registry.terraform.io/hashicorp/aws"].us_west_2``."""
    schema: int
    """The schema version of its type."""
    region: str
    tags: Mapping[str, str]
    """All tags, including the provider's default tags."""
    values: Mapping[str, Any]
    """Configured values that are short, known and not sensitive: the provider cannot read from AWS what AWS
    does not store, such as ``skip_final_snapshot``."""

    @property
    def environment(self) -> str:
        return self.tags.get(ENVIRONMENT, "")

    def row(self, identifier: str) -> dict[str, Any]:
        """The resource as an entry of a state of format 4; the next refresh reads the rest."""
        instance: dict[str, Any] = {
            "schema_version": self.schema,
            "attributes": {**self.values, "id": identifier},
            "sensitive_attributes": [],
        }
        if self.index is not None:
            instance["index_key"] = self.index
        head = {"module": self.module} if self.module else {}
        named = {"mode": "managed", "type": self.type, "name": self.name, "provider": self.provider}
        return {**head, **named, "instances": [instance]}


@dataclass(frozen=True, slots=True)
class Seen:
    """A resource in AWS with the name of a creation."""

    id: str
    tags: Mapping[str, str]
    fresh: bool = False
    """It is of a kind that is tagged after its creation, has no tags yet, and is otherwise in its initial
    state."""

    def is_of(self, creation: Creation) -> bool:
        wanted = {name: creation.tags[name] for name in OWNER if name in creation.tags}
        return self.fresh or (ENVIRONMENT in wanted and wanted.items() <= self.tags.items())


Look: TypeAlias = Callable[[Aws, str, Sequence[Creation]], Iterator[tuple[Creation, Seen]]]
"""Searches one region for creations of one type."""


def creations(shown: Mapping[str, Any], types: Iterable[str]) -> tuple[Creation, ...]:
    """The resources of these types that a plan creates; ``shown`` as ``terraform show -json`` prints it."""
    wanted = set(types)
    schemas = {one["address"]: int(one["schema_version"]) for one in _resources(shown)}
    return tuple(_creations(shown, wanted, schemas))


def _creations(shown: Mapping[str, Any], wanted: set[str], schemas: Mapping[str, int]) -> Iterator[Creation]:
    providers = shown.get("configuration", {}).get("provider_config", {})
    keys = dict(_provider_keys(shown.get("configuration", {}).get("root_module", {}), ""))
    for one in shown.get("resource_changes", ()):
        if one["type"] not in wanted or one["mode"] != "managed" or "create" not in one["change"]["actions"]:
            continue
        module = str(one.get("module_address", ""))
        provider = providers.get(keys.get((_KEYS.sub("", module), one["type"], one["name"]), ""), {})
        region = provider.get("expressions", {}).get("region", {}).get("constant_value")
        if not region:
            continue  # its region is unknown
        after, secret = one["change"]["after"], one["change"].get("after_sensitive") or {}
        alias = f".{provider['alias']}" if provider.get("alias") else ""
        yield Creation(
            one["address"], module, one["type"], one["name"], one.get("index"),
            f'provider["{provider["full_name"]}"]{alias}', schemas[one["address"]], region,
            tags={**_group_tags(after), **(after.get("tags_all") or {})},
            values={name: value for name, value in after.items() if _kept(value) and not secret.get(name)},
        )  # fmt: skip


def _group_tags(after: Mapping[str, Any]) -> dict[str, str]:
    """The tags of an Auto Scaling group, which are blocks."""
    return {each["key"]: each["value"] for each in after.get("tag") or () if each.get("key")}


def _kept(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST)


def _resources(shown: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    modules = [shown.get("planned_values", {}).get("root_module", {})]
    for module in modules:
        yield from module.get("resources", ())
        modules += module.get("child_modules", ())


def _provider_keys(module: Mapping[str, Any], address: str) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Module, type and name of each resource block → the key of its provider configuration."""
    for one in module.get("resources", ()):
        yield (address, one["type"], one["name"]), one["provider_config_key"]
    for name, call in module.get("module_calls", {}).items():
        inner = f"{address}.module.{name}" if address else f"module.{name}"
        yield from _provider_keys(call["module"], inner)
