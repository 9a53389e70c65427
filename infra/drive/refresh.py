"""Refreshes the state until AWS returns consistent results.

What one resource changes in another (a rule in its group, a route in its table) is in the state only after
the next read; until then it would count as drift. AWS is eventually consistent, so a resource may not be
found for a moment, and a plain ``terraform refresh`` would then drop it from the state. So the refresh is
planned, the plan is read, and it is applied only if it updates resources and removes none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.drive.terraform import Ran, Terraform, TerraformError

PAUSES: Final = (2.0, 5.0, 15.0)
"""Seconds before the second, third and fourth attempt. AWS does not document a limit ("Eventual
consistency", EC2 API Reference); usually seconds suffice."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The result. In any case the state has lost nothing."""

    unread: tuple[str, ...] = ()
    """Addresses that AWS did not find in any attempt; unchanged in the state."""
    problem: str = ""
    """Why the last attempt failed; empty if it did not."""


def settle(
    terraform: Terraform,
    scratch: Path,
    *,
    targets: Sequence[str] = (),
    pauses: Sequence[float] = PAUSES,
    sleep: Callable[[float], None] = time.sleep,
) -> Settled:
    """Refresh the state, or the addresses in ``targets``. ``scratch`` is a folder for the plan."""
    settled = Settled()
    for pause in (0.0, *pauses):
        if pause:
            sleep(pause)
        try:
            ran = terraform.plan(scratch, targets=targets, refresh_only=True, title="Settling")
            unread = gone(ran)
            settled = Settled(unread)
            if not unread:
                if ran.has_changes:
                    terraform.apply(scratch, title="Settling")
                break
        except TerraformError as problem:
            settled = Settled(problem=str(problem))
        finally:
            scratch.unlink(missing_ok=True)
    return settled


def gone(ran: Ran) -> tuple[str, ...]:
    """Addresses that the plan of a refresh would remove from the state."""
    return tuple(sorted(one.address for one in ran.drifted if one.action not in _HARMLESS))


_HARMLESS: Final = {"update", "noop", "move"}
