"""`invoke autoscaler.explain`: why a pod waits, by the controller's own observation and decision.

Nothing is written: neither group sizes nor the controller's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.commands import cluster_access, session
from infra.commands.autoscaler import configuring
from infra.commands.autoscaler.answers import environment, new_table, show, tell_all
from infra.commands.environment import Project
from infra.commands.terminal import note, say, say_json
from infra.drive import clock
from infra.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from infra.autoscaler.config import Config
    from infra.autoscaler.decision import Decision
    from infra.autoscaler.observed.snapshot import Snapshot
    from infra.autoscaler.reasons import Reason
    from infra.autoscaler.reporting.explain import Explained


def explain(project: Project, pod: str, *, file: str = "", json: bool) -> int:
    """Explain one pod, or all waiting ones if none is named; with a file, the workload in it."""
    if file:
        from infra.commands.autoscaler import previewing

        if pod:
            raise UsageError("--pod and --file: give only one of them")
        return previewing.explain(project, file, json=json)
    if cluster_access.previewed(project):
        options = project.environment.options
        say("No pod is pending: the embedded AWS has no machines, so there is no cluster.")
        say(f"To see what would be done for a job: invoke autoscaler.explain {options} --file job.yaml")
        return 0
    from infra.autoscaler.reporting import explain

    config = configuring.config(project)
    snapshot, decision = _answer(project, config)
    if pod:
        found = explain.explain(snapshot, decision, pod)
        if json:
            say_json(explain.plain(found))
        else:
            tell(found)
    elif json:
        say_json([explain.plain(each) for each in decision.verdicts])
    else:
        tell_all(decision)
    return 0


def _answer(project: Project, config: Config) -> tuple[Snapshot, Decision]:
    from infra.autoscaler.assembly import look
    from infra.autoscaler.decide import decide

    with cluster_access.reach(project) as there:
        there.access.ensure()
        with environment(session.credentials(project.environment, project.cluster)):
            snapshot, memory = look(config, there.access.kubeconfig)
    return snapshot, decide(snapshot, memory, config, clock.now().timestamp())


def tell(found: Explained) -> None:
    """Print one pod: a summary, then why each group does not fit it, then what the controller would do."""
    say(f"{found.pod}{f' (of {found.gang})' if found.gang else ''}")
    say(f"{found.outcome}: {found.text}")
    if found.obstacles:
        say()
        show(_obstacles(found.obstacles))
    if found.changes:
        say()
        table = new_table("the loop would set", "from", "to", "because")
        for each in found.changes:
            table.add_row(each.group, str(each.was), str(each.desired), each.reason)
        show(table)
    if found.stopped:
        note(f"! nothing is written: {found.stopped}")
    for what in found.unknown:
        note(f"! could not be read, the answer may be another: {what}")


def _obstacles(found: Sequence[Reason]) -> Table:
    from infra.autoscaler.reporting import sentences
    from infra.autoscaler.reporting.explain import clock

    table = new_table("group", "does not take it because", "tried again")
    for each in found:
        table.add_row(each.group, sentences.reason(each), clock(each.until))
    return table
