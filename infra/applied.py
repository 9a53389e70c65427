"""Compares a spec with the one that was last applied: what changed, and whether the change is allowed.

Each field carries its update policy (``infra.schema.base``). The resolved values are compared, not the
text: stating the block that a VPC already has changes nothing, while losing the lock file does.

``snapshot`` is the record of an apply; ``changes`` compares it with the current spec; ``refused`` turns
changes that are impossible on a live cluster into problems; ``lines`` describes the others in the plan's
summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, Final

from pydantic import BaseModel

from infra.errors import Path, Position, Problem, dotted
from infra.model import Cluster
from infra.schema import Spec
from infra.schema.base import IN_PLACE, Policy, Update, policy_of
from infra.schema.defaults import primary_of
from infra.schema.formatting import hints, item_of, models, part_of, plain, spelled
from infra.schema.sites import AwsSite

CODE: Final = "UPD001"
"""A field that cannot change after the first apply was changed."""

_NO_VALUES: Final = frozenset({"extends", "version", "waivers"})
"""Keys about how the spec is written, not about the cluster."""


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs from the last apply."""

    path: Path
    old: str | None
    """In the spec's notation; None if it is new."""
    new: str | None
    """None if it was removed."""
    policy: Update
    why: str
    """The reason given by the update policy; may be empty."""
    instead: str = ""
    """The alternative to a change that is refused."""
    written: bool = True
    """Whether the spec states the new value; else it was decided by ``resolve``."""

    @property
    def forbidden(self) -> bool:
        """Whether a live cluster cannot change this way. Adding or removing something as a whole does not
        change existing resources."""
        return self.policy is Update.NEVER and self.old is not None and self.new is not None

    @property
    def what(self) -> str:
        """``10.0.0.0/16 -> 10.9.0.0/16``, ``added``, ``removed``."""
        if self.old is None:
            return "added"
        return "removed" if self.new is None else f"{self.old} -> {self.new}"


def snapshot(spec: Spec, cluster: Cluster) -> dict[str, Any]:
    """The record of an apply: every value, stated, default or decided, as JSON."""
    return _decided(spec, cluster)


def changes(before: Mapping[str, Any], spec: Spec, cluster: Cluster | None = None) -> tuple[Change, ...]:
    """The differences between the ``snapshot`` of the last apply and a spec, in the spec's order.

    Without the ``cluster``, values decided by ``resolve`` count as unknown: that suffices for ``refused``,
    which can then run before ``resolve``. In a snapshot of an older version of the language, missing fields
    have their defaults.
    """
    comparison = Comparison(plain(spec))
    found = comparison.parts(Spec, before, _decided(spec, cluster), (), None)
    return (
        *(change for change in found if change.path[0] not in _NO_VALUES),
        *_another_primary(before, spec),
    )


def _another_primary(before: Mapping[str, Any], spec: Spec) -> Iterator[Change]:
    """The primary region replaced by a new site. If the site existed before, ``primary`` itself changes."""
    sites: Mapping[str, Mapping[str, Any]] = before.get("sites") or {}
    old = next((name for name, site in sites.items() if site.get("primary")), None)
    new = primary_of(spec)
    if old is not None and new is not None and new not in sites and old not in spec.sites:
        policy = policy_of(AwsSite, "primary")
        instead = "start a new environment with it"
        yield Change(("sites", new, "primary"), old, new, policy.update, policy.because, instead)


def refused(
    found: Iterable[Change], position_of: Callable[[Path], Position | None] = lambda _path: None
) -> tuple[Problem, ...]:
    """An UPD001 error for each change that a live cluster does not allow."""
    return tuple(
        Problem(
            CODE, dotted(change.path), _message(change), position=position_of(change.path), hint=_hint(change)
        )
        for change in found
        if change.forbidden
    )


def lines(found: Iterable[Change]) -> tuple[str, ...]:
    """A line for each change that will be made, replacements first."""
    replaced, rolled = [], []
    for change in found:
        start = f"{dotted(change.path)}: {change.what}"
        because = f" ({change.why})" if change.why else ""
        if change.policy is Update.REPLACES:
            replaced.append(f"{start}: replaces what it made{because}")
        elif change.policy is Update.ROLLING:
            rack = change.path[0] == "sites"  # nobody replaces its machines: invoke converge changes them
            when = (
                "when its machines converge"
                if rack
                else "new nodes start with it, running ones stay as they are"
            )
            rolled.append(f"{start}: rolling: {when}{because}")
    return (*replaced, *rolled)


def _message(change: Change) -> str:
    why = change.why
    if why.startswith("can't"):
        return f"{why} ({change.what})"
    return f"can't change after the first apply ({change.what}){f': {why}' if why else ''}"


