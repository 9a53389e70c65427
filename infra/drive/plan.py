"""Parses a plan from Terraform's documented JSON. Pure.

Source: https://developer.hashicorp.com/terraform/internals/json-format ("Plan Representation").
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from infra.drive import destruction

Action: TypeAlias = Literal["create", "update", "replace", "delete", "read", "forget", "no-op"]

SENSITIVE: Final = "(sensitive)"
UNKNOWN: Final = "(known after apply)"

CANNOT_UPDATE: Final = "it can't be changed in place"

_REASONS: Mapping[str, str] = {
    "replace_because_tainted": "it was left half-made, or marked as tainted",
    "replace_because_cannot_update": CANNOT_UPDATE,
    "replace_by_request": "it was asked for with -replace",
    "replace_by_triggers": "something that it is tied to (replace_triggered_by) changes",
    "delete_because_no_resource_config": "it is no longer in the configuration",
    "delete_because_no_module": "its module is no longer in the configuration",
    "delete_because_wrong_repetition": "the resource no longer has instances of this kind",
    "delete_because_count_index": "its number is past the end of the count",
    "delete_because_each_key": "its key is no longer in for_each",
    "delete_because_no_move_target": "it was moved to an address that is not configured",
    "read_because_config_unknown": "it depends on what is known only after apply",
    "read_because_dependency_pending": "something that it depends on changes",
    "read_because_check_nested": "a check reads it",
}


_NAMES: Final[Mapping[str, str]] = {"rule": "id", "tag": "key"}
"""Nested blocks → the attribute that identifies a block regardless of its position: lifecycle rules of a
bucket, tags of Auto Scaling groups."""
_WHOLE: Final = frozenset({"rule"})
"""Of these, blocks that are shown as a whole."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One value that changes. Sensitive values are replaced by `SENSITIVE`."""

    path: str
    """``tags.Name``, ``ingress[0].cidr_blocks``, ``tag[team].value``."""
    before: Any
    after: Any
    """`UNKNOWN` if it is known only after the apply."""
    replaces: bool
    """Whether it causes the replacement of the resource."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one resource."""

    address: str
    type: str
    name: str
    """With its key: ``private["us-west-2a"]``."""
    module: str
    """``module.us_west_2.module.network``, empty in the root."""
    site: str
    """The site of its outermost module, or the module's name if it has none; empty in the root."""
    actions: tuple[str, ...]
    action: Action
    reason: str
    """Why it is replaced, destroyed or read; empty if there is nothing to explain."""
    attributes: tuple[Attribute, ...]
    """The changed attributes of an update or a replacement."""
    loss: str
    """What is lost if it is destroyed; empty if it is not stateful."""
    previous_address: str
    """Its address before a move; else empty."""
    importing: bool

    @property
    def is_stateful(self) -> bool:
        return bool(self.loss)

    @property
    def is_protected(self) -> bool:
        """Whether it must not be done unless the user names it."""
        return self.is_stateful and self.action in ("replace", "delete")


@dataclass(frozen=True, slots=True)
class OutputChange:
    """The change of one output."""

    name: str
    action: Action
    sensitive: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed plan."""

    engine_version: str
    changes: tuple[Change, ...]
    """Sorted by address; without unchanged resources."""
    outputs: tuple[OutputChange, ...]
    drift: tuple[Change, ...]
    """Changes made outside of Terraform since it last refreshed."""

    def count(self, action: Action, site: str | None = None) -> int:
        """The number of resources with ``action``, in one site or in all."""
        return sum(one.action == action and site in (None, one.site) for one in self.changes)

    @property
    def has_changes(self) -> bool:
        """Whether applying it would change anything, including outputs and addresses."""
        return bool(self.outputs) or any(one.action != "read" for one in self.changes)

    @property
    def protected(self) -> tuple[Change, ...]:
        """The changes that the user must name, replacements first."""
        found = [one for one in self.changes if one.is_protected]
        return tuple(sorted(found, key=lambda one: (one.action != "replace", one.address)))

    @property
    def leaving(self) -> tuple[str, ...]:
        """The addresses whose current resource the state will no longer have."""
        found = [one for one in self.changes if one.action in ("delete", "replace", "forget")]
        return tuple(sorted(one.previous_address or one.address for one in found))

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites with changes, by name; the root (empty) last."""
        return tuple(sorted({one.site for one in self.changes}, key=lambda site: (not site, site)))


