"""Turns verdicts and reasons into text: the only place with their wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, get_args

from infra.autoscaler.backoff import clock
from infra.autoscaler.decision import Verdict
from infra.autoscaler.launch_failures.status_messages import CLASSES, OTHER, words
from infra.autoscaler.observed.snapshot import GPU, PODS
from infra.autoscaler.reasons import Lasting, Reason, Request

_FIXED: Final[Mapping[str, str]] = {
    "devices": "does not support resource claims (DRA); request nvidia.com/gpu instead",
    "taint": "has the taint {0.what}, which the pod does not tolerate",
    "affinity": "does not match the pod's node affinity: {0.what}",
    "volume-zone": "is not where its volume is",
    "volumes": "attaches {0.limit} volumes of {0.what} to a machine, the pod has {0.requested}",
    "gpus": "has GPUs, which are kept for work that asks for them: others take such pods",
    "part": "can start machines for {0.limit} of its {0.requested} pods",
    "deleting": "is being deleted",
    "suspended": "may not launch: its process Launch is suspended",
    "no-price": "has an unknown price, and there is a budget (max_hourly_cost)",
    "budget": "costs ${0.requested:.2f} an hour, of the budget ${0.limit:.2f} are left",
    "quota": "would exceed the quota {0.what} of {0.region}, {0.limit} vCPUs",
    "rules": "has no place in a zone, or beside other pods, that its rules allow",
    "no-claim": "its volume claim {0.what} does not exist",
    "no-peers": "it wants to be with pods that its affinity does not select",
    "low-priority": "its priority is too low to start machines for (autoscaler.min_priority)",
    "fault": "the autoscaler failed at it ({0.what}); its log says more",
    "incomplete": "not all of its pods are there",
    "site-places": "needs {0.requested} places at once, and no site has ever more than {0.limit}",
    "places": "needs {0.requested} places at once, and all sites together have ever {0.limit}",
}
"""By code; formatted with the reason's fields."""

_LASTING: Final = frozenset(get_args(Lasting))


@lru_cache(4096)  # a group's reason is the same for much work
def reason(why: Reason) -> str:
    """The text of one reason; for a group's, without the group's name: ``has no capacity until 14:05
    UTC``."""
    if (fixed := _FIXED.get(why.code)) is not None:
        return fixed.format(why)
    until = clock(why.until or 0.0)
    match why.code:
        case "label":
            return f"does not have the label {why.what}" + (f", it has {why.has}" if why.has else "")
        case "size":
            asked, there = _amount(why.what, why.requested or 0), _amount(why.what, why.limit or 0)
            return f"is too small: asks for {asked} {why.what}, there are {there}"
        case "mismatch":
            again = f", tried again at {until}" if why.until is not None else ""
            return f"has machines that turned out not to take it ({why.what}){again}"
        case "unreadable":
            return "can't be read" + (f": {why.what}" if why.what else "")
        case "backoff":
            return f"{CLASSES.get(why.what, CLASSES[OTHER]).verdict} until {until}"
        case "maximum":
            return f"is at its maximum of {why.limit}" if why.limit else "has no machines: its maximum is 0"
        case "closed-zones":
            zones = ", ".join(f"{zone} ({words(code)})" for zone, code in why.zones)
            return f"starts none in {zones} until {until}"
        case "late":
            return f"not all of its machines were up within {(why.limit or 0) // 60} min"
        case "resources":
            return f"no machine that it may be on has {' and '.join(map(_short, why.short))}"
        case "unknown-resources":
            return f"nothing in this cluster has {' and '.join(map(_short, why.short))}"
        case _:
            return "no group and no machine has " + (request(why.request, 1) if why.request else "a place")


