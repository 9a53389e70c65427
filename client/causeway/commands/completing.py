"""Shell completion of run names. It runs while the user types, so it is quick and prints no errors."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from threading import Thread

_PATIENCE = 2.0
"""Seconds to wait for the cluster's answer."""
_OF_SEARCH = re.compile(r"-s\d")


def run_names(incomplete: str, group: str | None, *, local: bool) -> Sequence[str]:
    """Return names of runs with this prefix, of this machine or of the cluster and of machines; trials only
    once a search is named. Runs of the cluster are left out if it does not answer quickly."""
    found: list[str] = []
    if local:
        from causeway.local import runs_here

        trials = tuple(f"{name}-" for name in search_names(""))
        named = incomplete.startswith(trials)
        found += [path.name for path in runs_here() if named or not path.name.startswith(trials)]
    else:
        from causeway.machines import records

        found += records.names() if group is None else []
        # A daemon thread, so that a slow answer does not keep the program from ending.
        asked = Thread(target=_of_cluster, args=(found, incomplete, group), daemon=True)
        asked.start()
        asked.join(_PATIENCE)
    return sorted({name for name in [*found] if name.startswith(incomplete)})


def search_names(incomplete: str) -> Sequence[str]:
    """Return names of searches that this machine conducts, with this prefix."""
    from causeway.sweep_files import is_recorded, sweeps_root

    found = (path.name for path in sweeps_root().glob(f"{glob.escape(incomplete)}*"))
    return sorted(name for name in found if is_recorded(name))


def _of_cluster(found: list[str], incomplete: str, group: str | None) -> None:
    try:
        from causeway.cluster import runs
        from causeway.cluster.connection import Cluster
        from causeway.cluster.labels import RUN, SWEEP

        cluster = Cluster()
        path = runs.path_of(cluster.namespace(group))
        chosen = RUN if _OF_SEARCH.search(incomplete) else f"{RUN},!{SWEEP}"
        listed = runs.items(cluster, path, only="metadata", labelSelector=chosen)
        found.extend(str(each["metadata"]["name"]) for each in listed)
    except Exception:
        return  # a traceback would garble the prompt
