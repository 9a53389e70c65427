"""Faults on reads after a write: AWS does not find for a moment what it has just changed.

All that an environment holds is changed in place, by a tag of the spec. While that is applied, reads of AWS
are answered once as if it had nothing there. Then nothing may have left the state, and the next plan creates,
replaces and destroys nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Final

from localaws.control import Control
from localaws.faults import absent
from localaws.recording import Recorded

from benchmarks.lifecycle.walk import Walk, WalkError
from infra.drive.localaws import Server

_NOT_OF_RESOURCES: Final = frozenset(
    {
        "GetCallerIdentity",
        "GetObject",
        "HeadObject",
        "ListObjects",
        "ListObjectsV2",
    }
)
"""Reads of the account, and of the state itself."""

_READS: Final = ("Describe", "Get", "Head", "List")


def reads(calls: Iterable[Recorded]) -> set[str]:
    """The actions among these calls that read a resource."""
    return {
        call.action
        for call in calls
        if call.action.startswith(_READS) and call.action not in _NOT_OF_RESOURCES and call.service != "ssm"
    }


def applied(walk: Walk, aws: Server, actions: Collection[str], value: str) -> tuple[set[str], set[str]]:
    """Change each resource's tag ``reads`` to ``value``, while each of these actions finds nothing once.

    Which of them were hit, and all reads of this apply, if calls are recorded. `WalkError` where something
    was lost, or would be made again.
    """
    spec = walk.project.spec()
    spec["tags"] = {**spec.get("tags", {}), "reads": value}
    walk.project.write(spec)
    before = {address: one.id for address, one in walk.state().items()}
    walk.ok(walk.project.run("plan"))
    recorded = len(Control(aws).calls())
    Control(aws).order(*(absent(action) for action in sorted(actions)))
    # The provider says of some that they "were present, but now absent": then the apply fails.
    ended = walk.ok(walk.project.run("apply"), codes=(0, 1))
    left = {fault.action for fault in Control(aws).faults()}
    Control(aws).clear_faults()
    asked = reads(Control(aws).calls()[recorded:])
    hit = set(actions) - left
    after = {address: one.id for address, one in walk.state().items()}
    if before != after:
        lost = sorted(address for address in before if after.get(address) != before[address])
        raise WalkError(f"reads that found nothing: {sorted(hit)}; lost: {lost}\n{ended}")
    planned = walk.ok(walk.project.run("plan", "--json"))
    wrong = [
        (one["action"], one["address"])
        for one in json.loads(planned.out)["changes"]
        if one["action"] not in ("update", "read", "no-op")
    ]
    if wrong:
        raise WalkError(f"reads that found nothing: {sorted(hit)}; planned: {wrong}\n{ended}")
    return hit, asked


def survived(walk: Walk, aws: Server) -> tuple[int, int]:
    """The same for each read of such an apply, as many at a time as are not behind each other: how many
    actions there are, and how many applies it took."""
    Control(aws).record_calls()
    _, waiting = applied(walk, aws, (), "none")
    every, rounds = len(waiting), 0
    while waiting:
        rounds += 1
        hit, _ = applied(walk, aws, waiting, f"round-{rounds}")
        if not hit:
            raise WalkError(f"never asked for: {sorted(waiting)}")
        waiting -= hit
    applied(walk, aws, (), "all")
    return every, rounds