def verdict(found: Verdict) -> str:
    """A verdict in one line: ``waits for 8 x a100: us-west-2 has no capacity until 14:05 UTC``."""
    why, gang = found.reason, found.gang is not None
    if why is None:
        return _placed(found)
    said = reason(why)
    if found.outcome == "never":
        if why.code == "blocked" and not gang:
            said = _summary(found.obstacles) or said
        return f"{'never fits' if gang else 'fits nowhere'} as it stands: {said}"
    if why.request is None:
        return f"waits: {said}"
    if why.code == "incomplete":
        return f"waits until all {why.request.count} of its pods are there; {found.count} are"
    if why.code == "blocked":
        nowhere = "no site has room for all of it" if gang else "no machine has room"
        said = _summary_for_now(found.obstacles) or nowhere
    elif why.until is not None:
        said += f"; tries again at {clock(why.until)}"
    how = " together" if gang else " among what is free" if why.code == "low-priority" else ""
    return f"waits for {request(why.request)}{how}: {said}"


def misfit(machine: str, why: Reason | None) -> str:
    """Why a machine does not fit work that its group should fit."""
    return f"{machine} {reason(why) if why is not None else 'is not where it must be'}"


def request(asked: Request, count: int | None = None) -> str:
    """``8 x v100``, or a pod's requests. ``count``: another number of pods."""
    count = asked.count if count is None else count
    if gpus := dict(asked.requests).get(GPU):
        return f"{count * gpus} x {asked.model or 'GPU'}"
    each = ", ".join(readable(name, amount) for name, amount in asked.requests if name != PODS)
    each = f"({each})" if each else "a place"
    return f"{count} x {each}" if count > 1 else each


def _placed(found: Verdict) -> str:
    them = "it" if found.count == 1 else "them"
    if found.outcome == "fits":
        text = f"{_some(found.where)} {'has' if len(found.where) == 1 else 'have'} room for {them}"
    else:
        one = sum(found.machines) == 1
        text = " and ".join(
            f"{number} machine{'s' if number > 1 else ''} of {name}"
            for name, number in zip(found.where, found.machines, strict=True)
        )
        if found.outcome == "coming":
            text += f" {'is' if one else 'are'} on the way, with room for {them}"
        else:
            text += f" start{'s' if one else ''} now"
    return text + (f", for all {found.count} at once" if found.gang is not None else "")


def _summary_for_now(obstacles: Sequence[Reason]) -> str:
    """Temporary obstacles first, with the next site and the time of the next attempt."""
    timed = [each for each in obstacles if each.until is not None]
    others = [each for each in obstacles if each.until is None and each.code not in _LASTING]
    text = _summary([*timed, *others] or obstacles)
    if timed:
        first = min(timed, key=lambda each: each.until or 0.0)
        text += f", next try {first.site} at {clock(first.until or 0.0)}"
    return text


def _summary(obstacles: Sequence[Reason]) -> str:
    """The first reasons, each with the groups that have it, or with the sites if it ends at a known time."""
    parts: dict[str, dict[str, None]] = {}
    for each in obstacles:
        who = each.group if each.until is None else each.site
        parts.setdefault(reason(each), {})[who] = None
    lines = [f"{_some(tuple(names))} {text}" for text, names in list(parts.items())[:3]]
    if len(parts) > 3:
        lines.append(f"{len(parts) - 3} other reasons")
    return ", ".join(lines)


def _some(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return " and ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


# --- amounts ------------------------------------------------------------------------------------------------


def _short(each: Reason) -> str:
    most = f" (at most {readable(each.what, each.limit)})" if each.limit else ""
    return readable(each.what, each.requested or 0) + most


_BINARY: Final = ("memory", "ephemeral-storage", "hugepages-")


def readable(what: str, amount: float) -> str:
    """An amount with its unit: ``1.5 cpu``, ``64Gi memory``, ``8 nvidia.com/gpu``. Bytes are rounded."""
    return f"{_amount(what, amount)} {what}"


def _amount(what: str, amount: float) -> str:
    if what == "cpu":
        return f"{amount / 1000:g}"
    if not what.startswith(_BINARY):
        return str(amount)
    value, unit = float(amount), ""
    for larger in ("Ki", "Mi", "Gi", "Ti", "Pi"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{round(value, 1):g}{unit}"
