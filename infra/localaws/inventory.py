"""Lists the resources in all regions that a new account does not have.

There is no list of kinds to maintain: each backend of moto stores its resources in dictionaries and lists.
Everything that was not there when the backend was created is a resource that somebody created.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from infra.localaws.patching import around

Inventory: TypeAlias = dict[str, dict[str, list[str]]]
"""Region (``global`` for services without regions) → ``service.kind`` → ids, all sorted."""

_GONE: Final = {"deleted", "deleting", "terminated", "cancelled", "pendingdeletion", "rejected", "released"}
"""States of resources that no longer exist but that AWS still returns for a while."""

_STATES: Final = ("state", "status", "key_state", "_state", "_status")

_NOT_RESOURCES: Final = {
    "creation_tokens",
    "deleted_amis",
    "delegation_sets",  # of zones, which are listed themselves
    "events",  # of databases
    "launch_template_insert_order",
    "launch_template_name_to_ids",
    "resource_tags",
    "tagger",
    "tags",
}
"""Attributes of backends that only refer to resources."""

_BORN: Final = "_causeway_born"


def install() -> None:
    """Record the initial contents of each backend. Called once per process, before the first call."""
    from moto.core.base_backend import AccountSpecificBackend

    @around(AccountSpecificBackend)
    def __getitem__(original: Any, self: Any, region: str) -> Any:  # noqa: N807
        backend = original(self, region)
        if not hasattr(backend, _BORN):
            setattr(backend, _BORN, frozenset(_things(backend)))
        return backend


def inventory() -> Inventory:
    """All resources in this process, without those of a new account."""
    from moto.core import base_backend

    services: list[Any] = list(vars(base_backend.BackendDict)["_instances"])
    found: Inventory = {}
    for service in services:
        for _account, region, backend in service.iter_backends():
            created = set(_things(backend)) - getattr(backend, _BORN, frozenset())
            for kind, name in sorted(created):
                place = "global" if region == "aws" else region
                found.setdefault(place, {}).setdefault(f"{service.service_name}.{kind}", []).append(name)
    return {region: dict(sorted(kinds.items())) for region, kinds in sorted(found.items())}


def _things(backend: Any) -> Iterator[tuple[str, str]]:
    """Kind and id of all resources in a backend."""
    for kind, value in vars(backend).items():
        if kind not in _NOT_RESOURCES and not kind.startswith("_causeway"):
            for name in _names(value):
                yield kind, name


def _names(value: Any, before: str = "") -> Iterator[str]:
    """The ids in a container: keys of a dictionary, also of nested ones, or items of a list."""
    if isinstance(value, dict):
        for key, item in list(value.items()):
            name = f"{before}/{key}" if before else str(key)
            if isinstance(item, dict | list | set | tuple):
                if not before:
                    yield from _names(item, name)
                elif item:
                    yield name
            elif not _gone(item):
                yield name
    elif isinstance(value, list | set | tuple):
        for item in list(value):
            if not _gone(item):
                name = str(getattr(item, "id", None) or getattr(item, "name", None) or item)
                yield f"{before}/{name}" if before else name


def _gone(thing: Any) -> bool:
    """Whether it is empty, or a resource that no longer exists."""
    if thing is None:
        return True
    if getattr(thing, "key_manager", "") == "AWS":  # an AWS managed key, created on first use
        return True
    if hasattr(thing, "instances"):  # a reservation exists as long as its instances
        return all(_gone(instance) for instance in thing.instances)
    for attribute in _STATES:
        state = getattr(thing, attribute, None)
        text = getattr(state, "name", None) or getattr(state, "code", None) or state
        if isinstance(text, str) and text.lower() in _GONE:
            return True
    return False
