"""``python -m benchmarks.autoscaler.simulation``: the shipped trace under our policy and under models of
the peers, with Kueue before it and without.

With Kueue, a job is one workload of the lab's queue and begins as a whole. The 2016 design, which is older
and answers no requests, is there without only.

Prints the table, writes ``docs/autoscaler-simulation.svg`` and, with ``--markdown``, the table as the docs
have it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.autoscaler.peers.cluster_autoscaler import ClusterAutoscaler, Everywhere
from benchmarks.autoscaler.peers.design_2016 import Design
from infra.autoscaler.config import Config
from infra.simulator import Result, bundled_trace, example, reporting, run, trace
from infra.simulator.policy import Ours, Policy

PLOT: Final = Path(__file__).parents[2] / "docs" / "autoscaler-simulation.svg"
SHOWN: Final = (0, 1, 4, 6, 7)
"""The policies of the plot."""


def policies(config: Config) -> list[Policy]:
    """Ours, and the peers'."""
    return [
        Ours(config, name="ours, with Kueue"),
        ClusterAutoscaler(config, requests=True),
        Everywhere(config, requests=True),
        Ours(config),
        Design(config),
        Design(config, mended=True),
        ClusterAutoscaler(config),
        Everywhere(config),
        ClusterAutoscaler(config, marked=False),
    ]


QUEUED: Final = 3
"""How many of them have Kueue before them."""


def results(days: float | None = None, workers: int | None = None) -> list[Result]:
    """Every policy's, on the shipped trace in the lab that it tells of: each in a process of its own."""
    places = range(len(policies(example.config())))
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(partial(_result, days), places))


def _result(days: float | None, place: int) -> Result:
    config, asked = example.config(), trace.read(bundled_trace.PATH)
    rules = example.queues(config) if place < QUEUED else None
    return run(config, asked, policies(config)[place], until=days and days * 86400, rules=rules)


def markdown(found: Sequence[Result]) -> str:
    """The table as docs have it."""
    lines = [
        (
            "| Policy | Wait, mean | median | 95 % | longest | USD "
            "| GPU-hours bought | lost | Machines ended at work |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in found:
        seconds = (each.mean, *(each.quantile(share) for share in (0.5, 0.95, 1)))
        waits = " | ".join(map(reporting.duration, seconds))
        lines.append(
            f"| {each.policy} | {waits} | {each.cost:,.0f} | {each.bought:,.0f} | {each.lost:,.0f} | "
            f"{each.by_choice:,} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, help="stop there")
    parser.add_argument("--workers", type=int, help="processes; one a core without it")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, default=PLOT)
    asked = parser.parse_args(argv)
    found = results(asked.days, asked.workers)
    reporting.plot([found[number] for number in SHOWN], asked.plot)
    if asked.json:
        print(json.dumps([reporting.plain(each) for each in found], indent=2))
    elif asked.markdown:
        sys.stdout.write(markdown(found))
    else:
        from rich.console import Console

        Console(width=160).print(reporting.report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
