"""``compare``: how runs differ in parameters and fields, code, image and GPUs, and final metrics."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.code.difference import changes, unified
from causeway.commands.describing import coloured
from causeway.commands.show import fields_of, number
from causeway.commands.tables import fits_a_line, show_table
from causeway.overview import Known, Source, source
from causeway.series import sparkline
from causeway.units import format_duration

_FILES = 20
"""Maximum number of changed files listed; JSON has all."""
_WIDTH = 20


def compare(
    names: Sequence[str],
    group: str | None,
    *,
    local: bool,
    on: Sequence[str] | None,
    shows_code: bool,
    as_json: bool,
) -> int:
    """Compare runs of the cluster, of machines (``on``: those that know them) or of this machine.

    ``shows_code``: print changed lines, not only the changed files.
    """
    sources = [source(name, group, local=local, on=on) for name in names]
    known = [each.known() for each in sources]
    differences = dict(rows(known))
    with tempfile.TemporaryDirectory() as scratch:
        folders = [*_unpacked(sources, known, Path(scratch))]
        code = {
            (one.name, other.name): [*changes(before, after, [*_paths(after)])]
            for (one, before), (other, after) in pairwise(zip(known, folders, strict=True))
        }
        if as_json:
            print(json.dumps(_plain(known, differences, code), allow_nan=False))
            return 0
        out = Console(highlight=False, soft_wrap=True)
        show_table_of(out, known, differences)
        for (one, before), (other, after) in pairwise(zip(known, folders, strict=True)):
            changed = code[one.name, other.name]
            if not changed:
                out.print(f"the code of {one.name} and {other.name} is the same")
                continue
            out.print(f"code, from {one.name} to {other.name}:")
            for path, change in changed[:_FILES]:
                out.print(Text(f"  {change:<8} {path}"))
            if len(changed) > _FILES:
                out.print(f"  and {len(changed) - _FILES} more: --json")
            for path, _ in changed if shows_code else ():
                for line in unified(before, after, path):
                    out.print(Text(line.rstrip("\n")))
    return 0


def rows(known: Sequence[Known]) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, value for each run) for values that differ; ``""`` where a run has none."""
    found = [_values(each) for each in known]
    for name in dict.fromkeys(name for each in found for name in each):
        values = [each.get(name, "") for each in found]
        if len({*values}) > 1:
            yield name, values


def _values(known: Known) -> dict[str, str]:
    return {
        **{f"--set {name}": value for name, value in known.parameters.items()},
        "command": known.job.run.strip(),
        **fields_of(known.job),
        "image": known.digest or known.image,
        "GPUs": ", ".join(known.models or known.gpu_models),
        "driver": ", ".join(known.drivers),
        "packages": "" if not known.packages else _digest(known.packages),
        "continues": ", ".join(known.continues),
    }


def _digest(packages: Sequence[str]) -> str:
    found = hashlib.sha256("\n".join(packages).encode()).hexdigest()
    return f"{len(packages)}, {found[:12]}"


def show_table_of(out: Console, known: Sequence[Known], differences: Mapping[str, Sequence[str]]) -> None:
    """Print a table, and below it, in full, the values that its columns had to cut: values often differ at
    their ends."""
    listed: list[list[str | Text]] = []
    long = {}
    for name, values in differences.items():
        if fits_a_line(out, [name, *values]):
            listed.append([name, *values])
        else:
            long[name] = values
    listed.append(["state", *(coloured(each.state, each.state) for each in known)])
    listed.append(["ran for", *(format_duration(each.seconds) for each in known)])
    if any(each.cost for each in known):
        listed.append(["cost", *("" if each.cost is None else f"${each.cost:,.2f}" for each in known)])
    for name in sorted({name for each in known for name in each.metrics}):
        cells = []
        for each in known:
            metric = each.metrics.get(name)
            if metric is None:
                cells.append(Text(""))
                continue
            line = sparkline([value for _, value in metric.points], _WIDTH)
            cells.append(Text.assemble(f"{number(metric.last[1])} ", (line, "cyan")))
        listed.append([name, *cells])
    show_table(out, ("", *(each.name for each in known)), listed)
    for name, values in long.items():
        out.print(Text(name, style="bold"))
        for each, value in zip(known, values, strict=True):
            before, *more = value.splitlines() or [""]
            out.print(Text(f"  {each.name}  {before}"))
            for line in more:
                out.print(Text(" " * (len(each.name) + 4) + line))


def _plain(
    known: Sequence[Known],
    differences: Mapping[str, Sequence[str]],
    code: Mapping[tuple[str, str], Sequence[tuple[str, str]]],
) -> dict[str, Any]:
    names = [each.name for each in known]
    packages = [{*each.packages} for each in known]
    shared = set.intersection(*packages)
    return {
        "runs": names,
        "differences": {name: dict(zip(names, values, strict=True)) for name, values in differences.items()},
        "packages": {name: sorted(each - shared) for name, each in zip(names, packages, strict=True)},
        "metrics": {
            each.name: {
                name: {field: value for field, value in metric.plain().items() if field != "points"}
                for name, metric in each.metrics.items()
            }
            for each in known
        },
        "code": [
            {"from": one, "to": other, "files": [{"path": path, "change": change} for path, change in files]}
            for (one, other), files in code.items()
        ],
    }


def _unpacked(sources: Sequence[Source], known: Sequence[Known], scratch: Path) -> Iterator[Path]:
    """Unpack the code of each run; runs with the same code share a folder."""
    for each, about in zip(sources, known, strict=True):
        folder = scratch / (about.code or "none")
        if not folder.exists():
            each.unpack(folder)
        yield folder


def _paths(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        for name in [*files, *(each for each in folders if Path(parent, each).is_symlink())]:
            yield Path(parent, name).relative_to(folder).as_posix()
