"""Plan, apply, destroy: their output and prompts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from infra import __version__
from infra.commands import account_zones, cluster_access, pki_store, recorded, retiring, session, states
from infra.commands.environment import Environment, Project
from infra.commands.rendering import write
from infra.commands.terminal import ask, note, say, say_json, tell_count
from infra.commands.vpn import gateway_files
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.drive.lifecycle import Job, Outcome, Planned
    from infra.drive.terraform import Listener


def ready(
    environment: Environment, *, changeable: bool = False, only: Iterable[str] = ()
) -> tuple[Project, Job] | None:
    """Validate and render: all steps before Terraform. None if Terraform has nothing to build, now and in
    the last apply.

    ``only`` are the sites to limit the plan to: an unknown one is reported before anything is started.
    """
    from infra.drive import last_applied, lifecycle

    project = states.project(environment, changeable=changeable)
    tell_count(project.loaded.problems, environment.name)
    if not project.cluster.regions:
        if project.cluster.retired:
            raise UsageError(
                f"{environment.spec_file} has no AWS region any more; to take the last one away, put it "
                f"back and run: invoke destroy {environment.options}"
            )
        lifecycle.targets({}, only)
        write(project)
        return None
    lifecycle.targets(session.modules(project.cluster), only)
    states.local_state(project)
    if not changeable:
        account_zones.require(project)
    write(project)
    project, job = retiring.settle(project, session.job(project), changeable=changeable)
    if was := recorded.newer(last_applied.about(job.folders) or {}):
        note(
            f"warning: Causeway {was} made the last apply, and this is {__version__}, which may take back "
            f"what that one brought: install {was}, or a newer one"
        )
    return project, states.same_account(project, job)


def without_terraform(environment: Environment) -> str:
    """The message if Terraform has nothing to build."""
    return (
        f"{environment.spec_file} has no AWS region, so Terraform has nothing to build; "
        f"`invoke converge {environment.options}` brings its machines in line."
    )


def plan(
    environment: Environment,
    *,
    only: Iterable[str],
    named: Iterable[str],
    out: str,
    json: bool,
    detailed_exitcode: bool = False,
) -> int:
    """Plan and show the changes; with ``detailed_exitcode`` 2 if there are any."""
    from infra.drive import lifecycle, summary
    from infra.drive.plan import NOTHING

    only = tuple(only)
    found = ready(environment, only=only)
    if found is None:
        notes = (without_terraform(environment),)
        if json:
            say_json(summary.to_json(NOTHING, environment=environment.name, notes=notes))
        else:
            say(summary.text(NOTHING, environment=environment.name, notes=notes))
        return 0
    project, job = found
    planned = make_plan(project, job, only=only, named=named, out=out)
    _show(job, project, planned, named, json=json, notes=pki_store.notes(project, {**os.environ, **job.env}))
    if planned.saved.has_changes and not json:
        note(f"Saved. `{lifecycle.apply_command(job, planned.saved)}` does exactly this.")
    return planned.exit_code if detailed_exitcode else 0


def apply(environment: Environment, *, named: tuple[str, ...], yes: bool) -> int:
    """Apply the saved plan; without one, plan and prompt first."""
    from infra.drive import lifecycle

    readied = ready(environment)
    if readied is None:
        say(f"Nothing to apply: {without_terraform(environment)}")
        return 0
    project, job = readied
    found = lifecycle.waiting(job)
    if found is None:
        planned = make_plan(project, job, named=named, pending=True)
        found = planned.saved
        _show(job, project, planned, named, json=False)
        if found.has_changes and not yes:
            _agreed(f"Apply this to {environment.name}? Type yes:", "yes", "--yes")
    job = replace(job, record=recorded.record(project))
    outcome = lifecycle.apply(job, found, named=named, listener=progress())
    project, job = retiring.settle(project, job)
    if found.has_changes:
        counts = found.counts
        say(
            f"Applied to {environment.name}: {counts.get('create', 0)} added, "
            f"{counts.get('update', 0)} changed, {counts.get('replace', 0)} replaced, "
            f"{counts.get('delete', 0)} destroyed."
        )
    else:
        say(f"Nothing to apply: {environment.name} is as its spec says.")
    for line in _unsettled(outcome):
        note(line)
    for line in _next(project, _handed_over(project, job)):
        say(line)
    return 0


def _unsettled(outcome: Outcome) -> Iterable[str]:
    """Notes on resources for which AWS returned inconsistent results."""
    if outcome.restored:
        yield f"Not found right after a change, and kept in the state: {', '.join(outcome.restored)}"
    if outcome.settled.unread:
        yield (
            f"warning: AWS does not find {', '.join(outcome.settled.unread)}. The state keeps them; run "
            "`invoke drift` in a minute. The next plan recreates what is really gone."
        )
    if outcome.unshared:
        yield (
            f"warning: what was applied is not recorded beside the state; `invoke apply` does it again.\n"
            f"{outcome.unshared}"
        )
    if outcome.settled.problem:
        yield (
            "warning: the state could not be refreshed after the apply; `invoke drift` may show what this "
            f"apply did.\n{outcome.settled.problem}"
        )


def _handed_over(project: Project, job: Job) -> frozenset[str]:
    """Render files that depend on AWS's outputs; returns the sites whose gateway or server has changes."""
    from infra.drive import last_applied, lifecycle
    from infra.drive import outputs as kept

    complete = replace(project, outputs=kept.keep(job.folders, lifecycle.outputs(job)))
    changed = gateway_files.prepare(complete, pki_store.store(project, {**os.environ, **job.env}))
    last_applied.refile(job.folders, complete.files)
    lifecycle.share(job)
    return changed


