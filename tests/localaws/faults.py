"""Faults a test can order, so that what must survive AWS's bad days is seen to.

A fault waits for calls of one action; it lets ``skip`` of them through, strikes the next ``times``, and is
gone. ``action`` ``*`` is any call that writes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from infra.localaws.replies import error_body
from infra.localaws.request import Call
from localaws import absence

FOREVER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What shall happen to which calls."""

    action: str
    times: int = 1
    skip: int = 0
    region: str = ""
    """Only there; empty: everywhere."""
    holding: tuple[str, ...] = ()
    """Only requests whose text holds each of these (an instance type, a zone)."""
    status: int = 0
    """The HTTP status to answer with; 0: let the call through (after ``seconds``)."""
    code: str = ""
    message: str = ""
    seconds: float = 0.0
    """Time to wait before the call goes on."""
    late: bool = False
    """The call is done at once, and its answer waits ``seconds``."""

    def meets(self, call: Call) -> bool:
        return (
            (call.action == self.action or (self.action == "*" and not call.reads))
            and self.region in ("", call.region)
            and all(piece in call.text for piece in self.holding)
        )


def throttling(action: str, times: int, *, region: str = "") -> Fault:
    """``times`` calls of ``action`` are refused as too many, with the code that EC2 gives."""
    return Fault(action, times, region=region, status=503, code="RequestLimitExceeded",
                 message="Request limit exceeded.")  # fmt: skip


def broken(action: str, *, skip: int = 0, times: int = 1, region: str = "") -> Fault:
    """``action`` fails inside AWS, from the call after the first ``skip`` on.

    SDKs try again by themselves, Terraform's up to 25 times: order more ``times`` to make an apply fail.
    """
    return Fault(action, times, skip, region, status=500, code="InternalError",
                 message="An internal error has occurred.")  # fmt: skip


def refused(action: str, code: str, message: str, *, skip: int = 0, times: int = 1) -> Fault:
    """``action`` is answered with an error that no SDK tries again (status 400)."""
    return Fault(action, times, skip, status=400, code=code, message=message)


def absent(action: str, times: int = 1, *, skip: int = 0) -> Fault:
    """A read is answered as if AWS did not know the resource yet (eventual consistency): see ``absence``."""
    return Fault(action, times, skip, status=404, code=ABSENT)


def slow(action: str, seconds: float, times: int = FOREVER) -> Fault:
    """Calls of ``action`` take ``seconds`` longer."""
    return Fault(action, times, seconds=seconds)


def late(action: str, seconds: float, times: int = 1) -> Fault:
    """Calls of ``action`` are done, and their answer takes ``seconds``."""
    return Fault(action, times, seconds=seconds, late=True)


def no_capacity(instance_type: str, zone: str = "", times: int = FOREVER) -> Fault:
    """No instance of a type (in a zone) can be had: RunInstances is refused, and the scaling activities of
    groups fail (see ``extensions.scaling_activities``)."""
    where = f" in the Availability Zone you requested ({zone})" if zone else ""
    return Fault(
        CAPACITY,
        times,
        holding=tuple(filter(None, (instance_type, zone))),
        status=500,
        code="InsufficientInstanceCapacity",
        message=f"We currently do not have sufficient {instance_type} capacity{where}.",
    )


ABSENT: Final = "causeway:Absent"
"""The code of ``absent``: which one a client sees depends on the service."""

CAPACITY: Final = "causeway:LaunchInstance"
"""The action of ``no_capacity``: not an API call, but each launch of an instance, whoever asked for it."""


class Faults:
    """The faults of a server. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def order(self, faults: Iterable[Fault]) -> None:
        with self._lock:
            self._waiting.extend(faults)

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def waiting(self) -> list[Fault]:
        with self._lock:
            return list(self._waiting)

    def strike(self, call: Call) -> Fault | None:
        """The fault that hits this call, counted down; None: the call goes through."""
        with self._lock:
            for number, fault in enumerate(self._waiting):
                if not fault.meets(call):
                    continue
                if fault.skip:
                    self._waiting[number] = replace(fault, skip=fault.skip - 1)
                    return None
                if fault.times <= 1:
                    del self._waiting[number]
                else:
                    self._waiting[number] = replace(fault, times=fault.times - 1)
                return fault
        return None


FAULTS: Final = Faults()
"""Those of this process: ``plugin`` looks here."""


def dumps(faults: Iterable[Fault]) -> str:
    return json.dumps([asdict(fault) for fault in faults])


def loads(text: str | bytes) -> list[Fault]:
    """``ValueError`` or ``TypeError`` for what ``dumps`` did not write."""
    rows: list[dict[str, Any]] = json.loads(text)
    return [Fault(**{**row, "holding": tuple(row.get("holding", ()))}) for row in rows]


def answer(call: Call, fault: Fault, content_type: str) -> tuple[int, str, Mapping[str, str]]:
    """Status, body and headers of a fault that answers in AWS's place."""
    if fault.code != ABSENT:
        return fault.status, *error_body(call, fault.code, fault.message, content_type)
    code = absence.code(call)
    if not code:
        body, kind = absence.empty(call)
        return 200, body, {"Content-Type": kind}
    message = f"{call.action}: the resource does not exist."
    return 404, *error_body(call, code, message, content_type)
