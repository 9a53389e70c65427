"""Makes the tables of MLflow, or brings them to the form that this version of MLflow knows.

Every server runs this before it starts. The lock is the database's own: of servers that start together one
works, and the others find nothing to do. It ends with the session, also if this program is killed.
"""

import os
import subprocess
import sys

import sqlalchemy

LOCK = 5000
"""Any number will do that all of them share."""


def main() -> int:
    uri = os.environ["MLFLOW_BACKEND_STORE_URI"]
    engine = sqlalchemy.create_engine(uri, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
        return subprocess.run([sys.executable, "-m", "mlflow", "db", "upgrade", uri], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
