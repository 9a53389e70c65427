"""Thins metrics of old runs: POINTS of each metric stay, evenly over its steps, the first and the last too.

A run is old AFTER_DAYS days after it has ended and has logged its last point. The tag `causeway.thinned` says
when it was done; a run that is resumed later is thinned again. Exits with 3 if more than MOST_ROWS points are
left.
"""

import os
import sys
import time
from datetime import UTC, datetime

import sqlalchemy
from sqlalchemy import text

TAG = "causeway.thinned"
DAY = 86_400_000
"""Milliseconds."""

OLD = text("""
    SELECT runs.run_uuid
    FROM runs
    JOIN latest_metrics ON latest_metrics.run_uuid = runs.run_uuid
    LEFT JOIN tags ON tags.run_uuid = runs.run_uuid AND tags.key = :tag
    WHERE coalesce(runs.end_time, 0) < :before
    GROUP BY runs.run_uuid, tags.value
    HAVING max(latest_metrics.timestamp) < :before
       AND (tags.value IS NULL
            OR tags.value < to_char(to_timestamp(max(latest_metrics.timestamp) / 1000.0), 'YYYY-MM-DD'))
""")

# One point stays of each of `points - 1` stretches of a metric, its first, and the metric's last.
THIN = text("""
    WITH numbered AS (
        SELECT ctid,
               row_number() OVER (PARTITION BY key ORDER BY step, timestamp, value) - 1 AS place,
               count(*) OVER (PARTITION BY key) AS total
        FROM metrics
        WHERE run_uuid = :run
    )
    DELETE FROM metrics
    USING numbered
    WHERE metrics.ctid = numbered.ctid
      AND total > :points
      AND place NOT IN (0, total - 1)
      AND place * (:points - 1) / total = (place - 1) * (:points - 1) / total
""")

MARK = text("""
    INSERT INTO tags (key, value, run_uuid) VALUES (:tag, :today, :run)
    ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value
""")

ROWS = text("SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'metrics'::regclass")


def main() -> int:
    points, days, most = (int(os.environ[name]) for name in ("POINTS", "AFTER_DAYS", "MOST_ROWS"))
    engine = sqlalchemy.create_engine(os.environ["MLFLOW_BACKEND_STORE_URI"])
    before = int(time.time() * 1000) - days * DAY
    with engine.connect() as connection:
        old = connection.execute(OLD, {"tag": TAG, "before": before}).scalars().all()
    gone = 0
    for run in old:
        with engine.begin() as connection:
            gone += connection.execute(THIN, {"run": run, "points": points}).rowcount
            today = datetime.now(UTC).date().isoformat()
            connection.execute(MARK, {"tag": TAG, "today": today, "run": run})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE) metrics"))
        rows = connection.execute(ROWS).scalar_one()
    print(f"{len(old)} runs thinned, {gone} points deleted, about {rows} left")
    if rows > most:
        print(f"more than {most} points are left: lower kubernetes.tracking.thin_after_days", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
