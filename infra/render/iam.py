"""IAM policies of the users and CI jobs that work on an environment.

``templates/iam`` has every statement, ``docs/iam/actions.yaml`` which part of a cluster needs which action. A
statement stays if one of its actions is needed. A template is a list of statements, in IAM's own words, with

- ``when`` in a statement: the parts of which there must be one, where its actions alone do not say it;
- ``{part: value}`` in a list: the value is for that part alone;
- ``$environment``, ``$account`` and so on: the fields of `Scope`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from string import Template
from typing import Any, Final, TypeAlias

import yaml

from infra.files import Files
from infra.model import Cluster
from infra.render.templating import TEMPLATES
from infra.shipped_files import ROOT

MANAGED_POLICY: Final = 6144
"""Characters of a managed policy without white space (IAM User Guide, "IAM and AWS STS quotas")."""
POLICIES_PER_ROLE: Final = 10
"""Managed policies per role, by the default quota (the same page)."""

PARTS: Final = frozenset(
    {
        "regions", "addresses", "nat", "endpoints", "flow-logs", "vpn", "alarms", "peering", "transit",
        "pools", "placement-groups", "capacity-reservations", "launch-configurations", "keys", "grants",
        "efs", "database", "web-identity", "cloudfront", "state", "secrets",
    }
)  # fmt: skip
"""The parts that a cluster may have. Every cluster with an AWS region has ``regions``."""

Statement: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of the policies."""

    environment: str
    """The first part of AWS names, and the value of the tag ``environment``."""
    account: str
    """The account id; ``*`` for any, if the spec does not name one."""
    partition: str
    """``aws``, ``aws-us-gov``, ``aws-cn``."""
    regions: tuple[str, ...]
    state_bucket: str
    """Empty if the state is not in S3."""
    state_key: str
    secrets: str
    """The prefix of parameters: ``/causeway/research``."""

    @property
    def dns_suffix(self) -> str:
        """The suffix of service principals (IAM User Guide, "AWS service principals")."""
        return "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"


EXAMPLE: Final = Scope(
    environment="research",
    account="*",
    partition="aws",
    regions=("eu-west-1", "us-east-1", "us-west-2"),
    state_bucket="research-terraform-state-lab-example",
    state_key="research/terraform.tfstate",
    secrets="/causeway/research",
)
"""The environment whose policies ``docs/iam`` shows."""


def scope(cluster: Cluster) -> Scope:
    """The limits of a cluster's policies. Regions that left the spec are included, as they still have to be
    emptied."""
    secrets = cluster.secrets
    regions = {each.region for each in cluster.regions} | {each.region for each in cluster.retired}
    if secrets.store == "ssm":
        regions |= {secrets.region, *secrets.copies}
    return Scope(
        environment=cluster.environment,
        account=cluster.aws.account or "*",
        partition=cluster.regions[0].partition if cluster.regions else "aws",
        regions=tuple(sorted(regions)),
        state_bucket=cluster.state.bucket or "",
        state_key=cluster.state.key or "",
        secrets=secrets.prefix,
    )


def parts(cluster: Cluster) -> frozenset[str]:
    """The parts of `PARTS` that a cluster has."""
    regions, mesh = cluster.regions, cluster.network.interconnect == "transit-gateway"
    nat = any(region.nat for region in regions)
    groups = [group for pool in cluster.pools for group in pool.groups]
    grouped = {group.site for group in groups}
    served = cluster.web_identity.issuers if cluster.web_identity else ()
    there = {
        "regions": bool(regions or cluster.retired),
        "addresses": nat or any(each.public for each in cluster.instances),
        "nat": nat,
        "endpoints": any(region.endpoints for region in regions),
        "flow-logs": any(region.flow_logs for region in regions),
        "vpn": bool(cluster.network.links),
        "alarms": bool(cluster.network.links and cluster.network.alarm_emails),
        "peering": bool(cluster.network.peerings) and not mesh,
        "transit": bool(regions) and mesh,
        "pools": bool(grouped),
        "placement-groups": any(pool.placement_group != "none" for pool in cluster.pools),
        "capacity-reservations": any(group.capacity_reservation for group in groups),
        "launch-configurations": any(pool.launch == "configuration" for pool in cluster.pools),
        "keys": any(region.kms_key for region in regions),
        "grants": any(region.kms_key and region.name in grouped for region in regions),
        "efs": bool(cluster.storage.efs),
        "database": bool(cluster.tracking and cluster.tracking.managed),
        "web-identity": bool(cluster.web_identity),
        "cloudfront": any(each.served_by == "cloudfront" for each in served),
        "state": cluster.state.kind == "s3",
        "secrets": cluster.secrets.store == "ssm",
    }
    return frozenset(part for part, is_there in there.items() if is_there)


