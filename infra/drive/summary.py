"""A short summary of a plan: data loss, changes by site, and costs. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.drive.cost import Cost, Range
from infra.drive.destruction import covers
from infra.drive.plan import CANNOT_UPDATE, UNKNOWN, Action, Attribute, Change, Plan
from infra.drive.structure import difference
from infra.drive.undeclared.model import Undeclared

_COLUMNS: Final[tuple[tuple[Action, str, str], ...]] = (
    ("create", "added", "+"),
    ("update", "changed", "~"),
    ("replace", "replaced", "±"),
    ("delete", "destroyed", "-"),
)
_SHARED = "shared"
"""The heading of resources of the root module, which belong to no site."""
_VALUE = 60
"""Characters of a value that are shown."""
_NAMED = 12
"""Resources listed individually, per site and action; more are grouped by type."""
_ATTRIBUTES = 4
"""Attributes shown per resource."""
_DIFFERENCES = 8
"""Lines of a structural difference shown per attribute."""
_WIDTH = 100
_LIFE_CYCLE: Final = {
    "transition": "moves objects",
    "expiration": "deletes objects",
    "noncurrent_version_transition": "moves old versions",
    "noncurrent_version_expiration": "deletes old versions",
    "abort_incomplete_multipart_upload": "ends unfinished uploads",
}
"""Blocks of a bucket's lifecycle rule → what they do."""
_TELLING: Final = frozenset(
    {
        "aws_autoscaling_group",
        "aws_ec2_transit_gateway",
        "aws_efs_file_system",
        "aws_instance",
        "aws_lb",
        "aws_nat_gateway",
        "aws_route53_zone",
        "aws_s3_bucket",
        "aws_vpc",
        "aws_vpc_peering_connection",
        "aws_vpn_connection",
        "aws_vpn_gateway",
    }
)
"""Resource types that users think in terms of; the others only connect these."""


def text(
    plan: Plan,
    *,
    environment: str,
    cost: Cost | None = None,
    notes: Sequence[str] = (),
    named: Iterable[str] = (),
    undeclared: Sequence[Undeclared] = (),
    lasting: Sequence[Change] = (),
) -> str:
    """The summary as text, without colours and without a final newline.

    ``notes`` are sentences that come first, from the spec's update policies. ``named`` are the addresses
    that the user agreed to lose; ``undeclared`` are undeclared settings, and ``lasting`` changes made
    outside of Terraform that an apply leaves in place.
    """
    if not plan.has_changes and not undeclared:
        but = ", but for what an apply leaves as it is" if lasting else ""
        lines = [f"No changes: {environment} is as its spec says{but}."]
        return "\n".join([*lines, *_notes(notes), *_lasting(lasting), *_cost(cost)])
    lines = [f"{environment}: {_headline(plan, undeclared)}"]
    lines += _notes(notes)
    lines += _losses(plan, tuple(named))
    lines += undeclared_lines(undeclared)
    lines += _lasting(lasting)
    lines += _table(plan)
    for site in plan.sites:
        lines += _site(plan, site)
    lines += _outputs(plan)
    lines += _cost(cost)
    return "\n".join(lines)


