"""`invoke autoscaler.explain`: why a pod waits. The same look and the same answer as the controller's, now.

Nothing is written: neither a size nor what the controller remembers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.commands import world
from infra.commands.autoscaler import configuring
from infra.commands.cluster import working
from infra.commands.environment import Understood
from infra.commands.terminal import note, say, say_json
from infra.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from infra.autoscaler.config import Config
    from infra.autoscaler.decision import Decision, Obstacle
    from infra.autoscaler.explaining import Explained
    from infra.autoscaler.world import Snapshot


def explain(understood: Understood, pod: str, *, file: str = "", json: bool) -> int:
    """One pod, or all that wait where none is named; with a file, the work in it instead."""
    if file:
        from infra.commands.autoscaler import previewing

        if pod:
            raise UsageError("--pod and --file: give one of them")
        return previewing.explain(understood, file, json=json)
    if working.previewed(understood):
        options = understood.environment.options
        say("No pod waits: the embedded AWS has no machines, so there is no cluster.")
        say(f"To see what would be done for a job: invoke autoscaler.explain {options} --file job.yaml")
        return 0
    from infra.autoscaler import explaining

    config = configuring.config(understood)
    snapshot, decision = _answer(understood, config)
    if pod:
        found = explaining.explain(snapshot, decision, pod)
        if json:
            say_json(_plain(found))
        else:
            tell(found)
    elif json:
        say_json(_plain(decision.verdicts))
    else:
        tell_all(decision)
    return 0


def _answer(understood: Understood, config: Config) -> tuple[Snapshot, Decision]:
    from infra.autoscaler.assembly import look
    from infra.autoscaler.decide import decide

    with working.reach(understood) as there:
        there.access.ensure()
        with environment(world.credentials(understood.environment, understood.cluster)):
            snapshot, memory = look(config, there.access.kubeconfig)
    return snapshot, decide(snapshot, memory, config, time.time())


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """Variables for as long as the block runs: boto3 reads its profile there."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def tell(found: Explained) -> None:
    """One pod: the answer in a line, then why each group does not take it, then what the loop would do."""
    say(f"{found.pod}{f' (of {found.gang})' if found.gang else ''}")
    say(f"{found.outcome}: {found.text}")
    if found.obstacles:
        say()
        _show(_obstacles(found.obstacles))
    if found.changes:
        say()
        table = _table("the loop would set", "from", "to", "because")
        for each in found.changes:
            table.add_row(each.group, str(each.was), str(each.desired), each.reason)
        _show(table)
    if found.stopped:
        note(f"! nothing is written: {found.stopped}")
    for what in found.unknown:
        note(f"! could not be read, the answer may be another: {what}")


def tell_all(decision: Decision) -> None:
    """Everything that waits, equal pods together."""
    if not decision.verdicts:
        say("No pod waits.")
        return
    table = _table("pods", "for example", "outcome", "")
    for each in decision.verdicts:
        table.add_row(str(each.count), each.example or each.gang or "", each.outcome, each.text)
    _show(table)
    if decision.stopped:
        note(f"! nothing is written: {decision.stopped}")


def _obstacles(found: Sequence[Obstacle]) -> Table:
    from infra.autoscaler.explaining import clock

    table = _table("group", "does not take it because", "tried again")
    for each in found:
        table.add_row(each.group, each.text, clock(each.until))
    return table


def _table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _show(table: Table) -> None:
    from rich.console import Console

    Console().print(table)


def _plain(value: object) -> object:
    import msgspec

    return msgspec.to_builtins(value)
