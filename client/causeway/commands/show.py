"""``show``: prints everything known about a run on one screen."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from causeway.commands.describing import coloured
from causeway.job import Job, flat, written
from causeway.kept import copy_seconds
from causeway.overview import Known, source
from causeway.series import Metric, Usage, finite, sparkline
from causeway.units import format_duration, format_size

_WIDTH = 40
"""Width of a chart in characters."""
_MOST = 12
"""Maximum number of metrics shown (of checkpoints: 5); JSON has all."""
_CHECKPOINTS = 5


def show(name: str, group: str | None, *, local: bool, on: Sequence[str] | None, as_json: bool) -> int:
    """Show a run of the cluster, of machines (``on``: those that know it) or of this machine."""
    known = source(name, group, local=local, on=on).known()
    if as_json:
        print(json.dumps(known.plain(), allow_nan=False))
        return 0
    out = Console(highlight=False, soft_wrap=True)
    for line in lines(known, now=time.time()):
        out.print(line)
    return 0


def lines(known: Known, *, now: float) -> Iterator[Text]:
    """Yield the lines for people."""
    since, by = format_duration(now - known.since), f", by {known.person}" if known.person else ""
    head = coloured(f"{known.name} {known.state}", known.state)
    yield Text.assemble(head, f" for {since}; {known.where}{by}")
    for title, text in _facts(known):
        if text:
            yield Text.assemble((f"  {title:<12} ", "dim"), text)
    if known.metrics:
        yield Text("  metrics", style="dim")
        yield from _metrics(known.metrics)
    for worker, usage in known.usage.items():
        found = [*_usage(usage)]
        if found:
            yield Text(f"  {worker}", style="dim")
            yield from found
    if known.saved:
        yield Text("  checkpoints", style="dim")
    for each in known.saved[:_CHECKPOINTS]:
        values = ", ".join(f"{name} {number(value)}" for name, value in sorted(each.metrics.items()))
        age = format_duration(now - each.written)
        yield Text(f"    {each.name}  {format_size(each.size)}, {age} ago{f'  {values}' if values else ''}")
    if len(known.saved) > _CHECKPOINTS:
        yield Text(f"    and {len(known.saved) - _CHECKPOINTS} more")
    if known.saved and (seconds := copy_seconds(known.saved[0].largest_part)) > known.job.grace:
        took, grace = format_duration(seconds), format_duration(known.job.grace)
        longer = f"one is copied in {took} at 100 MB/s, longer than `grace` ({grace})"
        yield Text(
            f"    {longer}: a checkpoint that is saved when the run is stopped may be lost", style="yellow"
        )


def _facts(known: Known) -> Iterator[tuple[str, str]]:
    yield "why", known.reason
    yield "on", known.nodes
    gpus = ", ".join(known.models or known.gpu_models)
    yield "GPUs", f"{gpus}{f', driver {known.drivers[0]}' if known.drivers else ''}" if gpus else ""
    digest = known.digest.partition("@")[2]
    yield "image", f"{known.image}{f', {digest[:19]}' if digest and digest not in known.image else ''}"
    yield "code", known.code[:12]
    yield "command", known.job.run.strip().replace("\n", "; ")
    yield "parameters", _pairs(known.parameters)
    yield "job", _pairs(fields_of(known.job))
    yield "ran for", format_duration(known.seconds) if known.seconds else ""
    yield "restarts", str(known.restarts) if known.restarts else ""
    yield "cost", f"${known.cost:,.2f}" if known.cost else "" if known.cost == 0 else "unknown"
    yield "continues", ", ".join(known.continues)
    if known.packages:
        yield (
            "packages",
            f"{len(known.packages)} on top of those of the image: {', '.join(known.packages[:4])}"
            + (", …" if len(known.packages) > 4 else ""),
        )


def fields_of(job: Job) -> dict[str, str]:
    """Return field of the job file → its value, with dotted names, without defaults and fields that are shown
    in another line."""
    return flat({name: value for name, value in written(job).items() if name not in ("name", "run")})


def _pairs(values: Mapping[str, str]) -> str:
    return "  ".join(f"{name}={value}" for name, value in values.items())


def _metrics(metrics: Mapping[str, Metric]) -> Iterator[Text]:
    shown = dict([*metrics.items()][:_MOST])
    width = max(map(len, shown))
    for name, metric in shown.items():
        values = [value for _, value in metric.points]
        known = [value for value in values if finite(value) is not None]
        step, last = metric.last
        yield Text.assemble(
            f"    {name:<{width}}  {number(last):>9}  ",
            (f"{sparkline(values, _WIDTH):<{_WIDTH}}", "cyan"),
            (f"  {number(min(known))} to {number(max(known))}, step {step}" if known else "", "dim"),
        )
    if len(metrics) > _MOST:
        yield Text(f"    and {len(metrics) - _MOST} more: --json")


def _usage(usage: Usage) -> Iterator[Text]:
    gib = 2.0**30
    total = f" of {usage.gpu_memory_total / gib:.1f}" if usage.gpu_memory_total else ""
    rows = (
        ("gpu", "GPU use", 1.0, "{:.0f} %"),
        ("gpu_memory", "GPU memory", gib, "{:.1f}" + f"{total} GiB"),
        ("cpus", "CPUs", 1.0, "{:.1f}"),
        ("memory", "memory", gib, "{:.1f} GiB"),
    )
    for name, title, unit, form in rows:
        if values := usage.series.get(name):
            mean = sum(values) / len(values)
            yield Text.assemble(
                f"    {title:<10}  {form.format(values[-1] / unit):>16}  ",
                (f"{sparkline(values, _WIDTH):<{_WIDTH}}", "cyan"),
                (f"  mean {form.format(mean / unit)}", "dim"),
            )


def number(value: float) -> str:
    """Format a number: ``0.1235``, ``1200``, ``3.2e-07``."""
    return f"{value:.4g}"