NOTHING: Final = Plan("", (), (), ())
"""The plan of an environment without cloud resources."""


def parse(
    shown: Mapping[str, Any],
    sites: Mapping[str, str],
    *,
    guarded: Container[tuple[str, str]] = frozenset(),
) -> Plan:
    """Parse the output of ``terraform show -json``.

    ``sites`` maps the root's module calls to sites: ``us_west_2`` → ``us-west-2``. ``guarded`` has (type,
    name) of the blocks with ``prevent_destroy``: they count as stateful, whatever their type.
    """
    changes = (_guarded(_change(one, sites), guarded) for one in shown.get("resource_changes", ()))
    drift = (_without_noise(_change(one, sites)) for one in shown.get("resource_drift", ()))
    return Plan(
        engine_version=str(shown.get("terraform_version", "")),
        changes=_ordered(changes),
        outputs=tuple(
            OutputChange(name, action, bool(one.get("after_sensitive") or one.get("before_sensitive")))
            for name, one in sorted(shown.get("output_changes", {}).items())
            if (action := _action(one["actions"])) != "no-op"
        ),
        drift=_ordered(one for one in drift if one.action != "update" or one.attributes),
    )


def site_of(module: str, sites: Mapping[str, str]) -> str:
    """The site of a module address: ``module.us_west_2.module.network`` → ``us-west-2``."""
    if not module:
        return ""
    outermost = module.split(".")[1].split("[")[0]
    return sites.get(outermost, outermost)


def _guarded(change: Change, guarded: Container[tuple[str, str]]) -> Change:
    if change.loss or (change.type, change.name.split("[")[0]) not in guarded:
        return change
    return replace(change, loss="its module guards it with prevent_destroy")


def _without_noise(drifted: Change) -> Change:
    """Providers may read an empty value for an attribute that is not set, which Terraform reports as
    drift."""
    return replace(drifted, attributes=tuple(one for one in drifted.attributes if not _both_empty(one)))


def _both_empty(one: Attribute) -> bool:
    return one.before in (None, "", [], {}) and one.after in (None, "", [], {})


def _ordered(changes: Iterable[Change]) -> tuple[Change, ...]:
    told = (one for one in changes if one.action != "no-op" or one.previous_address or one.importing)
    return tuple(sorted(told, key=lambda one: one.address))


def _change(one: Mapping[str, Any], sites: Mapping[str, str]) -> Change:
    change = one["change"]
    action = _action(change["actions"])
    module = str(one.get("module_address", ""))
    address = str(one["address"])
    replacing = {_path(path) for path in change.get("replace_paths", ())}
    attributes = tuple(_attributes(change, replacing)) if action in ("update", "replace") else ()
    return Change(
        address=address,
        type=str(one["type"]),
        name=_name(address, module, str(one["type"])),
        module=module,
        site=site_of(module, sites),
        actions=tuple(change["actions"]),
        action=action,
        reason=_reason(str(one.get("action_reason", "")), one.get("deposed")),
        attributes=attributes,
        loss="" if one.get("mode") == "data" else destruction.loss(str(one["type"]), change.get("before")),
        previous_address=str(one.get("previous_address", "")),
        importing="importing" in change,
    )


def _action(actions: Sequence[str]) -> Action:
    if len(actions) == 2:
        # ["create", "forget"] keeps the old resource and creates a new one.
        return "create" if "forget" in actions else "replace"
    (only,) = actions
    assert only in ("create", "update", "delete", "read", "forget", "no-op"), only
    return only  # type: ignore[return-value]  # mypy does not narrow a str by `in`


def _name(address: str, module: str, kind: str) -> str:
    return address.removeprefix(f"{module}.").removeprefix("data.").removeprefix(f"{kind}.")


def _reason(code: str, deposed: object) -> str:
    if deposed:
        return "an earlier replacement did not get to destroy it"
    return _REASONS.get(code, code.replace("_", " "))


