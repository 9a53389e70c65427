"""Conducts a search in the cluster until it is over: ``python -m causeway.conduct``

It has the permissions of the service account ``sweep``. Its only state is in MLflow, so it may be killed at
any moment. While a server is away, it waits. Exit code 78: the search cannot continue, and its record has the
reason.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.kubeconfig import ACCOUNT_FILES
from causeway.cluster.sweeps import EVERY, ClusterBench
from causeway.errors import CausewayError, UnreachableError
from causeway.runtime import NEVER_WORKS
from causeway.sweeping import pause, step
from causeway.tracking.searches import Ledger
from causeway.tracking.sending import AwayError, RejectedError, Server

_LONGEST = 120.0
"""Maximum wait, in seconds, for servers that are away."""


def main(environment: dict[str, str]) -> int:
    """Conduct the search; return the exit code."""
    namespace, search = environment["CAUSEWAY_NAMESPACE"], environment["CAUSEWAY_SWEEP_RECORD"]
    token: Path = ACCOUNT_FILES / "token"
    server = Server.at(environment["CAUSEWAY_TRACKING_URI"], namespace, token)
    every = pause(environment, EVERY)
    wait, bench = 1.0, _bench(server, namespace, search, every)
    while True:
        try:
            if not step(bench, say):
                return 0
            bench.wait()
            wait = 1.0
            continue
        except (AwayError, UnreachableError) as error:
            say(f"a server does not answer: {error}")
        except RefusedError as error:
            if error.code not in (401, 403, 408, 429) and error.code < 500:
                return _given_up(server, search, error)
            say(f"access denied: {error}")
        except (CausewayError, RejectedError) as error:
            return _given_up(server, search, error)
        # The record says what was under way; it is done again.
        time.sleep(wait)
        wait, bench = min(wait * 2, _LONGEST), _bench(server, namespace, search, every)


def _bench(server: Server, namespace: str, search: str, every: float) -> ClusterBench:
    return ClusterBench(Cluster(own=True), namespace, Ledger(server.call, search), say, every)


def _given_up(server: Server, search: str, error: Exception) -> int:
    say(f"the search cannot continue: {error}")
    try:
        Ledger(server.call, search).change("failed", str(error))
    except (AwayError, RejectedError) as other:
        say(f"the failure cannot be recorded: {other}")
    return NEVER_WORKS


def say(text: str) -> None:
    """Print a line to its log."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(dict(os.environ)))
