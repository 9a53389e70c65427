"""Identity policies, judged as IAM judges them: by action, resource and conditions.

As far as ours go, which name no ``NotAction`` and deny nothing; an operator that is not here is an error.
AWS IAM User Guide, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """One action on one resource. A call may need several, and each must be allowed."""

    action: str
    """``ec2:RunInstances``"""
    resource: str
    """ARN; one that is about to be made has ``*`` for its id. ``*`` if the action knows no resource."""
    context: tuple[tuple[str, str], ...] = ()
    """Condition keys, as AWS spells them, and their values."""

    def __str__(self) -> str:
        return f"{self.action} on {self.resource} with {dict(self.context)}"


@dataclass(frozen=True)
class Statement:
    """A statement that allows something."""

    policy: str
    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Operator, condition key, values."""

    def allows(self, request: Request) -> bool:
        return (
            any(_like(request.action, action, re.IGNORECASE) for action in self.actions)
            and any(_like(request.resource, resource) for resource in self.resources)
            and all(_holds(*condition, dict(request.context)) for condition in self.conditions)
        )


def read(name: str, document: str) -> list[Statement]:
    """The statements of a policy."""
    return [_statement(name, row) for row in json.loads(document)["Statement"]]


def read_files(*paths: Path) -> list[Statement]:
    return [statement for path in paths for statement in read(path.stem, path.read_text(encoding="utf-8"))]


def allowing(statements: Iterable[Statement], request: Request) -> list[Statement]:
    """Those that allow a request: none denies it."""
    return [statement for statement in statements if statement.allows(request)]


def _statement(policy: str, row: Mapping[str, Any]) -> Statement:
    unknown = set(row) - {"Sid", "Effect", "Action", "Resource", "Condition"}
    if unknown or row["Effect"] != "Allow":
        raise NotImplementedError(f"{policy}: {row}")
    return Statement(
        policy,
        row["Sid"],
        _listed(row["Action"]),
        _listed(row["Resource"]),
        tuple(
            (operator, key, _listed(values))
            for operator, keys in row.get("Condition", {}).items()
            for key, values in keys.items()
        ),
    )


def _listed(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _holds(operator: str, key: str, values: tuple[str, ...], context: Mapping[str, str]) -> bool:
    actual = {name.lower(): value for name, value in context.items()}.get(key.lower())
    match operator:
        case "Null":
            return (actual is None) is (values == ("true",))
        case "StringEquals":
            return actual in values
        case "StringLike":
            return actual is not None and any(_like(actual, value) for value in values)
        case _:
            raise NotImplementedError(operator)


@cache
def _pattern(pattern: str, flags: int) -> re.Pattern[str]:
    pieces = {"*": ".*", "?": "."}
    return re.compile("".join(pieces.get(sign, re.escape(sign)) for sign in pattern), flags | re.DOTALL)


def _like(text: str, pattern: str, flags: int = 0) -> bool:
    return _pattern(pattern, flags).fullmatch(text) is not None
