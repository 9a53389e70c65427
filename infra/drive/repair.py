"""Undoes unintended changes of the state by an apply. Pure, on Terraform's state format 4.

There are two of them:

- AWS is eventually consistent. A provider that updates a resource reads it again, and a "not found" then
  removes the resource from the state, though it still exists.
- If a creation is stopped or fails after the resource exists, the resource is tainted, and the next plan
  would replace it. That destroys a stateful resource, which nobody requested; for `SAME_AGAIN`, it leaves no
  resource at all; and with create_before_destroy, AWS refuses the second one of that name, at each apply.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from infra.drive import destruction

State: TypeAlias = dict[str, Any]
"""As ``terraform state pull`` prints it."""


SAME_AGAIN: Final = frozenset({"aws_customer_gateway"})
"""Types for which AWS answers a repeated creation with the existing resource (EC2 API Reference,
CreateCustomerGateway). With create_before_destroy, a tainted one would be replaced by itself and then
deleted: so it is untainted in any case."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A state to store, and its differences."""

    state: State
    restored: tuple[str, ...]
    """Addresses that were dropped although no plan destroyed them."""
    untainted: tuple[str, ...]
    """Addresses of resources whose creation did not finish, and for which a replacement would not help."""

    def __bool__(self) -> bool:
        return bool(self.restored or self.untainted)


@dataclass(frozen=True, slots=True)
class _Instance:
    address: str
    resource: State
    """Its resource block in the state: module, mode, type, name, provider."""
    values: State
    """The instance object."""

    @property
    def key(self) -> tuple[str, str]:
        """Its identity in AWS, regardless of its address: type and id."""
        return str(self.resource["type"]), str(self.values.get("attributes", {}).get("id", ""))

    @property
    def is_tainted(self) -> bool:
        return self.values.get("status") == "tainted"

    @property
    def comes_first(self) -> bool:
        """Whether it has create_before_destroy, possibly because a dependent requires it."""
        return bool(self.values.get("create_before_destroy"))

    @property
    def is_in_its_own_way(self) -> bool:
        """Whether AWS does not allow a second one beside it."""
        values = self.values.get("attributes", {})
        has_name = bool(values.get("name")) and not values.get("name_prefix")
        return self.resource["type"] in SAME_AGAIN or (self.comes_first and has_name)


def repair(before: State, after: State, leaving: Collection[str]) -> Repaired:
    """``after``, plus everything in ``before`` that is not in ``leaving``.

    ``leaving`` are the addresses that the plan destroys, replaces or forgets, and those that it did not find
    in AWS because somebody deleted them. A resource that was tainted in ``before`` was tainted by a user,
    and stays so.
    """
    fixed = copy.deepcopy(after)
    earlier = {one.address: one for one in _instances(before)}
    present = list(_instances(fixed))
    addresses = {one.address for one in present}
    keys = {one.key for one in present}
    restored = []
    for one in earlier.values():
        if one.address not in addresses and one.key not in keys and one.address not in leaving:
            _put(fixed, one)
            restored.append(one.address)
    marked = {one.key for one in earlier.values() if one.is_tainted}
    untainted = _untaint(fixed, lambda one: one.key not in marked or one.resource["type"] in SAME_AGAIN)
    return _numbered(fixed, restored, untainted)


def untaint(state: State, wanted: Container[str]) -> Repaired:
    """``state`` with these addresses untainted."""
    fixed = copy.deepcopy(state)
    return _numbered(fixed, [], _untaint(fixed, lambda one: one.address in wanted))


def tainted(state: State) -> tuple[str, ...]:
    """Addresses of tainted resources that cannot replace themselves."""
    found = (one for one in _instances(state) if one.is_tainted)
    return tuple(one.address for one in found if one.is_in_its_own_way)


def adopted(state: State, rows: Iterable[State]) -> State:
    """``state`` with these resources added, each a block with one instance; a new state if it is empty."""
    fixed: State = copy.deepcopy(state) or {"version": 4, "serial": 0, "lineage": str(uuid.uuid4())}
    for row in rows:
        (values,) = row["instances"]
        _put(fixed, _Instance(address(row, values), row, values))
    return {**fixed, "serial": int(fixed["serial"]) + 1}


def held(state: State) -> dict[str, tuple[str, str]]:
    """The address of each resource → its type and id."""
    return {one.address: one.key for one in _instances(state)}


def _untaint(state: State, may: Any) -> list[str]:
    found = []
    for one in _instances(state):
        values, kind = one.values.get("attributes", {}), one.resource["type"]
        kept = kind in SAME_AGAIN or one.comes_first or destruction.loss(kind, values)
        # Without an id nothing was created.
        if one.is_tainted and values.get("id") and kept and may(one):
            del one.values["status"]
            found.append(one.address)
    return found


def _numbered(state: State, restored: list[str], untainted: list[str]) -> Repaired:
    if restored or untainted:
        state["serial"] = int(state["serial"]) + 1
    return Repaired(state, tuple(sorted(restored)), tuple(sorted(untainted)))


def _instances(state: State) -> Iterator[_Instance]:
    """Managed resources. A deposed object is the rest of a replacement and will be destroyed."""
    for resource in state.get("resources", ()):
        if resource.get("mode") != "managed":
            continue
        for values in resource.get("instances", ()):
            if "deposed" not in values:
                yield _Instance(address(resource, values), resource, values)


def address(resource: State, values: State) -> str:
    """The address of an instance in its resource block."""
    block = f"{resource['type']}.{resource['name']}"
    if "module" in resource:
        block = f"{resource['module']}.{block}"
    match values.get("index_key"):
        case None:
            return block
        case int(number):
            return f"{block}[{number}]"
        case key:
            return f'{block}["{_escaped(str(key))}"]'


def _escaped(key: str) -> str:
    """A key as Terraform writes it in an address, with HCL's escapes."""
    return key.replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${").replace("%{", "%%{")


def _put(state: State, one: _Instance) -> None:
    head = {name: value for name, value in one.resource.items() if name != "instances"}
    for resource in state.setdefault("resources", []):
        same = all(resource.get(name) == head.get(name) for name in ("module", "mode", "type", "name"))
        if same:
            resource["instances"].append(copy.deepcopy(one.values))
            return
    state["resources"].append({**copy.deepcopy(head), "instances": [copy.deepcopy(one.values)]})
