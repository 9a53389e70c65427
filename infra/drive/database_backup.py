"""Copies of MLflow's database, and putting one back.

A database in a pod is copied by PostgreSQL's own programs, which its image has: ``pg_dump`` gives a copy as
of one moment, while servers go on. It is put back into a database beside it, which takes the name once it is
whole: what fails before changes nothing, and what was there stays as ``mlflow_before`` until the next time.

https://www.postgresql.org/docs/current/app-pgdump.html, …/app-pgrestore.html, …/sql-alterdatabase.html

One at RDS is copied by RDS, as snapshots.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, Final

from infra.drive.aws import Aws, aws_errors
from infra.errors import DriveError

NAME: Final = "mlflow"
"""Of the database, and of its user."""
BEFORE: Final = "mlflow_before"
_NEW: Final = "mlflow_new"
_MAGIC: Final = b"PGDMP"
"""What an archive of pg_dump begins with (``pg_backup_archiver.c``)."""
_EVERY: Final = 10.0
_LISTS: Final = ("rds:DescribeDBSnapshots",)
_MAKES: Final = (*_LISTS, "rds:CreateDBSnapshot", "rds:AddTagsToResource")


@dataclass(frozen=True, slots=True)
class Postgres:
    """PostgreSQL's programs, where they reach the database by themselves."""

    before: Sequence[str] = ()
    """Words before each program's own: those that lead into the pod."""
    environment: Mapping[str, str] | None = None
    """Of the first program. None for this process's."""

    def dump(self, target: Path) -> int:
        """Write a copy into a file that only its owner reads; its bytes. Nothing is there until it is whole.
        DriveError."""
        part = target.with_name(f"{target.name}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                self._run("pg_dump", "--format=custom", f"--dbname={NAME}", to=file)
            self._check(part)
            part.replace(target)
        except OSError as problem:
            raise DriveError(f"{target} can't be written: {problem.strerror}") from None
        finally:
            part.unlink(missing_ok=True)
        return target.stat().st_size

    def restore(self, source: Path) -> None:
        """Put a copy in the place of what is there. Sessions end; servers begin new ones. DriveError, and
        nothing has changed."""
        self._check(source)
        self._sql("postgres", f"DROP DATABASE IF EXISTS {_NEW}", f"CREATE DATABASE {_NEW}")
        with source.open("rb") as file:
            self._run(
                "pg_restore", f"--dbname={_NEW}", "--no-owner", "--exit-on-error", "--single-transaction",
                given=file,
            )  # fmt: skip
        self._sql("postgres", f"DROP DATABASE IF EXISTS {BEFORE}")
        # In one transaction: there is a database of the name at any moment. Who is connected would keep it
        # from another name, and who comes meanwhile waits for the lock, and is refused.
        self._sql(
            "postgres",
            f"ALTER DATABASE {NAME} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{NAME}'",  # noqa: S608
        )
        try:
            self._sql(
                "postgres",
                f"BEGIN; ALTER DATABASE {NAME} RENAME TO {BEFORE}; "
                f"ALTER DATABASE {_NEW} RENAME TO {NAME}; COMMIT",
            )
        except DriveError:
            self._sql("postgres", f"ALTER DATABASE {NAME} ALLOW_CONNECTIONS true")
            raise

    def _check(self, path: Path) -> None:
        """DriveError for a file that is not a complete archive, by its table of contents."""
        try:
            with path.open("rb", buffering=0) as file:  # the programs go on where this one has read to
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise DriveError(
                        f"{path} is not a copy of a database: it does not start as pg_dump's archives do"
                    )
                file.seek(0)
                self._run("pg_restore", "--list", given=file, at=())
        except OSError as problem:
            raise DriveError(f"{path} can't be read: {problem.strerror}") from None

    def _sql(self, database: str, *statements: str) -> None:
        """Each in a transaction of its own."""
        words = [f"--command={each}" for each in statements]
        self._run("psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--dbname={database}", *words)

    def _run(
        self,
        program: str,
        *words: str,
        to: BinaryIO | None = None,
        given: BinaryIO | FileIO | None = None,
        at: Sequence[str] = (f"--username={NAME}",),
    ) -> None:
        done = subprocess.run(
            [*self.before, program, *at, *words],
            stdin=given or subprocess.DEVNULL,
            stdout=to or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=None if self.environment is None else dict(self.environment),
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise DriveError(f"{program} failed ({done.returncode}): " + "\n".join(said[-6:]))


# -- At RDS -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One at RDS."""

    name: str
    taken: datetime | None
    """None while it is made."""
    state: str
    """RDS's word: ``available``, ``creating``."""
    gib: int
    """Of the disk."""
    is_ours: bool
    """Whether somebody asked for it: it stays until somebody removes it. Those of each night go after as many
    days as the spec says."""


def snapshots(aws: Aws, database: str, region: str) -> list[Snapshot]:
    """Those of a database, the newest first."""
    with aws_errors(f"list snapshots of the database {database}", needs=_LISTS, quoting=True):
        pages = aws.client("rds", region).get_paginator("describe_db_snapshots")
        found = [
            _snapshot(each)
            for page in pages.paginate(DBInstanceIdentifier=database)
            for each in page["DBSnapshots"]
        ]
    return sorted(found, key=lambda each: each.taken.timestamp() if each.taken else inf, reverse=True)


def take(
    aws: Aws, database: str, region: str, now: datetime, seconds: float, tags: Mapping[str, str]
) -> Snapshot:
    """Have one made, and wait for it. DriveError where it takes longer than ``seconds``, or fails."""
    client = aws.client("rds", region)
    name = f"{database}-{now:%Y%m%d-%H%M%S}"
    with aws_errors(f"take a snapshot of the database {database}", needs=_MAKES, quoting=True):
        client.create_db_snapshot(
            DBInstanceIdentifier=database,
            DBSnapshotIdentifier=name,
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )
        until = time.monotonic() + seconds
        while True:
            (found,) = client.describe_db_snapshots(DBSnapshotIdentifier=name)["DBSnapshots"]
            if found["Status"] == "available":
                return _snapshot(found)
            if found["Status"] != "creating" or time.monotonic() > until:
                break
            time.sleep(_EVERY)
    raise DriveError(f"the snapshot {name} is {found['Status']} after {seconds:.0f} s: check it at RDS")


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        str(found["DBSnapshotIdentifier"]),
        found.get("SnapshotCreateTime"),
        str(found["Status"]),
        int(found.get("AllocatedStorage", 0)),
        found.get("SnapshotType") == "manual",
    )