def to_json(
    plan: Plan,
    *,
    environment: str,
    cost: Cost | None = None,
    notes: Sequence[str] = (),
    undeclared: Sequence[Undeclared] = (),
    lasting: Sequence[Change] = (),
) -> dict[str, Any]:
    """The same for programs. Keys are only ever added.

    ``{"environment", "has_changes", "counts": {added, changed, replaced, destroyed}, "notes": [str],
    "sites": {site: counts}, "protected": [address], "changes": [{"address", "previous_address", "type",
    "name", "module", "site", "action", "reason", "loss", "attributes": [{"path", "before", "after",
    "replaces", "difference": [str]}]}], "undeclared": [{"address", "kind", "id", "what", "removed"}],
    "lasting": [as in changes], "outputs": [{"name", "action", "sensitive"}], "cost": null or {"currency",
    "dated", "before": {"low", "high"}, "after": {"low", "high"}, "sites", "unknown"}}``.
    The root module's site is the empty string. Sensitive values are masked.
    """
    return {
        "environment": environment,
        "has_changes": plan.has_changes or any(one.removal for one in undeclared),
        "counts": _counts(plan, None),
        "notes": list(notes),
        "sites": {site: _counts(plan, site) for site in plan.sites},
        "protected": [one.address for one in plan.protected],
        "changes": [change_json(one) for one in plan.changes],
        "undeclared": [
            {
                "address": one.holder,
                "kind": one.kind,
                "id": one.id,
                "what": one.what,
                "removed": one.removal is not None,
            }
            for one in undeclared
        ],
        "lasting": [change_json(one) for one in lasting],
        "outputs": [
            {"name": one.name, "action": one.action, "sensitive": one.sensitive} for one in plan.outputs
        ],
        "cost": cost.to_json() if cost else None,
    }


def change_json(one: Change) -> dict[str, Any]:
    """One change, as in `to_json`."""
    return {
        "address": one.address,
        "previous_address": one.previous_address or None,
        "type": one.type,
        "name": one.name,
        "module": one.module,
        "site": one.site,
        "action": one.action,
        "reason": one.reason,
        "loss": one.loss,
        "attributes": [
            {
                "path": each.path,
                "before": each.before,
                "after": each.after,
                "replaces": each.replaces,
                "difference": list(found.lines if (found := difference(each.before, each.after)) else ()),
            }
            for each in one.attributes
        ],
    }


def drift_text(
    drift: Sequence[Change], undeclared: Sequence[Undeclared] = (), *, environment: str, options: str
) -> str:
    """All differences between AWS and the state, and all undeclared settings; ``options`` select the
    environment on a command line."""
    if not drift and not undeclared:
        return f"No drift: {environment} is as it was last left."
    counts = [f"{_many(len(drift), 'resource')} changed outside of Terraform"] if drift else []
    counts += [f"{len(undeclared)} undeclared"] if undeclared else []
    lines = [f"{environment}: {', '.join(counts)}"]
    for one in drift:
        gone = one.action == "delete"
        lines.append(f"  {'-' if gone else '~'} {one.address}{' is gone' if gone else ''}")
        lines += [f"      {line}" for line in _attributes(one.attributes, at_most=len(one.attributes))]
    lines += [line for line in undeclared_lines(undeclared) if line]
    lines.append(f"`invoke plan {options}` shows the changes that restore it.")
    return "\n".join(lines)


def drift_json(drift: Sequence[Change], undeclared: Sequence[Undeclared] = ()) -> list[dict[str, Any]]:
    """The same as JSON: changes as in `to_json`. An undeclared setting has the action ``undeclared``, the
    address of the resource it is on, and its full description as the reason."""
    return [
        *(change_json(one) for one in drift),
        *(
            {
                "address": one.holder,
                "previous_address": None,
                "type": one.kind,
                "name": one.id,
                "module": "",
                "site": one.site,
                "action": "undeclared",
                "reason": one.what,
                "loss": "",
                "attributes": [],
            }
            for one in undeclared
        ),
    ]


def undeclared_lines(undeclared: Sequence[Undeclared]) -> list[str]:
    """All undeclared settings: first those that the apply removes, then the others."""
    lines = []
    for heading, sign, those in (
        ("Not in the spec; the apply removes it:", "-", [one for one in undeclared if one.removal]),
        ("Not in the spec; delete it by hand:", "!", [one for one in undeclared if not one.removal]),
    ):
        if those:
            lines += ["", heading, *(f"  {sign} {one.holder}: {one.kind} {one.what}" for one in those)]
    return lines


# -- parts -----------------------------------------------------------------------------------------------


