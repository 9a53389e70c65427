"""Results side by side: a table for the terminal, and a plot over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.simulator.runner import Result

if TYPE_CHECKING:
    from rich.table import Table


_FIGURES: Final = (
    "mean wait",
    "half of the pods within",
    "95 % within",
    "the last within",
    "USD",
    "GPU-hours bought",
    "GPU-hours used",
    "GPU-hours lost",
    "machines ended at work",
    "pods unfinished",
    "loops",
    "seconds of this machine",
)


def report(results: Sequence[Result]) -> Table:
    """A table with a column for each policy: print it with rich."""
    from rich.table import Table

    table = Table(
        title="What the same work would have waited and cost",
        caption="Waits: from a pod's submission to its first start. GPU-hours bought: of cloud machines; "
        "used: of work that counted, on own machines too. Ended at work: by the policy, or by its groups.",
        caption_justify="left",
    )
    # Policies are columns: one alone, as an engineer asks for, fits a narrow terminal.
    table.add_column("")
    for each in results:
        table.add_column(each.policy, justify="right")
    columns = [
        (
            duration(each.mean),
            duration(each.quantile(0.5)),
            duration(each.quantile(0.95)),
            duration(each.quantile(1.0)),
            f"{each.cost:,.0f}",
            f"{each.bought:,.0f}",
            f"{each.used:,.0f}",
            f"{each.lost:,.0f}",
            f"{each.by_choice:,}",
            f"{each.pods - each.finished:,}",
            f"{each.loops:,}",
            f"{each.seconds:.1f}",
        )
        for each in results
    ]
    for heading, *values in zip(_FIGURES, *columns, strict=True):
        table.add_row(heading, *values)
    return table


def plain(result: Result) -> dict[str, Any]:
    """The figures of a result, for JSON. Seconds, USD, GPU-hours."""
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


def plot(results: Sequence[Result], path: Path) -> None:
    """Pods that wait, machines and cost over time, a line for each policy; ``.svg``, ``.png`` or ``.pdf``."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "causeway"  # the same results make the same file
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8.5), layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True)
    for number, each in reversed(list(enumerate(results))):  # the first lies on top
        days = [sample.at / 86400 for sample in each.samples]
        style: dict[str, Any] = {
            "label": each.policy,
            "color": f"C{number}",
            "linewidth": 1.6 if number == 0 else 0.9,
            "alpha": 1.0 if number == 0 else 0.75,
        }
        above.step(days, [sample.waiting for sample in each.samples], where="post", **style)
        middle.step(days, [sample.machines for sample in each.samples], where="post", **style)
        below.plot(days, [sample.spent for sample in each.samples], **style)
    above.set_yscale("symlog", linthresh=1)
    above.set_ylim(bottom=0)
    above.set_ylabel("pods that wait")
    middle.set_ylabel("cloud machines")
    below.set_ylabel("USD spent")
    below.set_xlabel("days")
    for axes in (above, middle, below):
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = above.get_legend_handles_labels()
    below.legend(handles[::-1], labels[::-1], loc="upper left", frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def duration(seconds: float) -> str:
    """``0:45`` and ``11:05`` are minutes and seconds, ``3h20`` hours and minutes."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}h{whole % 3600 // 60:02}"
