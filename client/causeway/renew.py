"""In the cluster, once a day: renews the code of runs that wait, run or are stopped. Other code expires.

``python -m causeway.renew``. It lists runs with the rights of its own service account, and copies the code of
a namespace with the rights of the namespace: it may create tokens of the service account ``work``.

Exit code 1 if a namespace's code could not be looked at; the others are done all the same.
"""

from __future__ import annotations

import sys

from causeway.cluster.connection import Cluster
from causeway.cluster.labels import API, CODE, RUN
from causeway.cluster.runs import has_ended, items
from causeway.cluster.store import Store
from causeway.errors import CausewayError


def main(cluster: Cluster) -> int:
    """Renew the code of all namespaces; return the exit code."""
    wanted: dict[str, dict[str, str]] = {}
    for each in items(cluster, f"/apis/{API}/jobsets", labelSelector=RUN):
        about = each["metadata"]
        digest = about.get("annotations", {}).get(CODE)
        if digest and not has_ended(each):
            wanted.setdefault(about["namespace"], {})[digest] = about["name"]
    failed = 0
    for namespace, digests in wanted.items():
        store = Store(cluster, namespace)
        try:
            for digest, run in digests.items():
                if not store.keep_code(digest):
                    lost = f"the code of {run} is not in the store: {digest}"
                    print(f"causeway: {namespace}: {lost}", file=sys.stderr)
        except CausewayError as error:
            print(f"causeway: {namespace}: {error}", file=sys.stderr)
            failed += 1
    print(f"causeway: code in {len(wanted) - failed} of {len(wanted)} namespaces is kept")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(Cluster(own=True)))
