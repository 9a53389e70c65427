"""Bring the state up to what AWS says, once it says the same about everything.

What one resource does to another (a rule to its group, a route to its table) is in the state only once it is
read again; until then it would pass for drift. AWS is eventually consistent, so a resource may not be found
for a moment, and a plain ``terraform refresh`` would then drop it from the state. So the refresh is planned,
what it found is read, and it is applied only if it updates resources and removes none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.drive.terraform import Ran, Terraform, TerraformError

PAUSES: Final = (2.0, 5.0, 15.0)
"""Seconds before the second, third and fourth attempt. AWS documents no bound ("Eventual consistency", EC2
API Reference); in most cases seconds are enough."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of it. The state has lost nothing in any case."""

    unread: tuple[str, ...] = ()
    """Addresses that AWS did not find in any attempt; the state keeps them as they were."""
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
    """Refresh the state, or these addresses of it. ``scratch`` is where the plan of the refresh is kept for a
    moment."""
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
    """Addresses that a plan of a refresh would remove from the state."""
    return tuple(sorted(one.address for one in ran.drifted if one.action not in _HARMLESS))


_HARMLESS: Final = {"update", "noop", "move"}