def destroy(environment: Environment, *, confirm: str) -> int:
    """Destroy everything, after the environment's name was typed."""
    from infra.drive import lifecycle, outputs, secret_files
    from infra.model import NO_OUTPUTS

    found = ready(environment, changeable=True)
    if found is None:
        say(f"Nothing to destroy: {without_terraform(environment)}")
        return 0
    project, job = found
    planned = make_plan(project, job, destroy=True, pending=True)
    if planned.saved.has_changes:
        _show(job, project, planned, (), json=False)
        if confirm != environment.name:
            question = f"This destroys all of it, data too. Type {environment.name} to continue:"
            _agreed(question, environment.name, f"--confirm {environment.name}")
    lifecycle.apply(job, planned.saved, listener=progress())
    project, job = retiring.settle(project, job, changeable=True)
    session.forget_secrets(project, {**os.environ, **job.env})
    outputs.forget(job.folders)
    secret_files.forget(job.build)
    write(replace(project, outputs=NO_OUTPUTS))
    if planned.saved.has_changes:
        say(f"Destroyed: nothing of {environment.name} is left.")
    else:
        say(f"Nothing to destroy: {environment.name} has no resources.")
    return 0


def make_plan(
    project: Project,
    job: Job,
    *,
    destroy: bool = False,
    only: Iterable[str] = (),
    named: Iterable[str] = (),
    out: str = "",
    pending: bool = False,
) -> Planned:
    from infra.catalogue import prices
    from infra.drive import lifecycle

    return lifecycle.plan(
        job,
        destroy=destroy,
        only=only,
        named=named,
        out=Path(out) if out else None,
        pending=pending,
        prices=prices,
        jobs=partial(cluster_access.work, project),
        listener=progress(),
    )


def _joined(project: Project) -> tuple[str, ...]:
    """Why regions are connected by transit gateways, if the spec leaves it open."""
    network, regions = project.cluster.network, len(project.cluster.regions)
    if project.loaded.spec.network.interconnect is not None or network.interconnect == "peering":
        return ()
    through = f", all of them with {network.hub}'s" if network.hub else ""
    said = (
        f"Transit gateways join {regions} regions by {len(network.peerings)} peerings{through}. With VPC "
        f"peering it would be {regions * (regions - 1) // 2}. VPN connections attach to them, too. State "
        "network.interconnect to choose."
    )
    return (said,)


def _show(
    job: Job,
    project: Project,
    planned: Planned,
    named: Iterable[str],
    *,
    json: bool,
    notes: tuple[str, ...] = (),
) -> None:
    from infra.applied import lines
    from infra.drive import lifecycle, summary

    name = project.environment.name
    unfinished = [
        f"{address}: its creation had not finished; it is kept and completed in place."
        for address in planned.untainted
    ]
    unfinished += [
        f"{address}: an earlier apply had begun to create it, and AWS has it; the state has it now."
        for address in planned.adopted
    ]
    notes = (
        *lines(project.changes),
        *unfinished,
        *_joined(project),
        *lifecycle.leaving(job, planned.plan),
        *notes,
    )
    if json:
        found = planned.undeclared
        say_json(
            summary.to_json(
                planned.plan,
                environment=name,
                cost=planned.cost,
                notes=notes,
                undeclared=found,
                lasting=planned.lasting,
            )
        )
    else:
        say(
            summary.text(
                planned.plan,
                environment=name,
                cost=planned.cost,
                notes=notes,
                named=named,
                undeclared=planned.undeclared,
                lasting=planned.lasting,
            )
        )


def _agreed(question: str, answer: str, option: str) -> None:
    """Raise ``UsageError`` unless the user gives the expected answer."""
    said = ask(question)
    if said != answer:
        why = f"{said!r} is not {answer!r}" if said else f"not confirmed; use {option}"
        raise UsageError(f"nothing was done: {why}")


def progress() -> Listener:
    """The display of Terraform's progress."""
    from infra.drive.progress import TerraformProgress

    return TerraformProgress()


def _next(project: Project, changed: frozenset[str]) -> Iterable[str]:
    environment, cluster = project.environment, project.cluster
    yield f"See its outputs: invoke outputs {environment.options}"
    if session.is_embedded(environment, cluster):
        yield f"Destroy it: invoke destroy {environment.options}"
    if changed:
        yield (
            f"Ready in {environment.build}/ for gateways and VPN servers of {', '.join(sorted(changed))}: "
            f"invoke vpn.push {environment.options}"
        )
    if cluster.dns.public and cluster.dns.public.id is None:
        yield f"Delegate {cluster.dns.public.name} to the name servers in the output `dns`."
