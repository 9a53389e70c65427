"""Finds changes made outside of Terraform, from a plan's JSON. Pure.

A plan compares the real resources with the state (``resource_drift``) and with the configuration
(``resource_changes``). The second is drift too if the configuration is the one last applied, because an
apply writes into the state whatever it reads, no matter who changed it.

Some changes are in neither once an apply has read them (Terraform ignores the attribute, or AWS computes
it). They are recorded as rows before that apply and compared from then on, until they are reverted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from infra.drive.plan import UNKNOWN, Attribute, Change, parse

Row: TypeAlias = Mapping[str, Any]
"""An attribute that was changed outside of Terraform, as JSON: ``{"type", "id", "attribute", "was"}``."""

ECHOES: Final[Mapping[str, frozenset[str]]] = {
    "aws_autoscaling_group": frozenset({"desired_capacity", "predicted_capacity", "warm_pool_size"}),
    "aws_db_instance": frozenset({"latest_restorable_time"}),
    "aws_efs_file_system": frozenset({"number_of_mount_targets", "size_in_bytes"}),
    "aws_eip": frozenset({"association_id", "instance", "network_interface", "private_dns", "private_ip"}),
    "aws_iam_role": frozenset({"inline_policy", "managed_policy_arns"}),
    "aws_lb_target_group": frozenset({"load_balancer_arns"}),
    "aws_route53_zone": frozenset({"vpc"}),
    "aws_route_table": frozenset({"propagating_vgws", "route"}),
    "aws_s3_bucket": frozenset(
        {
            "acceleration_status", "cors_rule", "grant", "lifecycle_rule", "logging", "policy",
            "replication_configuration", "request_payer", "server_side_encryption_configuration",
            "versioning", "website", "website_domain", "website_endpoint",
        }
    ),
    "aws_security_group": frozenset({"egress", "ingress"}),
    "aws_vpc_endpoint": frozenset({"cidr_blocks", "dns_entry", "network_interface_ids"}),
    "aws_vpc_peering_connection": frozenset({"accepter", "requester"}),
    "aws_vpc_peering_connection_accepter": frozenset({"accepter", "requester"}),
    "aws_vpn_connection": frozenset({"routes", "vgw_telemetry"}),
}  # fmt: skip
"""Type → attributes that are not drift: they repeat another resource, which is compared itself (a rule in
its group) or listed by `infra.drive.undeclared`; or AWS changes them: sizes, telemetry, and what the
autoscaler sets."""

ALWAYS_SET: Final[Mapping[str, frozenset[str]]] = {
    "aws_vpc": frozenset(
        {
            "default_network_acl_id",
            "default_route_table_id",
            "default_security_group_id",
            "main_route_table_id",
        }
    ),
}
"""Type → attributes that AWS always sets. If one is empty in the state, it could not be read when the state
was written, as AWS is eventually consistent: a value that appears later is not a change."""


def changes(shown: Mapping[str, Any], sites: Mapping[str, str]) -> tuple[Change, ...]:
    """The resources that were changed, by address, with their attributes before and now.

    ``shown`` is a plan as ``terraform show -json`` prints it, ``sites`` as in `infra.drive.plan.parse`.
    """
    plan = parse(shown, sites)
    found = {one.address: kept for one in map(_read, plan.drift) for kept in _telling(one)}
    newer = frozenset(_newer(shown))
    for one in plan.changes:
        if one.action not in ("update", "replace"):
            continue  # a deleted resource is in the drift already; one that never existed is not drift
        before = found.get(one.address)
        seen = {_top(each) for each in before.attributes} if before else set()
        more = tuple(
            Attribute(each.path, each.after, each.before, replaces=False)
            for each in one.attributes
            if each.after != UNKNOWN and str(each.after) not in newer and _top(each) not in seen
        )
        for kept in _telling(replace(one, action="update", reason="", loss="", attributes=more)):
            attributes = (*before.attributes, *kept.attributes) if before else kept.attributes
            found[one.address] = replace(before or kept, attributes=attributes)
    echoes = dict.fromkeys(_reached(_there(shown)), _ADDRESS)
    return tuple(kept for address in sorted(found) for kept in _telling(found[address], echoes))


def lasting(
    shown: Mapping[str, Any], known: Iterable[Row], made: Container[str] = frozenset()
) -> tuple[Row, ...]:
    """The changes that applying this plan leaves in place; ``known`` are earlier rows.

    ``made`` are addresses that a failed apply created: their values are not known before they are read
    again, as AWS is eventually consistent. Sensitive attributes are not recorded, as the ledger must not
    contain secrets.
    """
    planned = {one["address"]: one["change"] for one in shown.get("resource_changes", ())}
    there = _there(shown)
    reached = _reached(there)
    rows = {(row["type"], row["id"], row["attribute"]): row for row in known}
    found = {key: row for key, row in rows.items() if _differs(there.get((row["type"], row["id"])), row)}
    for one in shown.get("resource_drift", ()):
        change = one["change"]
        if change["actions"] != ["update"] or one.get("mode") == "data" or one["address"] in made:
            continue
        before, after = change["before"], change["after"]
        plan = planned.get(one["address"], {"actions": ["no-op"]})
        echoes = ECHOES.get(one["type"], frozenset()) | (_ADDRESS if one["address"] in reached else set())
        for name in sorted(before):
            told = name not in echoes | {"tags_all"} and not _same(before[name], after.get(name))
            told = told and not _unread(one["type"], name, before[name])
            secret = any(
                _marked((change.get(f"{side}_sensitive") or {}), name) for side in ("before", "after")
            )
            if told and not secret and not _restored(plan, name):
                key = one["type"], before.get("id"), name
                if key not in rows:  # otherwise keep the earlier value
                    found[key] = {"type": key[0], "id": key[1], "attribute": name, "was": before[name]}
    return tuple(found[key] for key in sorted(found, key=str))


def named(shown: Mapping[str, Any], sites: Mapping[str, str], rows: Iterable[Row]) -> tuple[Change, ...]:
    """The rows that still hold, as changes with the attributes before and now."""
    there = _there(shown)
    told: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = there.get((row["type"], row["id"]))
        if one is None or not _differs(one, row):
            continue
        module = one["address"].rpartition(f"{one['type']}.")[0].rstrip(".")
        change = {"actions": ["update"], "before": {}, "after": {}}
        entry = told.setdefault(one["address"], {**one, "module_address": module, "change": change})
        entry["change"]["before"][row["attribute"]] = row["was"]
        entry["change"]["after"][row["attribute"]] = one["values"].get(row["attribute"])
    return parse({"resource_drift": [told[address] for address in sorted(told)]}, sites).drift


def without_undone(
    changes: Iterable[Change], shown: Mapping[str, Any], rows: Iterable[Row]
) -> tuple[Change, ...]:
    """The changes without those that only restore the value recorded in a row."""
    there = _there(shown)
    undone = {
        (one["address"], row["attribute"])
        for row in rows
        if (one := there.get((row["type"], row["id"]))) is not None and not _differs(one, row)
    }
    kept = []
    for change in changes:
        attributes = tuple(each for each in change.attributes if (change.address, _top(each)) not in undone)
        if attributes or change.action != "update":
            kept.append(replace(change, attributes=attributes))
    return tuple(kept)


def together(some: Iterable[Change], more: Iterable[Change]) -> tuple[Change, ...]:
    """``some``, plus the attributes of ``more`` that are not in it, by address."""
    found = {one.address: one for one in some}
    for one in more:
        before = found.get(one.address)
        if before is None:
            found[one.address] = one
            continue
        seen = {_top(each) for each in before.attributes}
        fresh = tuple(each for each in one.attributes if _top(each) not in seen)
        if before.action == "update" and fresh:
            found[one.address] = replace(before, attributes=(*before.attributes, *fresh))
    return tuple(found[address] for address in sorted(found))


def _there(shown: Mapping[str, Any]) -> dict[tuple[str, Any], Mapping[str, Any]]:
    """Type and id → the resource, as it is in AWS now."""
    modules = [shown.get("prior_state", {}).get("values", {}).get("root_module", {})]
    found = {}
    for module in modules:
        modules += module.get("child_modules", ())
        for one in module.get("resources", ()):
            if one["mode"] == "managed":
                found[one["type"], one["values"].get("id")] = one
    return found


_ADDRESS: Final = frozenset({"public_dns", "public_ip"})


def _reached(there: Mapping[tuple[str, Any], Mapping[str, Any]]) -> frozenset[str]:
    """Instances in `_there` whose public address is an Elastic IP address that we associated: the
    association is compared itself. If an apply fails after associating it, the state has the instance's
    earlier address."""
    given = {
        ("aws_instance", one["values"].get("instance_id")): there.get(
            ("aws_eip", one["values"].get("allocation_id"))
        )
        for (kind, _), one in there.items()
        if kind == "aws_eip_association"
    }
    return frozenset(
        there[key]["address"]
        for key, eip in given.items()
        if eip and key in there and there[key]["values"].get("public_ip") == eip["values"]["public_ip"]
    )


def _differs(one: Mapping[str, Any] | None, row: Row) -> bool:
    """Whether a resource exists and differs from the row. A resource that was replaced does not differ."""
    return one is not None and not _same(one["values"].get(row["attribute"]), row["was"])


def _same(one: Any, other: Any) -> bool:
    return one == other or (one in _EMPTY and other in _EMPTY)


_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def _marked(marks: Any, name: str) -> bool:
    """Whether an attribute, or anything in it, is sensitive."""
    if marks is True:
        return True
    marks = [marks.get(name)] if isinstance(marks, dict) else []
    for one in marks:
        if one is True:
            return True
        marks += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return False


def _restored(planned: Mapping[str, Any], name: str) -> bool:
    """Whether a planned change replaces the resource, deletes it, or sets the attribute."""
    if "delete" in planned["actions"] or "forget" in planned["actions"]:
        return True
    if planned["actions"] != ["update"]:
        return False
    # A value that AWS computes again in the update, such as a version number, is not drift.
    decided = (planned.get("after_unknown") or {}).get(name) is True
    return decided or planned["before"].get(name) != planned["after"].get(name)


def _unread(kind: str, name: str, before: Any) -> bool:
    """Whether the state had no value for an attribute that AWS always sets."""
    return before in _EMPTY and name in ALWAYS_SET.get(kind, frozenset())


def _read(change: Change) -> Change:
    """The change without attributes that were only read now."""
    read = (each for each in change.attributes if not _unread(change.type, each.path, each.before))
    return replace(change, attributes=tuple(read))


def _telling(change: Change, more: Mapping[str, frozenset[str]] = MappingProxyType({})) -> Iterator[Change]:
    """The change without irrelevant attributes; nothing if none remain. ``more`` are further echoes by
    address."""
    echoes = ECHOES.get(change.type, frozenset()) | more.get(change.address, frozenset())
    kept = tuple(one for one in change.attributes if _top(one) not in echoes | {"tags_all"})
    if kept or change.action != "update":
        yield replace(change, attributes=kept)


def _top(attribute: Attribute) -> str:
    """The attribute's first part: ``tags`` of ``tags.Name``."""
    return attribute.path.split("[")[0].split(".")[0]


def _newer(shown: Mapping[str, Any]) -> Iterator[str]:
    """Values of data sources that no resource has yet: the id of a newer image is not drift."""
    modules = [shown.get("prior_state", {}).get("values", {}).get("root_module", {})]
    for module in modules:
        modules += module.get("child_modules", ())
        for one in module.get("resources", ()):
            if one["mode"] == "data" and one["type"] == "aws_ami":
                yield str(one["values"].get("id"))
