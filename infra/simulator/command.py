"""``invoke autoscaler.simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.simulator.conditions import Machines
    from infra.simulator.kueue import Rules


BUNDLED: Final = Path(__file__).with_name("bundled_trace.jsonl")
"""A lab's three weeks; ``tests/simulator/bundled_trace.py`` makes it."""


def simulate(
    trace: Path | None = None,
    *,
    config: Path | None = None,
    physical: Sequence[Machines] = (),
    rules: Rules | None = None,
    plot: Path | None = None,
    as_json: bool = False,
    until: float | None = None,
    out: TextIO | None = None,
) -> int:
    """Run a trace under our policy and say what it would have waited and cost.

    Without a trace the shipped one is taken, without a configuration that of the lab which it tells of, with
    its queue. ``rules`` are of Kueue, where the environment has it; ``physical`` are machines of one's own,
    where the trace does not name them. A plot is written as its
    file's ending says. ``until`` is in days from the trace's beginning. Returns 0, or 1 if work was left
    undone. UsageError for files that can't be read.
    """
    import json
    import sys

    from msgspec import structs

    from infra.autoscaler import config as configurations
    from infra.simulator import example, reporting, runner
    from infra.simulator import trace as traces

    if plot is not None and plot.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(f"{plot}: a plot is .svg, .png or .pdf")
    asked = traces.read(trace if trace is not None else BUNDLED)
    if physical and not asked.conditions.physical:
        asked = replace(asked, conditions=structs.replace(asked.conditions, physical=tuple(physical)))
    if config is None:
        known = example.config()
        rules = example.queues(known)
    else:
        known = configurations.read(config)
    result = runner.run(known, asked, until=until * 86400 if until is not None else None, rules=rules)
    stream = out if out is not None else sys.stdout
    if as_json:
        print(json.dumps(reporting.plain(result), indent=2, sort_keys=True), file=stream)
    else:
        from rich.console import Console

        Console(file=stream).print(reporting.report(result))
    if plot is not None:
        reporting.plot(result, plot)
    return 0 if result.finished == result.pods else 1
