"""A result as a table for the terminal, as JSON, and as a plot over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.simulator.runner import Result

if TYPE_CHECKING:
    from rich.table import Table


def report(result: Result) -> Table:
    """A rich table."""
    from rich.table import Table

    table = Table(
        title="What this work would have waited and cost",
        caption="Waits: from a pod's submission to its first start. GPU-hours bought: of cloud machines; "
        "used: of work that counted, on own machines too. Ended at work: by the autoscaler.",
        caption_justify="left",
        show_header=False,
    )
    table.add_column("")
    table.add_column("", justify="right")
    for heading, value in (
        ("mean wait", duration(result.mean)),
        ("half of the pods within", duration(result.quantile(0.5))),
        ("95 % within", duration(result.quantile(0.95))),
        ("the last within", duration(result.quantile(1.0))),
        ("USD", f"{result.cost:,.0f}"),
        ("GPU-hours bought", f"{result.bought:,.0f}"),
        ("GPU-hours used", f"{result.used:,.0f}"),
        ("GPU-hours lost", f"{result.lost:,.0f}"),
        ("machines ended at work", f"{result.by_choice:,}"),
        ("pods unfinished", f"{result.pods - result.finished:,}"),
        ("loops", f"{result.loops:,}"),
        ("seconds of this machine", f"{result.seconds:.1f}"),
    ):
        table.add_row(heading, value)
    return table


def plain(result: Result) -> dict[str, Any]:
    """The result as JSON. Seconds, USD, GPU-hours."""
    return {
        "policy": result.policy,
        "wait_mean": round(result.mean, 1),
        "wait_p50": result.quantile(0.5),
        "wait_p95": result.quantile(0.95),
        "wait_max": result.quantile(1.0),
        "delay_p50": result.delay(0.5),
        "delay_p95": result.delay(0.95),
        "cost": round(result.cost, 2),
        "gpu_hours_bought": round(result.bought, 1),
        "gpu_hours_used": round(result.used, 1),
        "gpu_hours_lost": round(result.lost, 1),
        "restarts": result.restarts,
        "ended_busy": dict(result.ended_busy),
        "pods": result.pods,
        "unfinished": result.pods - result.finished,
        "machines_started": result.launches,
        "launches_failed": result.failed,
        "machines_left": result.left,
        "writes": dict(result.writes),
        "loops": result.loops,
        "seconds": round(result.seconds, 2),
        "simulated_seconds": result.simulated,
    }


def plot(result: Result, path: Path) -> None:
    """A plot of waiting pods, machines and cost over time; ``.svg``, ``.png`` or ``.pdf``."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "causeway"  # makes the file reproducible
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8.5), layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True)
    days = [sample.at / 86400 for sample in result.samples]
    above.step(days, [sample.waiting for sample in result.samples], where="post")
    middle.step(days, [sample.machines for sample in result.samples], where="post")
    below.plot(days, [sample.spent for sample in result.samples])
    above.set_yscale("symlog", linthresh=1)
    above.set_ylim(bottom=0)
    above.set_ylabel("pods that wait")
    middle.set_ylabel("cloud machines")
    below.set_ylabel("USD spent")
    below.set_xlabel("days")
    for axes in (above, middle, below):
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def duration(seconds: float) -> str:
    """``0:45`` and ``11:05`` are minutes and seconds, ``3h20`` hours and minutes."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}h{whole % 3600 // 60:02}"