def _headline(plan: Plan, undeclared: Sequence[Undeclared]) -> str:
    said = [f"{count} {word}" for action, word, _ in _COLUMNS if (count := plan.count(action))]
    moved = sum(bool(one.previous_address) for one in plan.changes)
    imported = sum(one.importing for one in plan.changes)
    forgotten = plan.count("forget")
    for count, word in ((moved, "moved"), (imported, "imported"), (forgotten, "forgotten")):
        if count:
            said.append(f"{count} {word}")
    if undeclared:
        said.append(f"{len(undeclared)} not in the spec")
    return ", ".join(said) or "only outputs change"


def _notes(notes: Sequence[str]) -> list[str]:
    return ["", *notes] if notes else []


def _losses(plan: Plan, named: tuple[str, ...]) -> list[str]:
    if not plan.protected:
        return []
    lines = ["", "Cannot be recovered:"]
    for one in plan.protected:
        verb = "replaced" if one.action == "replace" else "destroyed"
        agreed = " (named)" if covers(named, one.address) else ""
        lines.append(f"  ! {one.address} is {verb}{agreed}: {one.loss}")
        lines += [f"      {line}" for line in _why(one)]
    return lines


def _table(plan: Plan) -> list[str]:
    rows = [("", *(word for _, word, _ in _COLUMNS))]
    for site in plan.sites:
        counts = [plan.count(action, site) for action, _, _ in _COLUMNS]
        if any(counts):
            rows.append((site or _SHARED, *(str(count or "·") for count in counts)))
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [""]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(widths[at]) for at, cell in enumerate(row[1:], 1))]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _site(plan: Plan, site: str) -> list[str]:
    lines = []
    here = [one for one in plan.changes if one.site == site]
    # Losses are listed at the top, with their reasons.
    for action, _, sign in reversed(_COLUMNS):
        told = [one for one in here if one.action == action and not one.is_protected]
        if action == "create" or len(told) > _NAMED:
            lines += _grouped(told, sign)
            continue
        for those in _alike(told):
            lines.append(f"  {sign} {_local(those[0]) if len(those) == 1 else _named(those[0].type, those)}")
            lines += [f"      {line}" for line in _why(*those)]
    for one in here:
        if one.previous_address:
            lines.append(f"  → {one.address} (moved from {one.previous_address})")
        if one.action == "forget":
            lines.append(f"  . {_local(one)} is no longer managed; it stays as it is")
        if one.importing:
            lines.append(f"  < {_local(one)} is imported")
    return ["", site or _SHARED, *lines] if lines else []


def _grouped(changes: Sequence[Change], sign: str) -> list[str]:
    """A line per type in `_TELLING`, with names; the other types as one paragraph of counts.

    For changed or replaced resources, the attributes are listed too, as one edit often changes many.
    """
    types: dict[str, list[Change]] = {}
    for one in changes:
        types.setdefault(one.type, []).append(one)
    lines, plumbing = [], []
    for kind, those in sorted(types.items()):
        paths = sorted({each.path for one in those for each in _blamed(one)})
        if len(changes) <= _NAMED or kind in _TELLING or paths:
            lines.append(f"  {sign} {_named(kind, those)}" + (f"; {_listed(paths)}" if paths else ""))
        else:
            plumbing.append(f"{kind} ({len(those)})" if len(those) > 1 else kind)
    paragraph = textwrap.wrap(
        ", ".join(plumbing),
        _WIDTH,
        initial_indent=f"  {sign} ",
        subsequent_indent="    ",
        break_long_words=False,
    )
    return lines + paragraph


def _named(kind: str, those: Sequence[Change]) -> str:
    """``aws_autoscaling_group (2): cpu, gpu``, cut to the width with a count of the rest."""
    line = f"{kind} ({len(those)}): " if len(those) > 1 else f"{kind}: "
    shown: list[str] = []
    for one in those:
        label = _label(one)
        if shown and len(line) + sum(len(each) + 2 for each in [*shown, label]) > _WIDTH:
            break
        shown.append(label)
    rest = len(those) - len(shown)
    return line + ", ".join(shown) + (f" and {rest} more" if rest else "")


