"""`invoke converge`: machines brought in line with their roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infra.commands.environment import Understood
from infra.commands.machines.choosing import Chosen, choose, existing
from infra.commands.rendering import write
from infra.commands.terminal import columns, note, say, say_json
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.drive.machines.converge import Outcome, Run, Target


def converge(
    understood: Understood,
    site: str,
    nodes: Sequence[str],
    *,
    everything: bool,
    why_run: bool,
    at_once: int,
    json: bool,
) -> int:
    """Bring machines in line; 1 when one failed, 130 when it was stopped."""
    if not (site or nodes or everything):
        raise UsageError("which machines? Say --site, --nodes or --all")
    if at_once < 1:
        raise UsageError(f"--at-once {at_once}: at least one machine must be converged at a time")
    there = existing(understood, choose(understood, site, nodes))
    done = bring_in_line(understood, there, why_run=why_run, at_once=at_once)
    if json:
        say_json([_outcome_json(each) for each in done.outcomes])
    elif done.outcomes:
        _tell(done.outcomes, why_run=why_run)
    return done.exit_code


def bring_in_line(
    understood: Understood,
    chosen: Sequence[Chosen],
    *,
    why_run: bool,
    at_once: int,
    run_list: str = "",
    secrets: Mapping[str, Mapping[str, bytes]] | None = None,
) -> Run:
    """Converge these machines, with progress. ``run_list`` stands in for each one's own, ``secrets`` for
    what it would be brought."""
    from infra.drive.machines.board import Board
    from infra.drive.machines.converge import converge as run

    targets = _targets(understood, chosen, why_run, run_list, secrets) if chosen else []
    with Board([each.name for each in targets]) as board:
        return run(understood.environment.build, targets, why_run=why_run, at_once=at_once, watcher=board)


def _targets(
    understood: Understood,
    chosen: Iterable[Chosen],
    why_run: bool,
    run_list: str,
    given: Mapping[str, Mapping[str, bytes]] | None,
) -> list[Target]:
    """What each machine gets, everything rendered and, for gateways and nodes, every key in its place."""
    from infra.commands.cluster.bringing import secrets_for
    from infra.commands.vpn import keeping, trees
    from infra.drive.machines.converge import Target
    from infra.drive.machines.payload import TREES, payload, shared

    chosen = list(chosen)
    roles = {role for each in chosen for role in each.roles}
    if roles & TREES.keys():
        if "site-gateway" in roles:
            trees.require_whole(understood, [one.site for one in chosen if "site-gateway" in one.roles])
        kept = keeping.store(understood)
        if "access-gateway" in roles:
            keeping.existing(understood, kept)
        trees.prepare(understood, kept)
    else:
        write(understood)
    build = understood.environment.build
    common = shared(build)
    secrets = {} if why_run else secrets_for(understood, chosen) if given is None else given
    return [
        Target(
            each.name,
            each.fqdn,
            payload(build, each.name, each.site, each.roles, common),
            secrets.get(each.name),
            run_list,
        )
        for each in chosen
    ]


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "node": outcome.name,
        "result": outcome.phase,
        "seconds": round(outcome.seconds, 1),
        "updated": outcome.updated,
        "resources": outcome.resources,
        "error": outcome.error or None,
        "report": str(outcome.kept) if outcome.kept else None,
    }


def _tell(outcomes: Sequence[Outcome], *, why_run: bool) -> None:
    changed = "would change" if why_run else "changed"
    rows = [
        (
            each.name,
            each.phase,
            "" if each.updated is None else f"{each.updated} of {each.resources}",
            f"{each.seconds:.0f} s" if each.seconds else "",
        )
        for each in outcomes
    ]
    say(columns(("node", "result", changed, "took"), rows))
    failed = [each for each in outcomes if each.error and each.phase == "failed"]
    for each in failed:
        note(f"\n{each.error}")
        if each.kept:
            note(f"  all of it: {each.kept.with_suffix('.log')}")
