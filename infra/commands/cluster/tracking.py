"""MLflow's data that is not in rendered files: its database's password and CA certificates; and backups of
that database."""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.commands import cluster_access
from infra.commands.cluster.steps import Steps
from infra.commands.environment import Project
from infra.commands.terminal import ask, columns, note, say, say_json
from infra.errors import DriveError, UsageError

if TYPE_CHECKING:
    from infra.drive.aws import Aws
    from infra.drive.database_backup import Postgres
    from infra.drive.kubernetes.api import Api
    from infra.drive.rds import Snapshot
    from infra.drive.secrets import Store
    from infra.model.research import ManagedDatabase, Tracking

_SNAPSHOT_SECONDS: Final = 3600.0
_START_SECONDS: Final = 600

PART: Final = "tracking"
"""The part with the servers that depend on it; its namespace is in an earlier part."""


def bring_access(
    api: Api, store: Store, managed: ManagedDatabase | None, fetch: Callable[[str], str] | None = None
) -> str:
    """Create the Secret with the password from the store, which is generated if missing, and, for an RDS
    database, its region's CA certificates. Returns what was done. CA certificates that cannot be fetched
    are left unchanged."""
    from infra.drive import rds
    from infra.drive.kubernetes import apply
    from infra.drive.secrets import database_password
    from infra.render.kubernetes.tracking_service import AUTHORITIES, NAMESPACE, SECRET

    values, note = {"password": database_password(store)}, ""
    if managed is not None:
        try:
            values[AUTHORITIES] = (fetch or rds.fetch_authorities)(managed.region)
        except DriveError as problem:
            found = api.find(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}") or {}
            had = (found.get("data") or {}).get(AUTHORITIES)
            if had is None:
                raise DriveError(f"who signs the certificate of MLflow's database: {problem}") from None
            values[AUTHORITIES] = base64.b64decode(had).decode()
            note = f"; authorities as before: {problem}"
    return apply.put_secret(api, NAMESPACE, SECRET, values) + note


# -- Copies of the database ---------------------------------------------------------------------------------


def backup(project: Project, file: str, *, listed: bool, json: bool) -> int:
    """Back up a database in a pod to a file; for one at RDS, create a snapshot. ``listed``: list the
    snapshots."""
    from infra.drive import clock, rds

    managed = _tracking(project).managed
    if managed is None:
        if listed:
            raise UsageError("the database is in a pod, and its copies are files: omit --snapshots")
        path = Path(file or f"{project.environment.name}-mlflow-{clock.now():%Y%m%d-%H%M%S}.dump")
        with cluster_access.reach(project) as there:
            note(f"{path}: a copy of MLflow's database; servers continue to run")
            size = _inside(there).dump(path.absolute())
        if json:
            say_json({"file": str(path), "bytes": size})
        else:
            say(f"{path}: {size / 2**20:.1f} MiB. Put it back: {_restore_with(project, str(path))}")
        return 0
    if file:
        raise UsageError("the database is at RDS, which keeps copies as snapshots: omit --file")
    aws = _aws(project)
    if listed:
        _tell(rds.snapshots(aws, managed.name, managed.region), json=json)
        return 0
    note(f"a snapshot of {managed.name} in {managed.region}; RDS takes some minutes")
    made = rds.take_snapshot(aws, managed.name, managed.region, clock.now(), _SNAPSHOT_SECONDS, managed.tags)
    if json:
        say_json({"snapshot": made.name, "state": made.state})
    else:
        say(f"{made.name} is {made.state}. It stays until you delete it; how to restore: docs/tracking.md")
    return 0


def restore(project: Project, file: str, *, yes: bool, json: bool) -> int:
    """Restore a pod's database from a file, and restart MLflow's servers."""
    managed = _tracking(project).managed
    if managed is not None:
        raise UsageError(
            f"{managed.name} is at RDS, which restores into another database: docs/tracking.md says how"
        )
    path = Path(file).absolute()
    if not path.is_file():
        raise UsageError(f"file {file} not found; invoke cluster.tracking-backup makes one")
    name = project.environment.name
    note(f"What was logged since {file} was made is lost to MLflow, and stays beside it as `mlflow_before`.")
    if not yes and ask(f"Type the environment's name to continue ({name}):") != name:
        raise UsageError("nothing was done: not confirmed (--yes confirms without a terminal)")
    steps = Steps(_restore_with(project, file))
    with steps, cluster_access.reach(project) as there:
        steps.step(f"restore {path.name}", lambda: _restored(there, path))
        # Their init container migrates the database to their version.
        steps.step("restart MLflow", lambda: _restarted(there))
    if json:
        say_json({"file": file, "steps": steps.done})
    else:
        say(f"MLflow has what {file} has.")
    return 0


def _tracking(project: Project) -> Tracking:
    found = project.cluster.tracking
    if found is None:
        raise UsageError(f"{project.environment.spec_file} has no kubernetes.tracking, so no MLflow")
    return found


def _inside(there: cluster_access.Reach) -> Postgres:
    """PostgreSQL's programs in the database's pod, whose socket needs no password."""
    from infra.drive.database_backup import Postgres
    from infra.render.kubernetes.tracking_service import DATABASE, NAMESPACE

    words = ("exec", "--stdin", f"--namespace={NAMESPACE}", f"{DATABASE}-0", "--")
    return Postgres(*there.kubectl.command(*words))


def _restored(there: cluster_access.Reach, path: Path) -> str:
    _inside(there).restore(path)
    return f"{path.stat().st_size / 2**20:.1f} MiB are there"


def _restarted(there: cluster_access.Reach) -> str:
    from infra.render.kubernetes.tracking_service import NAME, NAMESPACE

    of_server = (f"deployment/{NAME}", f"--namespace={NAMESPACE}")
    there.kubectl.run("rollout", "restart", *of_server)
    there.kubectl.run(
        "rollout", "status", *of_server, f"--timeout={_START_SECONDS}s", timeout=_START_SECONDS + 60
    )
    return "its servers are running"


def _restore_with(project: Project, file: str) -> str:
    return f"invoke cluster.tracking-restore {project.environment.options} --file {shlex.quote(file)}"


def _aws(project: Project) -> Aws:
    from infra.commands import session
    from infra.drive.aws import Aws

    return Aws({**os.environ, **session.credentials(project.environment, project.cluster)})


def _tell(rows: Sequence[Snapshot], *, json: bool) -> None:
    if json:
        say_json(
            [
                {
                    "name": each.name,
                    "taken": each.taken.isoformat() if each.taken else None,
                    "state": each.state,
                    "kept": each.is_ours,
                    "gib": each.gib,
                }
                for each in rows
            ]
        )
        return
    if not rows:
        say("RDS has no snapshot of the database.")
        return
    taken = [f"{each.taken:%Y-%m-%d %H:%M}" if each.taken else "" for each in rows]
    kept = ["until deleted" if each.is_ours else "by the nightly backup" for each in rows]
    cells = [(each.name, when, each.state, how) for each, when, how in zip(rows, taken, kept, strict=True)]
    say(columns(("snapshot", "taken", "state", "kept"), cells))
