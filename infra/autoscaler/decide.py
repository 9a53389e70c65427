"""Decides what to do in one loop, given what is observed.

::

    detection.learn      the results of our last writes: back-offs, and groups to be reduced
    state_builder.build  machines and groups, with what is starting and what is barred
    scale_up.plan        a place for all pending work, or the reason why there is none
    spares.more          idle machines to keep ready, if there are too few
    planner.plan         what is idle, broken or interrupted

Requests for machines that did not start are withdrawn first: work that waited for them moves to the next
group in the same loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping

from msgspec.structs import replace

from infra.autoscaler import spares
from infra.autoscaler.config import Config
from infra.autoscaler.decision import Action, Decision, Figures, Notice, SetDesired, Verdict
from infra.autoscaler.launch_failures import detection, resource_flavors
from infra.autoscaler.memory import Memory, Resize
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.cluster_state import ClusterState
from infra.autoscaler.observed.snapshot import Snapshot
from infra.autoscaler.placement import scale_up, template_mismatch
from infra.autoscaler.reporting import scheduler_refusals
from infra.autoscaler.scale_down import planner


def decide(snapshot: Snapshot, memory: Memory, config: Config, now: float) -> Decision:
    """The actions and their reasons. Pure: equal inputs give equal results."""
    learned = detection.learn(snapshot, memory, config, now)
    seen = _without(snapshot, learned.shrink)
    view = state_builder.build(seen, learned.memory, config, now)
    growth = scale_up.plan(view, seen, learned.memory, config, now)
    extra = spares.more(view, growth.held, growth.sizes, learned.memory, config)
    grown = {**growth.sizes, **extra}
    less = planner.plan(view, growth.held, grown, seen, learned.memory, config, now)

    sizes = _sizes(snapshot, learned.shrink, grown, growth.verdicts, learned.lessons, extra)
    kept = replace(
        less.memory,
        bookings=growth.bookings,
        waiting=growth.waiting,
        misfits=template_mismatch.learned(less.memory.misfits, growth.misfits, config, now),
        resizes={
            **less.memory.resizes,
            **{each.group: Resize(now, each.was, each.desired) for each in sizes},
        },
    )
    holds = resource_flavors.changes(snapshot.flavors, growth.exhausted)
    actions: tuple[Action, ...] = (*sizes, *holds, *growth.answers, *less.actions)
    stopped = _stopped(view, config)
    if stopped is not None:
        # If nothing is done, nothing is remembered as done.
        actions, kept = (), replace(learned.memory, idle=less.memory.idle, boots=less.memory.boots)
    wrong = [Notice("setup", name, "warning", f"{name}: {text}") for name, text in sorted(view.notes.items())]
    disputes, refused = scheduler_refusals.judge(snapshot, growth.verdicts, memory.disputed, now)
    kept = replace(kept, disputed=disputes)
    notices = [*learned.notices, *growth.notices, *refused, *wrong]
    if stopped is None:
        notices += less.notices
    else:
        notices.append(Notice("stopped", "", "error", f"{stopped}: nothing is started or ended"))
    return Decision(
        at=now,
        actions=actions,
        memory=kept,
        verdicts=growth.verdicts,
        notices=tuple(notices),
        figures=_figures(view, growth.verdicts, learned.counts),
        stopped=stopped,
    )


def _without(snapshot: Snapshot, shrink: Mapping[str, int]) -> Snapshot:
    """The snapshot with groups at their reduced sizes."""
    if not shrink:
        return snapshot
    groups = {
        name: replace(state, desired=shrink[name]) if name in shrink else state
        for name, state in snapshot.groups.items()
    }
    return replace(snapshot, groups=groups)


def _sizes(
    snapshot: Snapshot,
    shrink: Mapping[str, int],
    grown: Mapping[str, int],
    verdicts: tuple[Verdict, ...],
    lessons: Mapping[str, str],
    extra: Container[str],
) -> list[SetDesired]:
    """One write per group: the size that it grows to, or is reduced to. ``extra``: groups that get spare
    machines."""
    pods: Counter[str] = Counter()
    for verdict in verdicts:
        if verdict.outcome == "starting":
            for group in verdict.where:
                pods[group] += verdict.count
    found = []
    for name in sorted({*shrink, *grown}):
        was = snapshot.groups[name].desired
        desired = grown.get(name, shrink.get(name, was))
        if desired == was:
            continue
        if name in grown:
            reasons = [f"for {pods[name]} pods that wait"] if pods[name] or name not in extra else []
            why = " and ".join([*reasons, *(["as spare machines"] if name in extra else [])])
        else:
            why = lessons.get(name, "what was asked did not come")
        found.append(SetDesired(group=name, was=was, desired=desired, reason=why, pods=pods[name]))
    return found


def _stopped(view: ClusterState, config: Config) -> str | None:
    known = view.ready + view.unready
    if (
        view.unready > config.stop_above_unready
        and view.unready * 100 > known * config.stop_above_unready_percent
    ):
        return f"{view.unready} of {known} nodes are unready"
    return None


def _figures(view: ClusterState, verdicts: tuple[Verdict, ...], failed: Mapping[str, int]) -> Figures:
    pending: Counter[str] = Counter()
    for verdict in verdicts:
        pending[verdict.outcome] += verdict.count
    nodes: Counter[str] = Counter()
    cost: defaultdict[str, float] = defaultdict(float)
    for machine in view.machines:
        if machine.group is not None and machine.instance is not None:
            nodes[machine.group] += 1
            cost[machine.group] += view.groups[machine.group].template.price * machine.units
    return Figures(
        pending=dict(pending),
        nodes={name: nodes[name] for name in view.groups},
        desired={name: each.state.desired for name, each in view.groups.items() if each.state is not None},
        cost={name: round(cost[name], 4) for name in view.groups},
        failures=failed,
        unready=view.unready,
        ready=view.ready,
    )
