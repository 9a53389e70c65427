"""Verdicts as text for a terminal, formatted with spaces only, as the controller's image has no libraries
for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infra.autoscaler.decision import Action, Decision, Verdict
from infra.autoscaler.reasons import Reason
from infra.autoscaler.reporting import sentences
from infra.autoscaler.reporting.explain import Explained

_PLACES = ("group", "was", "desired", "instance", "node", "namespace", "pod")
_HEAD = ("PODS", "OUTCOME", "WHERE", "WHAT")


def verdicts(decision: Decision) -> str:
    """The verdicts on pending work, why groups do not fit, and what would be done."""
    if not decision.verdicts:
        waiting = "nothing waits\n"
    else:
        waiting = columns([_HEAD, *(_row(each) for each in decision.verdicts)])
    parts = [waiting]
    reasons = [
        f"{each.example or each.gang or '?'}: {_obstacle(obstacle)}\n"
        for each in decision.verdicts
        for obstacle in each.obstacles
    ]
    if reasons:
        parts.append("".join(reasons))
    if decision.stopped is not None:
        parts.append(f"nothing is written: {decision.stopped}\n")
    if decision.actions:
        parts.append(columns([("ACTION", "ON", "WHY"), *(_action(each) for each in decision.actions)]))
    return "\n".join(parts)


def columns(rows: Iterable[Sequence[str]]) -> str:
    """A table with two spaces between columns; the last column has any length."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return "".join("  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() + "\n" for row in rows)


def pod(explained: Explained) -> str:
    """One pod: its verdict, and why the groups do not fit."""
    gang = f" (of {explained.gang})" if explained.gang else ""
    lines = [f"{explained.pod}{gang}: {explained.outcome}: {explained.text}"]
    lines += [f"  {_obstacle(each)}" for each in explained.obstacles]
    lines += [
        f"would be set: {each.group} from {each.was} to {each.desired} {each.reason}"
        for each in explained.changes
    ]
    lines += [f"can't be read: {each}" for each in explained.unknown]
    if explained.stopped is not None:
        lines.append(f"nothing is written: {explained.stopped}")
    return "".join(f"{line}\n" for line in lines)


def _row(verdict: Verdict) -> tuple[str, str, str, str]:
    name = verdict.gang or verdict.example or "?"
    more = f" and {len(verdict.where) - 3} more" if verdict.where[3:] else ""
    where = ", ".join(verdict.where[:3]) + more
    return f"{verdict.count} x {name}", verdict.outcome, where or "-", sentences.verdict(verdict)


def _action(action: Action) -> tuple[str, str, str]:
    fields = [
        f"{name} {value}"
        for name in (*_PLACES, "name", "condition", "flavor")
        if (value := getattr(action, name, "")) != ""
    ]
    return type(action).__name__, ", ".join(fields), str(action.reason)


def _obstacle(why: Reason) -> str:
    return f"{why.group}: {sentences.reason(why)}"
