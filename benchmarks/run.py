"""``invoke bench``: measure, keep the results, and write the table into docs/figures.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks import peers
from benchmarks.cases import CASES, LONG, REPOSITORY, Row
from benchmarks.measure import BenchmarkError

RESULTS: Final = REPOSITORY / "benchmarks" / "results.json"
PAGE: Final = REPOSITORY / "docs" / "figures.md"
BEGIN: Final = "<!-- bench:begin -->"
END: Final = "<!-- bench:end -->"
PEERS: Final = "peers"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 1 when something could not be measured.

    Results of other cases, of earlier runs, stay.
    """
    known = {**CASES, **LONG}
    parser = argparse.ArgumentParser(prog="invoke bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*known, PEERS], help="a case; may be repeated")
    parser.add_argument("--peers", action="store_true", help="measure the peers too")
    arguments = parser.parse_args(argv)
    asked = arguments.only or [*CASES, *([PEERS] if arguments.peers else [])]
    results = _results()
    failed = 0
    for name in asked:
        sys.stderr.write(f"{name} …\n")
        load = os.getloadavg()[0]
        try:
            with tempfile.TemporaryDirectory() as scratch:
                rows = list(peers.rows() if name == PEERS else known[name](Path(scratch)))
        except BenchmarkError as problem:
            sys.stderr.write(f"{problem}\n")
            failed = 1
            continue
        results["cases"][name] = {
            "measured": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "load": round(load, 1),
            "rows": [asdict(row) for row in rows],
        }
    order = [name for name in [*known, PEERS] if name in results["cases"]]
    results["cases"] = {name: results["cases"][name] for name in order}
    RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    shown = table(results["cases"])
    sys.stdout.write(shown)
    if not into_page(PAGE, shown):
        sys.stderr.write(f"{PAGE.name} has no {BEGIN} and {END} to put the table between\n")
    return failed


def cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """What it was measured on, as far as it matters to a figure."""
    return (
        f"{cpus()} CPUs ({platform.machine()}), {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def table(cases: Mapping[str, Any]) -> str:
    """The results as a table in Markdown, with a line on where and when they come from."""
    lines = ["| | time | CPU | runs | memory | bar |", "|---|---:|---:|---:|---:|---:|"]
    lines += [_line(Row(**row)) for case in cases.values() for row in case["rows"]]
    sources = _sources(cases.values())
    return "\n".join(
        [*lines, "", f"Times are medians of so many runs, memory is the most of any. {sources}", ""]
    )


def _line(row: Row) -> str:
    memory = f"{row.mib:.0f} MiB" if row.mib else ""
    return (
        f"| {row.what} | {_seconds(row.seconds)} | {_seconds(row.cpu)} | {row.runs} | {memory} | {row.bar} |"
    )


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def _sources(cases: Iterable[Mapping[str, Any]]) -> str:
    """Where and when, and whether the machine had other work: then the figures are too high."""
    found = sorted(cases, key=lambda one: one["measured"])
    places = {case["machine"]: case["measured"] for case in found}
    told = " ".join(f"Measured on {where}, {when}." for where, when in places.items())
    busiest = max((case.get("load", 0.0) for case in found), default=0.0)
    if busiest > cpus() / 2:
        told += f" The machine had other work (load up to {busiest}): on a quiet one the times are lower."
    return told


def into_page(page: Path, text: str) -> bool:
    """Put the table between the markers. False where there are none."""
    before = page.read_text(encoding="utf-8")
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        return False
    page.write_text(f"{head}{BEGIN}\n{text}{END}{tail}", encoding="utf-8")
    return True


def _results() -> dict[str, Any]:
    if not RESULTS.exists():
        return {"cases": {}}
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    sys.exit(main())
