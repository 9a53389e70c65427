"""The state of an environment: its account and its location."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from infra.commands import session
from infra.commands.environment import Environment, Project, load_project
from infra.commands.terminal import say, tell
from infra.errors import Level, Problem, SpecError, UsageError

if TYPE_CHECKING:
    from infra.drive.lifecycle import Job


def project(environment: Environment, *, changeable: bool = False) -> Project:
    """`load_project`, compared with what any clone has applied: with a state in S3 the ledger is fetched."""
    try:
        here = load_project(environment, changeable=changeable)
    except SpecError:
        # The local snapshot may be outdated. Other problems are raised again.
        here = load_project(environment, changeable=True)
        if here.cluster.state.kind == "local":
            raise
    if here.cluster.state.kind == "local":
        return here
    session.fetch_ledger(here)
    return load_project(environment, changeable=changeable)


def local_state(project: Project) -> None:
    """Warn if the state of a real account is a local file; raise ``SpecError`` in CI, which keeps no
    files."""
    environment, cluster = project.environment, project.cluster
    if session.is_embedded(environment, cluster) or cluster.state.kind != "local":
        return
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    problem = Problem(
        "STO026",
        "state",
        "the state of a real account is in the build folder: lost with it, and unknown to other clones",
        level=Level.ERROR if in_ci else Level.WARNING,
        position=project.loaded.position(("state",)),
        hint="write {kind: s3, bucket: NAME}, then `invoke bootstrap` and `invoke state.move`",
    )
    if in_ci:
        raise SpecError([problem])
    tell([problem])


def same_account(project: Project, job: Job) -> Job:
    """The job with its account. Raises ``UsageError`` if it differs from that of the first apply."""
    if session.is_embedded(project.environment, project.cluster):
        return job
    from infra.drive import last_applied
    from infra.drive.aws import account

    here = account({**os.environ, **job.env})
    recorded = (last_applied.about(job.folders) or {}).get("account")
    if recorded and recorded != here:
        raise UsageError(
            f"the credentials are of account {here}, and {job.environment} was applied to {recorded}; "
            "use credentials of that account: aws.profile in the spec, or AWS_PROFILE"
        )
    return replace(job, account=here)


def move(environment: Environment) -> int:
    """Move the state to the location in the spec."""
    from infra.commands.rendering import write
    from infra.drive import state_move, workspace
    from infra.drive.build_folders import Folders
    from infra.drive.state_backends import previous

    here = load_project(environment, changeable=True)
    env = {**os.environ, **session.credentials(environment, here.cluster)}
    folders = Folders(environment.build.absolute())
    destination = session.place(here, env)
    with workspace.locked(environment.build):
        write(here)
        source = previous(here.cluster.state, folders, env)
        if source is None:
            state_move.finish(destination, folders)
            say(f"Nothing to move: the state is in {destination}.")
            return 0
        state_move.move(source, destination, folders)
    say(f"Moved the state from {source} to {destination}.")
    say(f"Commit {environment.spec_file}, and verify that nothing changes: invoke plan {environment.options}")
    return 0
