"""``wait`` and ``run --wait``: wait until runs have ended, also across lost connections."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from causeway.cluster import runs
from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.runs import Run
from causeway.commands.describing import plain, state_of
from causeway.commands.following import ENDED, may_pass
from causeway.errors import DetachedError, UnreachableError

_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
"""Seconds between two polls, and the maximum between two retries."""


def wait(names: Sequence[str], group: str | None, *, as_json: bool) -> int:
    """Wait for runs of the cluster; the exit code is 0 if all are done."""
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    cluster = Cluster()
    return wait_for(out, cluster, cluster.namespace(group), names, as_json=as_json)


def wait_for(out: Console, cluster: Cluster, namespace: str, names: Sequence[str], *, as_json: bool) -> int:
    """Wait for runs one after the other, since all have to end; the exit code is 0 if all are done.

    A cluster that does not answer is polled until it does. Raises DetachedError on Ctrl-C.
    """
    ended: list[Run] = []
    try:
        for name in names:
            ended.append(_ended(out, cluster, namespace, name))
            out.print(state_of(ended[-1]))
    except KeyboardInterrupt:
        left = " ".join(names[len(ended) :])
        raise DetachedError(f"{left} continues in the cluster: causeway wait {left}") from None
    if as_json:
        print(json.dumps([plain(run) for run in ended]))
    return 0 if all(run.state == "done" for run in ended) else 1


def _ended(out: Console, cluster: Cluster, namespace: str, name: str) -> Run:
    pause, lost = _PAUSE, False
    while True:
        try:
            run = runs.find(cluster, namespace, name, placed=False)
        except (UnreachableError, RefusedError) as error:
            if not may_pass(error):
                raise
            if not lost:
                out.print(Text(f"{error}; {name} continues, and so does this command", style="dim"))
            lost, pause = True, min(2 * pause, _LONGEST_PAUSE)
        else:
            if run.state in ENDED:
                return run
            if lost:
                out.print(Text("connected again", style="dim"))
            lost, pause = False, _PAUSE
        time.sleep(pause)