def _hint(change: Change) -> str:
    back = (
        f"put back {change.old}"
        if change.written
        else f"write {change.old} there; if the lock file was lost, restore it"
    )
    return f"{back}, or {change.instead}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares both recursively, following the structure of the language."""

    written: Mapping[str, Any]

    def parts(
        self,
        part: type[BaseModel],
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        path: Path,
        entry: Path | None,
    ) -> Iterator[Change]:
        """``entry`` is the path of the outermost named item that contains ``path``: ``sites.us-west-2``."""
        annotations = hints(part)
        for field, info in part.model_fields.items():
            if field in old:
                before = old[field]
            else:
                before = None if info.is_required() else plain(info.get_default(call_default_factory=True))
            yield from self.values(
                annotations[field], before, new.get(field), (*path, field), entry, policy_of(part, field)
            )

    def values(
        self, annotation: Any, old: Any, new: Any, path: Path, entry: Path | None, policy: Policy
    ) -> Iterator[Change]:
        if old == new:
            return
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if part := part_of(annotation, old.get("kind")):
                if part is part_of(annotation, new.get("kind")):
                    yield from self.parts(part, old, new, path, entry)
                else:  # another kind with the same name: the other fields cannot be compared
                    kind = hints(part)["kind"], old["kind"], new["kind"], (*path, "kind")
                    yield self.change(*kind, entry, policy_of(part, "kind"))
                return
            item = item_of(annotation, dict)
            named = bool(models(item)) if item is not None else False
            for key in dict.fromkeys((*old, *new)):
                inner = (*path, key)
                within = entry or (inner if named else None)
                yield from self.values(item, old.get(key), new.get(key), inner, within, policy)
            return
        item = item_of(annotation, tuple)
        if item is not None and models(item) and isinstance(old, list) and isinstance(new, list):
            for index in range(max(len(old), len(new))):
                before, after = (values[index] if index < len(values) else None for values in (old, new))
                yield from self.values(item, before, after, (*path, index), entry, policy)
            return
        appended = isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old
        if policy.update is Update.REPLACES and appended:
            policy = IN_PLACE  # as with a whole entry: what the others made stays
        yield self.change(annotation, old, new, path, entry, policy)

    def change(
        self, annotation: Any, old: Any, new: Any, path: Path, entry: Path | None, policy: Policy
    ) -> Change:
        instead = policy.instead or (
            f"add another beside {dotted(entry)} with it, move over, and take that one out"
            if entry
            else "start a new environment with it"
        )
        return Change(
            path=path,
            old=None if old is None else spelled(annotation, old),
            new=None if new is None else spelled(annotation, new),
            policy=policy.update,
            why=policy.because,
            instead=instead,
            written=self.says(path),
        )

    def says(self, path: Path) -> bool:
        """Whether the spec states a value there."""
        value: Any = self.written
        for key in path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return False
        return value is not None


def _decided(spec: Spec, cluster: Cluster | None) -> dict[str, Any]:
    """The spec's values, with decided values in place of those left open."""
    values: dict[str, Any] = plain(spec)
    aws = {name: site for name, site in values["sites"].items() if site["kind"] == "aws"}
    for name, site in aws.items():
        site["region"] = site["region"] or name
        site["primary"] = site["primary"] or len(aws) == 1
        _prefix(site, "cidr")
    values["dns"]["zone"] = values["dns"]["zone"] or values["domain"]
    if cluster is not None:
        _overlay(values, cluster)
    pods, clients = values["kubernetes"]["pods"], values["access"]["vpn"]
    _prefix(pods, "cidr")
    _prefix(clients, "clients")
    return values


def _prefix(values: dict[str, Any], block: str) -> None:
    """A known block has its own prefix length, whatever ``prefix`` says."""
    if values[block] is not None:
        values["prefix"] = IPv4Network(values[block]).prefixlen


def _overlay(values: dict[str, Any], cluster: Cluster) -> None:
    for region in cluster.regions:
        blocks: dict[str, dict[str, Any]] = {}
        for subnet in region.subnets:
            tiers = blocks.setdefault(subnet.zone, {"public": None, "private": None, "pods": None})
            tiers[subnet.tier] = str(subnet.block)
        site = values["sites"][region.name]
        site |= {
            "region": region.region,
            "primary": region.primary,
            "zones": list(region.zones),
            "cidr": str(region.vpc),
            "asn": region.asn,
            "explicit_subnets": blocks,
        }
        _prefix(site, "cidr")
    for rack in cluster.sites:
        if rack.gateway is not None:
            values["sites"][rack.name]["gateway"] |= {
                "asn": rack.gateway.asn,
                "node": rack.gateway.node,
                "routing": rack.gateway.routing,
            }
    values["state"] |= {
        "bucket": cluster.state.bucket,
        "region": cluster.state.region,
        "key": cluster.state.key,
    }
    values["secrets"]["prefix"] = cluster.secrets.prefix
    values["kubernetes"]["pods"]["cidr"] = str(cluster.network.pods)
    values["kubernetes"]["services"] = str(cluster.network.services)
    values["access"]["vpn"]["clients"] = str(cluster.network.clients)
    if cluster.access.vpn.wireguard is not None:
        values["access"]["vpn"]["wireguard"]["clients"] = str(cluster.access.vpn.wireguard.clients)
    for bucket in cluster.storage.s3:
        values["storage"]["s3"][bucket.name] |= {"name": bucket.bucket, "region": bucket.site}
    for user in cluster.access.users:
        values["access"]["users"][user.login]["uid"] = user.uid
    for group in cluster.access.groups:
        values["access"]["groups"][group.name]["gid"] = group.gid
