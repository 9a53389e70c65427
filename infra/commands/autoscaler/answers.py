"""Prints decisions of the autoscaler, and sets the environment for calls to AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.commands.terminal import note, say

if TYPE_CHECKING:
    from rich.table import Table

    from infra.autoscaler.decision import Decision


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs: boto3 reads its profile from them."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def tell_all(decision: Decision) -> None:
    """Print all waiting pods, with equal ones grouped."""
    if not decision.verdicts:
        say("No pod waits.")
        return
    from infra.autoscaler.reporting import sentences

    table = new_table("pods", "for example", "outcome", "")
    for each in decision.verdicts:
        table.add_row(str(each.count), each.example or each.gang or "", each.outcome, sentences.verdict(each))
    show(table)
    if decision.stopped:
        note(f"! nothing is written: {decision.stopped}")


def new_table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def show(table: Table) -> None:
    from rich.console import Console

    Console().print(table)