def _attributes(change: Mapping[str, Any], replacing: set[str]) -> Iterator[Attribute]:
    yield from _walk(
        (),
        change.get("before"),
        change.get("after"),
        change.get("before_sensitive", False),
        change.get("after_sensitive", False),
        change.get("after_unknown", False),
        replacing,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """A step into a list, to a block identified by a name."""

    name: str
    place: int


_Step: TypeAlias = "str | int | _Block"


def _walk(
    path: tuple[_Step, ...],
    before: Any,
    after: Any,
    hidden_before: Any,
    hidden_after: Any,
    unknown: Any,
    replacing: set[str],
) -> Iterator[Attribute]:
    if unknown is not True and before == after and not _any(unknown):
        return
    secret = hidden_before is True or hidden_after is True
    if not secret and unknown is not True:
        found = list(_by_name(path, before, after, hidden_before, hidden_after, unknown, replacing))
        if found:
            yield from found
            return
        if isinstance(before, dict) and isinstance(after, dict):
            keys: list[str | int] = sorted(before.keys() | after.keys() | _keys(unknown))
        elif _same_shape(before, after):
            keys = list(range(len(before)))
        else:
            keys = []
        for key in keys:
            yield from _walk(
                (*path, key),
                _get(before, key),
                _get(after, key),
                _get(hidden_before, key),
                _get(hidden_after, key),
                _get(unknown, key),
                replacing,
            )
        if keys:
            return
    yield _whole(path, before, after, hidden_before, hidden_after, unknown, replacing)


def _whole(
    path: tuple[_Step, ...],
    before: Any,
    after: Any,
    hidden_before: Any,
    hidden_after: Any,
    unknown: Any,
    replacing: set[str],
) -> Attribute:
    # A value that is shown as a whole must not contain a sensitive one.
    secret = _any(hidden_before) or _any(hidden_after)
    by_place = _path(step.place if isinstance(step, _Block) else step for step in path)
    return Attribute(
        path=_path(path),
        before=SENSITIVE if secret and before is not None else before,
        after=SENSITIVE if secret and after is not None else UNKNOWN if unknown is True else after,
        replaces=any(_within(by_place, one) for one in replacing),
    )


def _by_name(
    path: tuple[_Step, ...],
    before: Any,
    after: Any,
    hidden_before: Any,
    hidden_after: Any,
    unknown: Any,
    replacing: set[str],
) -> Iterator[Attribute]:
    """The changes in blocks that are identified by a name; nothing if blocks are not, or if they move."""
    name = _NAMES.get(path[-1]) if path and isinstance(path[-1], str) else None
    first, second = _places(before, name), _places(after, name)
    if first is None or second is None:
        return
    for each in dict.fromkeys((*first, *second)):
        was, now = first.get(each), second.get(each)
        place = was if now is None else now
        assert place is not None, "it is in one of them"
        values = (
            (*path, _Block(each, place)),
            None if was is None else before[was],
            None if now is None else after[now],
            None if was is None else _get(hidden_before, was),
            None if now is None else _get(hidden_after, now),
            None if now is None else _get(unknown, now),
            replacing,
        )
        if path[-1] not in _WHOLE and was is not None and now is not None:
            yield from _walk(*values)
        elif values[1] != values[2] or _any(values[5]):
            yield _whole(*values)


def _places(blocks: Any, name: str | None) -> dict[str, int] | None:
    """A block's name → its position; None unless each has a unique name."""
    if name is None or not isinstance(blocks, list):
        return None
    names = [block.get(name) if isinstance(block, dict) else None for block in blocks]
    if not all(isinstance(each, str) for each in names) or len({*names}) < len(names):
        return None
    return {str(each): place for place, each in enumerate(names)}


def _same_shape(before: Any, after: Any) -> bool:
    """Whether both are lists of blocks that can be compared by position; lists of plain values are compared
    as a whole."""
    return (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after) > 0
        and all(isinstance(one, (dict, list)) for one in (*before, *after))
    )


def _get(value: Any, key: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return value if isinstance(value, bool) else None


def _keys(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


def _any(marks: Any) -> bool:
    if isinstance(marks, dict):
        return any(map(_any, marks.values()))
    if isinstance(marks, list):
        return any(map(_any, marks))
    return marks is True


def _path(parts: Iterable[_Step]) -> str:
    text = ""
    for part in parts:
        if isinstance(part, _Block):
            text += f"[{part.name}]"
        else:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _within(path: str, of: str) -> bool:
    return path == of or path.startswith((f"{of}.", f"{of}[")) or of.startswith((f"{path}.", f"{path}["))
