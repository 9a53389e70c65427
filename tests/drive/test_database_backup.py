"""Copies of MLflow's database: a real PostgreSQL, which goes on meanwhile, and RDS of the embedded AWS."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ports import reserved
from render.kubernetes.tracking_world import postgres

from infra.drive import database_backup
from infra.drive.database_backup import Postgres
from infra.errors import DriveError


@dataclass
class Database:
    """One that runs, and the way to it that its pod has by its socket."""

    programs: Postgres

    def sql(self, text: str, database: str = database_backup.NAME) -> str:
        words = ["psql", "--username=mlflow", "--no-psqlrc", "--tuples-only", "--no-align",
                 f"--dbname={database}", f"--command={text}"]  # fmt: skip
        done = subprocess.run(
            words, env=dict(self.programs.environment or {}), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with reserved(1) as (port,), postgres(tmp_path / "postgres", port, "a-password"):
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGPASSWORD": "a-password"}
        found = Database(Postgres((), {**os.environ, **where}))
        found.sql("CREATE TABLE metrics (step int PRIMARY KEY, value float)")
        found.sql("INSERT INTO metrics SELECT step, 1.0 / step FROM generate_series(1, 10000) step")
        yield found


def test_a_copy_is_put_back_as_it_was_while_servers_are_connected(database: Database, tmp_path: Path) -> None:
    copy = tmp_path / "mlflow.dump"
    over, lost = threading.Event(), []

    def log() -> None:
        """A server: it writes all the time, and connects again when it has lost its session."""
        for step in range(20_000, 30_000):
            if over.is_set():
                return
            try:
                database.sql(f"INSERT INTO metrics VALUES ({step}, 0)")
            except subprocess.CalledProcessError as error:
                lost.append(error)

    writer = threading.Thread(target=log)
    writer.start()
    try:
        size = database.programs.dump(copy)
        database.sql("UPDATE metrics SET value = -1")
        database.sql("CREATE TABLE of_a_later_version (id int)")
        database.programs.restore(copy)
    finally:
        over.set()
        writer.join()
    assert size == copy.stat().st_size > 10_000
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.glob("*.part")] == []
    wanted = "SELECT count(*), min(value) FROM metrics WHERE step <= 10000"
    assert database.sql(wanted) == "10000|0.0001"
    assert database.sql("SELECT to_regclass('of_a_later_version')") == ""
    names = "SELECT datname FROM pg_database WHERE datname LIKE 'mlflow%' ORDER BY 1"
    assert database.sql(names).split() == ["mlflow", "mlflow_before"]
    # A second time it takes the place of what was kept beside; and what was kept can be looked at.
    database.sql("ALTER DATABASE mlflow_before ALLOW_CONNECTIONS true")
    assert database.sql(wanted, "mlflow_before") == "10000|-1"
    database.programs.restore(copy)
    assert database.sql(names).split() == ["mlflow", "mlflow_before"]
    assert database.sql(wanted) == "10000|0.0001"


def test_what_is_no_whole_copy_changes_nothing(database: Database, tmp_path: Path) -> None:
    copy, cut, other = tmp_path / "mlflow.dump", tmp_path / "cut.dump", tmp_path / "other.dump"
    database.programs.dump(copy)
    database.sql("INSERT INTO metrics VALUES (0, 0)")
    data = copy.read_bytes()
    cut.write_bytes(data[: len(data) * 2 // 3])
    other.write_text("-- PostgreSQL database dump\n")
    for path in (cut, other, tmp_path / "none.dump"):
        with pytest.raises(DriveError):
            database.programs.restore(path)
        assert database.sql("SELECT count(*) FROM metrics") == "10001"
    with pytest.raises(DriveError):
        Postgres((), {"PATH": os.environ["PATH"], "PGHOST": str(tmp_path)}).dump(tmp_path / "away.dump")
    with pytest.raises(DriveError):
        database.programs.dump(tmp_path / "no folder" / "mlflow.dump")
    assert not (tmp_path / "away.dump").exists()
    assert [*tmp_path.glob("*.part")] == []
