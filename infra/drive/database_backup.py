"""Backs up and restores MLflow's database.

A database in a pod is copied by PostgreSQL's own programs, which its image has: ``pg_dump`` takes a
consistent copy while servers continue to run. It is restored to a second database, which takes over the name
once it is complete: a failure before that changes nothing, and the old database stays as ``mlflow_before``
until the next restore.

https://www.postgresql.org/docs/current/app-pgdump.html, …/app-pgrestore.html, …/sql-alterdatabase.html
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final

from infra.errors import DriveError

NAME: Final = "mlflow"
"""The name of the database and of its user."""
BEFORE: Final = "mlflow_before"
_NEW: Final = "mlflow_new"
_MAGIC: Final = b"PGDMP"
"""The first bytes of a pg_dump archive (``pg_backup_archiver.c``)."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """PostgreSQL's client programs, with the connection they need."""

    before: Sequence[str] = ()
    """The command that runs each program in the pod."""
    environment: Mapping[str, str] | None = None
    """The environment of the first program; None for that of this process."""

    def dump(self, target: Path) -> int:
        """Write a backup to a file with mode 0600; returns its size in bytes. The file appears only once it
        is complete. Raises DriveError."""
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
        """Replace the database by a backup. Sessions are terminated; servers reconnect. Raises DriveError,
        and then nothing has changed."""
        self._check(source)
        self._sql("postgres", f"DROP DATABASE IF EXISTS {_NEW}", f"CREATE DATABASE {_NEW}")
        with source.open("rb") as file:
            self._run(
                "pg_restore", f"--dbname={_NEW}", "--no-owner", "--exit-on-error", "--single-transaction",
                given=file,
            )  # fmt: skip
        self._sql("postgres", f"DROP DATABASE IF EXISTS {BEFORE}")
        # Both renames are in one transaction, so that a database of this name always exists. Open connections
        # would prevent the rename; new ones wait for the lock and are refused.
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
        """Check that a file is a complete archive by reading its table of contents. Raises DriveError."""
        try:
            with path.open("rb", buffering=0) as file:  # child processes continue at this offset
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise DriveError(
                        f"{path} is not a copy of a database: it does not start as pg_dump's archives do"
                    )
                file.seek(0)
                self._run("pg_restore", "--list", given=file, at=())
        except OSError as problem:
            raise DriveError(f"{path} can't be read: {problem.strerror}") from None

    def _sql(self, database: str, *statements: str) -> None:
        """Run each statement in its own transaction."""
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
