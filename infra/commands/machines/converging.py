"""`invoke converge`: machines brought in line with their roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose, existing
from infra.commands.rendering import write
from infra.commands.terminal import columns, note, say, say_json
from infra.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from infra.drive.machines.client import Fetch
    from infra.drive.machines.converge import Outcome, Run, Target
    from infra.model.software import Client


def converge(
    project: Project,
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
        raise UsageError("no machines given: --site, --nodes or --all")
    if at_once < 1:
        raise UsageError(f"--at-once {at_once}: at least one machine must be converged at a time")
    there = existing(project, choose(project, site, nodes))
    done = bring_in_line(project, there, why_run=why_run, at_once=at_once)
    if json:
        say_json([_outcome_json(each) for each in done.outcomes])
    elif done.outcomes:
        _tell(done.outcomes, why_run=why_run)
    return done.exit_code


def bring_in_line(
    project: Project,
    chosen: Sequence[Chosen],
    *,
    why_run: bool,
    at_once: int,
    run_lists: Mapping[str, str] | None = None,
    secrets: Mapping[str, Mapping[str, bytes]] | None = None,
) -> Run:
    """Converge these machines, with progress. ``run_lists`` stand in for their own, ``secrets`` for what they
    would be brought; both by the machines' names."""
    from infra.drive.machines.converge import Installing
    from infra.drive.machines.converge import converge as run
    from infra.drive.progress import MachineProgress

    targets = _targets(project, chosen, why_run, run_lists or {}, secrets) if chosen else []
    with MachineProgress([each.name for each in targets]) as progress:
        done = run(
            project.environment.build,
            targets,
            why_run=why_run,
            at_once=at_once,
            watcher=progress,
            installing=Installing(project.cluster.client, fetching(project)),
        )
    if not why_run:
        _record_revocations(project, chosen, done)
    return done


def _record_revocations(project: Project, chosen: Sequence[Chosen], done: Run) -> None:
    """That VPN servers among the machines have the list of revoked certificates that was in their trees."""
    from infra.commands import pki_store
    from infra.commands.vpn import gateway_files
    from infra.drive.vpn import revocations

    well = {each.name for each in done.outcomes if each.phase == "done"}
    sites = [each.site for each in chosen if "access-gateway" in each.roles and each.name in well]
    kept = pki_store.store(project) if sites else None
    for site in sites:
        assert kept is not None
        revocations.record(kept, site, project.environment.build / gateway_files.OPENVPN / site)


def fetching(project: Project) -> Fetch:
    """Where packages of the client come from, for machines that lack it: fetched once, however many ask."""
    from threading import Lock

    from infra.drive.client import package

    alone = Lock()

    def fetch(client: Client, architecture: str) -> Path:
        with alone:
            return package(client, architecture, project.environment.build)

    return fetch


def _targets(
    project: Project,
    chosen: Iterable[Chosen],
    why_run: bool,
    run_lists: Mapping[str, str],
    given: Mapping[str, Mapping[str, bytes]] | None,
) -> list[Target]:
    """What each machine gets, everything rendered and, for gateways and nodes, every key in its place."""
    from infra.commands import pki_store
    from infra.commands.machines.cluster_secrets import secrets_for
    from infra.commands.vpn import gateway_files
    from infra.drive.machines.converge import Target
    from infra.drive.machines.payload import TREES, payload, shared

    chosen = list(chosen)
    roles = {role for each in chosen for role in each.roles}
    if roles & TREES.keys():
        if "site-gateway" in roles:
            gateway_files.require_whole(project, [one.site for one in chosen if "site-gateway" in one.roles])
        kept = pki_store.store(project)
        if "access-gateway" in roles and project.cluster.access.vpn.openvpn:
            pki_store.existing(project, kept)
        gateway_files.prepare(project, kept)
    else:
        write(project)
    build = project.environment.build
    common = shared(build)
    trees = {gateway.node: gateway.tree for gateway in project.cluster.gateways}
    secrets = {} if why_run else secrets_for(project, chosen) if given is None else given
    return [
        Target(
            each.name,
            each.fqdn,
            payload(build, each.name, each.site, each.roles, common, trees.get(each.name, "")),
            secrets.get(each.name),
            run_lists.get(each.name, ""),
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