def _label(one: Change) -> str:
    """The name that distinguishes a resource from others of its type, with the keys of its modules.

    ``module.us_west_2.module.pool["gpu"].aws_autoscaling_group.this`` → ``pool["gpu"]``.
    """
    around = one.module.split(".module.")[1:]
    keyed = [module for module in around if "[" in module]
    plain = one.name in ("this", "main")
    kept = keyed or (around[-1:] if plain else [])
    return ".".join(kept if kept and plain else [*kept, one.name])


def _local(one: Change) -> str:
    """The address without the site's module, which is in the heading."""
    parts = one.address.split(".", 2)
    return parts[2] if one.module and "[" not in parts[1] else one.address


def _alike(changes: Iterable[Change]) -> list[list[Change]]:
    """Changes of one type, grouped if their policies, or user data, differ by the same words."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for one in changes:
        found = [(each.path, difference(each.before, each.after)) for each in _blamed(one)]
        said = [f"{path} {each.names if each else ''}".strip() for path, each in found]
        same = one.action == "update" and all(each and each.names for _, each in found)
        groups.setdefault((one.type, *said) if same else (one.address,), []).append(one)
    return list(groups.values())


def _why(one: Change, *more: Change) -> list[str]:
    if more:
        pairs = ((each.path, difference(each.before, each.after)) for each in _blamed(one))
        return [f"{path} {found.names}" for path, found in pairs if found]
    if one.action == "update":
        return _attributes(_blamed(one))
    if one.action == "replace" and one.reason == CANNOT_UPDATE and _blamed(one):
        return [f"because of {line}" for line in _attributes(_blamed(one))]
    return [f"because {one.reason}"] if one.reason else []


def _blamed(one: Change) -> list[Attribute]:
    """The attributes to list: those that cause the replacement, or all that change."""
    told = [each for each in one.attributes if each.replaces or one.action != "replace"]
    # Values known only after the apply follow from others, and are listed only if there are no others.
    return [each for each in told if each.after != UNKNOWN] or told


def _listed(paths: Sequence[str]) -> str:
    rest = len(paths) - _ATTRIBUTES
    return ", ".join(paths[:_ATTRIBUTES]) + (f" and {rest} more" if rest > 0 else "")


def _lasting(lasting: Sequence[Change]) -> list[str]:
    if not lasting:
        return []
    lines = [
        "",
        "Changed outside of Terraform, and not reverted by an apply; to revert it, change it in AWS:",
    ]
    for one in lasting:
        lines.append(f"  ~ {one.address}")
        lines += [f"      {line}" for line in _attributes(one.attributes, at_most=len(one.attributes))]
    return lines


def _attributes(attributes: Sequence[Attribute], *, at_most: int = _ATTRIBUTES) -> list[str]:
    lines = [line for one in attributes[:at_most] for line in _attribute(one)]
    if len(attributes) > at_most:
        lines.append(f"and {len(attributes) - at_most} more")
    return lines


def _attribute(one: Attribute) -> list[str]:
    if one.path.startswith("rule[") and (told := [_life_cycle(one.before), _life_cycle(one.after)]) != [
        "",
        "",
    ]:
        return [f"{one.path}: {' → '.join(each or 'none' for each in told)}"]
    found = difference(one.before, one.after)
    before, after = _value(one.before), _value(one.after)
    short = isinstance(one.before, list) and not (before + after).count("…")
    if found is None or short:
        return [f"{one.path}: {before} → {after}"]
    if isinstance(one.before, list):
        return [f"{one.path}{line}" for line in found.lines]
    rest = len(found.lines) - _DIFFERENCES
    lines = [f"{one.path}: {found.names}" if found.names else f"{one.path}:"]
    lines += [
        f"  {line if len(line) <= _WIDTH else line[: _WIDTH - 1] + '…'}"
        for line in found.lines[:_DIFFERENCES]
    ]
    return [*lines, f"  and {rest} more"] if rest > 0 else lines


def _life_cycle(rule: Any) -> str:
    """What a bucket's lifecycle rule does; empty if it is not a rule."""
    if not isinstance(rule, dict) or not {"id", "status", "filter"} <= rule.keys():
        return ""

    def blocks(name: str) -> list[dict[str, Any]]:
        return [each for each in rule.get(name) or () if each]

    conditions = [*map(_condition, blocks("filter")), _prefix(rule.get("prefix"))]
    where = "".join(f" {each}" for each in conditions if each)
    done = [
        f"{verb}{where}{_to(each)}{_when(each)}"
        for name, verb in _LIFE_CYCLE.items()
        for each in blocks(name)
        if not each.get("expired_object_delete_marker")
    ]
    if any(each.get("expired_object_delete_marker") for each in blocks("expiration")):
        done.append(f"removes delete markers{where} that stand alone")
    return f"{', '.join(done) or 'does nothing'}{'' if rule['status'] == 'Enabled' else ' (off)'}"


