"""Label selectors with Kubernetes' semantics (apimachinery, ``pkg/labels/selector.go``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from infra.autoscaler.observed.snapshot import PodTerm, Requirement, Selector

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST: Final = 2**63 - 1


def matches(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches labels. None matches nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in selector.equals:
        if labels.get(key) != value:
            return False
    return all(holds(each, labels.get(each.key)) for each in selector.expressions)


def reaches(term: PodTerm, namespace: str, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a term applies to pods of a namespace. ``namespaces``: the labels of each."""
    if namespace in term.namespaces or term.namespaces == ("*",):
        return True
    return term.among is not None and matches(term.among, namespaces.get(namespace, {}))


def holds(requirement: Requirement, found: str | None) -> bool:
    """Whether an expression holds for the value ``found`` of its label; None if there is no such label.

    An unknown operator never holds, nor does ``Gt`` or ``Lt`` with anything but integers.
    """
    match requirement.operator:
        case "In":
            return found is not None and found in requirement.values
        case "NotIn":
            return found is None or found not in requirement.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" if found is not None and len(requirement.values) == 1:
            have, bound = integer(found), integer(requirement.values[0])
            if have is None or bound is None:
                return False
            return have > bound if requirement.operator == "Gt" else have < bound
        case _:
            return False


def integer(text: str) -> int | None:
    """An integer as parsed by Go's ``strconv.ParseInt(text, 10, 64)``; None for anything else."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None


def words(requirement: Requirement) -> str:
    """An expression for people: ``zone in (a, b)``."""
    values = ", ".join(requirement.values)
    match requirement.operator:
        case "In" if len(requirement.values) == 1:
            return f"{requirement.key}={values}"
        case "NotIn" if len(requirement.values) == 1:
            return f"{requirement.key}!={values}"
        case "In":
            return f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key} not in ({values})"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"no {requirement.key}"
        case "Gt":
            return f"{requirement.key}>{values}"
        case "Lt":
            return f"{requirement.key}<{values}"
        case _:
            return f"{requirement.key} {requirement.operator} ({values})"