def render(limits: Scope, present: Collection[str]) -> dict[str, tuple[Statement, ...]]:
    """File name → its statements, each file within `MANAGED_POLICY`; files without statements are left out.

    Args:
        limits: The limits of the policies.
        present: The parts of `PARTS` that the cluster has.
    """
    values = {**asdict(limits), "dns_suffix": limits.dns_suffix}
    files: dict[str, tuple[Statement, ...]] = {}
    for name, template in _templates().items():
        rows = [row for row in template if "when" not in row or _any(row["when"], present)]
        needed = _needed(("bake",) if name == "bake" else ("resources", "data", "plan", "apply"), present)
        found = [_statement(row, values, needed, present) for row in rows]
        pieces = _pieces([each for each in found if each["Action"] and each["Resource"]])
        for number, piece in enumerate(pieces, 1):
            files[f"{name}.json" if number == 1 else f"{name}-{number}.json"] = piece
    return files


def texts(files: Mapping[str, Iterable[Statement]]) -> Files:
    """The files as JSON text."""
    return {name: f"{json.dumps(_document(rows), indent=2)}\n" for name, rows in files.items()}


def size(statements: Iterable[Statement]) -> int:
    """The characters of a policy that IAM counts: all except white space."""
    return len(json.dumps(_document(statements), separators=(",", ":")))


def _document(statements: Iterable[Statement]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


# -- Templates --------------------------------------------------------------------------------------------


@cache
def _templates() -> Mapping[str, list[Mapping[str, Any]]]:
    """Policy → its statements."""
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((TEMPLATES / "iam").glob("*.yaml"))
    }


@cache
def _table() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((ROOT / "docs/iam/actions.yaml").read_text(encoding="utf-8"))
    return found


def _needed(sections: Iterable[str], present: Collection[str]) -> set[str]:
    """The actions that these parts need, from sections of the table."""
    rows = [row for section in sections for row in _table()[section].values()]
    return {action for row in rows if _any(_when(row), present) for action in _actions(row)}


def _when(row: list[str] | Mapping[str, Any]) -> str | list[str]:
    """The parts that a row of the table applies to."""
    when: str | list[str] = "regions" if isinstance(row, list) else row.get("when", "regions")
    return when


def _actions(row: list[str] | Mapping[str, Any]) -> Iterator[str]:
    if isinstance(row, list):
        yield from row
    else:
        yield from (action for key, actions in row.items() if key != "when" for action in actions)


def _any(when: str | list[str], present: Collection[str]) -> bool:
    return any(part in present for part in ([when] if isinstance(when, str) else when))


def _statement(
    row: Mapping[str, Any], values: Mapping[str, Any], needed: Collection[str], present: Collection[str]
) -> Statement:
    kept = {key: _filled(value, values, present) for key, value in row.items() if key not in ("Sid", "when")}
    kept["Action"] = [action for action in kept["Action"] if action in needed]
    return {"Sid": row["Sid"], "Effect": "Allow", **kept}


def _filled(value: Any, values: Mapping[str, Any], present: Collection[str]) -> Any:
    match value:
        case str() if value == "$regions":
            return list(values["regions"])
        case str():
            return Template(value).substitute(values)
        case list():
            return [_filled(each, values, present) for each in _of(value, present)]
        case dict():
            return {key: _filled(each, values, present) for key, each in value.items()}
    raise TypeError(f"{value!r} in a policy")


def _of(items: Iterable[str | Mapping[str, str]], present: Collection[str]) -> Iterator[str]:
    """The values of a list that these parts need."""
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            yield from (value for part, value in item.items() if part in present)


# -- Sizes ------------------------------------------------------------------------------------------------


def _pieces(statements: Iterable[Statement]) -> list[tuple[Statement, ...]]:
    """The statements in order, in as few policies as that order allows."""
    pieces: list[tuple[Statement, ...]] = []
    for statement in (part for whole in statements for part in _halves(whole)):
        if pieces and size((*pieces[-1], statement)) <= MANAGED_POLICY:
            pieces[-1] = (*pieces[-1], statement)
        else:
            pieces.append((statement,))
    return pieces


def _halves(statement: Statement) -> list[Statement]:
    """Split a statement that is too long for any policy into several with some of its actions each."""
    actions = statement["Action"]
    if size([statement]) <= MANAGED_POLICY or len(actions) < 2:
        return [statement]
    middle = len(actions) // 2
    halves = (("A", actions[:middle]), ("B", actions[middle:]))
    return [
        half
        for letter, some in halves
        for half in _halves({**statement, "Sid": f"{statement['Sid']}{letter}", "Action": some})
    ]