def _to(block: Mapping[str, Any]) -> str:
    return f" to {block['storage_class']}" if block.get("storage_class") else ""


def _when(block: Mapping[str, Any]) -> str:
    days = block.get("days") or block.get("noncurrent_days") or block.get("days_after_initiation")
    newer = block.get("newer_noncurrent_versions")
    kept = f", beyond the newest {newer}" if newer else ""
    if block.get("date"):
        return f" on {str(block['date'])[:10]}{kept}"
    return f" after {_many(int(days), 'day')}{kept}" if days else kept


def _condition(block: Mapping[str, Any]) -> str:
    """``under runs/``; unusual conditions as they are."""
    others = {
        name: value for name, value in block.items() if name != "prefix" and value not in (None, "", [], {})
    }
    said = [_prefix(block.get("prefix")), f"where {_value(others)}" if others else ""]
    return " ".join(each for each in said if each)


def _prefix(prefix: Any) -> str:
    return f"under {prefix}" if prefix else ""


def _value(value: Any) -> str:
    if isinstance(value, str) and value.startswith("("):
        return value  # (sensitive), (known after apply)
    if value is None:
        return "none"
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= _VALUE else f"{shown[: _VALUE - 1]}…"


def _outputs(plan: Plan) -> list[str]:
    if not plan.outputs:
        return []
    return ["", f"Outputs that change: {', '.join(one.name for one in plan.outputs)}"]


def _cost(cost: Cost | None) -> list[str]:
    if cost is None:
        return []
    if money_range(cost.before) == money_range(cost.after):
        lines = ["", f"Monthly cost: {money_range(cost.after)}, unchanged"]
    else:
        low, high = cost.after.low - cost.before.low, cost.after.high - cost.before.high
        lines = ["", f"Monthly cost: {money_range(cost.before)} → {money_range(cost.after)}"]
        change = (
            _signed(low) if round(low) == round(high) else f"{_signed(low)} at min, {_signed(high)} at max"
        )
        lines[-1] += f" ({change})"
        for site, (before, after) in sorted(cost.sites.items()):
            if money_range(before) != money_range(after) and len(cost.sites) > 1:
                lines.append(f"  {site or _SHARED}: {money_range(before)} → {money_range(after)}")
    lines.append(
        f"  An estimate from list prices of {cost.dated}; without traffic, storage use and discounts."
    )
    if cost.unknown:
        lines.append(f"  Not counted, no price known: {', '.join(cost.unknown)}")
    return lines


def money_range(amount: Range) -> str:
    """``$1,204``, or ``$1,204 at min, $9,800 at max`` when groups can grow."""
    if round(amount.low) == round(amount.high):
        return f"${amount.low:,.0f}"
    return f"${amount.low:,.0f} at min, ${amount.high:,.0f} at max"


def _signed(amount: float) -> str:
    return f"{'-' if amount < 0 else '+'}${abs(amount):,.0f}"


def _counts(plan: Plan, site: str | None) -> dict[str, int]:
    return {word: plan.count(action, site) for action, word, _ in _COLUMNS}


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
