"""Checks the zones of a spec against those of its account."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from infra.checks import account_zones as judging
from infra.commands import session
from infra.commands.environment import Project
from infra.commands.terminal import note, tell
from infra.errors import Problem, SpecError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.doctor import Finding


def require(project: Project) -> None:
    """Before the first plan on a real account: raise ``SpecError`` with every zone, and every instance type
    in a zone, that the account does not have. A failed query is only a note.

    Not for the embedded AWS, whose list of instance types is not an account's.
    """
    environment, cluster = project.environment, project.cluster
    if session.is_embedded(environment, cluster) or project.applied:
        return
    problems, notes = examined(project, {**os.environ, **session.credentials(environment, cluster)})
    for line in notes:
        note(f"note: {line}")
    if any(problem.fatal for problem in problems):
        raise SpecError(problems)
    tell(problems)


def examined(project: Project, env: Mapping[str, str]) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Problems, and queries that failed. ``env`` is the environment that Terraform gets."""
    from infra.drive.account_zones import ask

    loaded, cluster = project.loaded, project.cluster
    answers = ask(env, judging.instance_types(cluster))
    problems = judging.problems(
        loaded.spec, cluster, answers.zones, answers.offers, loaded.position, answers.ids
    )
    notes = tuple(
        f"not checked against the account in {listed(regions, most=8)}: {reason}"
        for reason, regions in answers.refusals.items()
    )
    return problems, notes


def findings(project: Project, env: Mapping[str, str]) -> list[Finding]:
    """The same for ``invoke doctor``: one finding for each problem, or one that there are none."""
    from infra.drive.doctor import Finding

    problems, notes = examined(project, env)
    found = [
        Finding(
            "zones",
            "fail" if problem.fatal else "warn",
            f"{problem.position}: {problem.path}: {problem.message} [{problem.code}]",
            problem.hint,
        )
        for problem in problems
    ]
    found += [Finding("zones", "warn", line) for line in notes]
    return found or [Finding("zones", "ok", "the account has all zones and instance types of the spec")]
