"""Isolates faults: bad data about one group, or a bad request in one namespace, does not affect others.

If a loop's decision fails, it is retried without each of them in turn. Such a loop only scales up: what was
left out might make a busy node look idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from infra.autoscaler.config import Config
from infra.autoscaler.decide import decide
from infra.autoscaler.decision import Answer, Decision, Notice, SetDesired
from infra.autoscaler.memory import Memory
from infra.autoscaler.observed.snapshot import Snapshot

_TRIES: Final = 200
"""Maximum suspects: each costs the work of a loop."""


def isolated(
    snapshot: Snapshot,
    memory: Memory,
    config: Config,
    now: float,
    *,
    answer: Callable[[Snapshot, Memory, Config, float], Decision] = decide,
) -> Decision:
    """`decide` without the input that makes it fail. Raises the original error if removing a single one does
    not help."""
    try:
        return answer(snapshot, memory, config, now)
    except Exception as problem:
        for number, (suspect, rest) in enumerate(_without(snapshot, problem)):
            if number == _TRIES:
                break
            try:
                found = answer(rest, memory, config, now)
            except Exception:  # noqa: S112, another suspect may be the one
                continue
            text = f"{suspect} is left out, as it can't be made sense of: {type(problem).__name__}: {problem}"
            more = tuple(
                action
                for action in found.actions
                if isinstance(action, Answer)
                or (isinstance(action, SetDesired) and action.desired > action.was)
            )
            return replace(
                found,
                actions=more,
                memory=replace(found.memory, drains=memory.drains, idle=memory.idle, boots=memory.boots),
                notices=(*found.notices, Notice("fault", suspect, "error", text)),
            )
        raise


def _without(snapshot: Snapshot, problem: Exception) -> Iterator[tuple[str, Snapshot]]:
    """Yield each suspect, and the snapshot without it."""
    why = f"{type(problem).__name__}: {problem}"
    for name, state in snapshot.groups.items():
        yield (
            f"the group {name}",
            replace(
                snapshot,
                groups={key: each for key, each in snapshot.groups.items() if key != name},
                errors={**snapshot.errors, f"aws/{state.region}/{name}": why},
            ),
        )
    for namespace in sorted({pod.namespace for pod in snapshot.pods if not pod.node}):
        yield (
            f"what waits in {namespace}",
            replace(
                snapshot,
                pods=tuple(pod for pod in snapshot.pods if pod.node or pod.namespace != namespace),
                gangs={key: gang for key, gang in snapshot.gangs.items() if gang.namespace != namespace},
            ),
        )
