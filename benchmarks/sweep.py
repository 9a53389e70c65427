"""Requests of a search to the API server and to MLflow: ``python -m benchmarks.sweep [TRIALS PARALLEL]``.

The conductor's own loop against a real API server and a real MLflow; trials only report, a step a round
(``tests/client/conductor_world.py``). So time is that of rounds, and a request is counted where it is sent.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from causeway.cluster import sweeps

REPOSITORY: Final = Path(__file__).parents[1]
_STEPS, _FIRST = 9, 8
"""Rounds of a whole trial, and of one that is stopped at once."""


def measured(scratch: Path, trials: int, parallel: int) -> dict[str, float]:
    """Requests a minute, in the mean and at most, and seconds of a round."""
    from client.conductor_world import conductor_world, job_of

    minutes, longest, rounds, together, goes_on = 0.0, 0.0, 0, 0, True
    most = dict.fromkeys(("API server", "MLflow"), 0.0)
    with conductor_world(scratch) as world:
        whole = world.begin(job_of("toy", trials, parallel, _STEPS, _FIRST))
        bench = world.bench(whole)
        while goes_on:
            before, began = dict(world.seen), time.monotonic()
            goes_on = world.round(bench, whole, _STEPS)
            longest = max(longest, time.monotonic() - began)
            length = (sweeps.EVERY + sweeps.A_TRIAL * len(bench.live())) / 60
            minutes, rounds, together = minutes + length, rounds + 1, max(together, len(bench.live()))
            most = {each: max(most[each], (world.seen[each] - before.get(each, 0)) / length) for each in most}
        seen = dict(world.seen)
    found: dict[str, float] = {
        "trials at once": together,
        "rounds": rounds,
        "minutes of the search": round(minutes, 1),
    }
    for server, peak in most.items():
        found[f"{server}: requests"] = seen[server]
        found[f"{server}: a minute, mean"] = round(seen[server] / minutes, 1)
        found[f"{server}: a minute, most"] = round(peak, 1)
    return {**found, "longest round here, seconds": round(longest, 1)}


if __name__ == "__main__":
    wanted = [int(each) for each in sys.argv[1:]] or [1000, 200]
    folder = Path(tempfile.mkdtemp(prefix="causeway-sweep-"))
    try:
        for title, value in measured(folder, *wanted).items():
            print(f"{title:<40} {value:g}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
