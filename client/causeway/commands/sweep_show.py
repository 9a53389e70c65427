"""``sweep show``: shows the results of a search as a table, as JSON and as a page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from causeway.commands.describing import coloured
from causeway.commands.show import number
from causeway.commands.sweep_page import html
from causeway.commands.sweep_picture import picture
from causeway.commands.sweep_results import Found, word
from causeway.commands.tables import table
from causeway.search.fields import plain
from causeway.sweeping import shown
from causeway.units import format_duration

_ROWS = 20
_EVERY = 10.0
"""Seconds between two updates of ``--watch``."""


def show(look: Callable[[], Found], *, everything: bool, watch: bool, page: str | None, as_json: bool) -> int:
    """Show a search. ``watch``: until it is over, or Ctrl-C. ``page``: the file for the HTML page."""
    out = Console(highlight=False, soft_wrap=True)
    found = look()
    if page is not None:
        Path(page).write_text(html(found), encoding="utf-8")
        out.print(f"{page} has the picture; open it in a browser")
        return 0
    if as_json:
        print(json.dumps(found.plain()))
        return 0
    if not watch:
        out.print(_all_of(out, found, None if everything else _ROWS))
        return 0
    try:
        with Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(_all_of(out, found, max(out.height - 14, 5)), refresh=True)
                if found.state not in ("running", "resumed"):
                    return 0
                time.sleep(_EVERY)
                found = look()
    except KeyboardInterrupt:
        return 0


def _all_of(out: Console, found: Found, rows: int | None) -> Group:
    parts: list[RenderableType] = [*_lines(found)]
    if found.trials:
        parts += [_table(out, found, rows), *picture(found)]
    return Group(*parts)


def _lines(found: Found) -> Iterator[Text]:
    age = format_duration(time.time() - found.started)
    head = f"{found.name} {found.state}"
    by = f", by {found.person}" if found.person else ""
    yield Text.assemble(coloured(head, found.state), f", {age} old; {found.where}{by}")
    counts: dict[str, int] = {}
    for each in found.trials:
        counts[word(each)] = counts.get(word(each), 0) + 1
    listed = ", ".join(f"{count} {state}" for state, count in counts.items())
    facts = [
        ("why", found.reason),
        ("search", f"{found.sweep.goal} {found.sweep.metric}, by {found.sweep.sampler}"),
        ("trials", f"{len(found.trials)} of {found.sweep.trials}{f': {listed}' if listed else ''}"),
    ]
    best = found.best
    if best is not None:
        value = found.engine.value(best)
        facts.append(("best", f"{found.run(best)}: {number(value or 0.0)} with {shown(best.parameters)}"))
        facts.append(("again", found.repeats))
    failed = next((each for each in found.trials if each.state == "failed"), None)
    if failed is not None:
        facts.append(("failed", f"{found.run(failed)} first: {failed.cause}"))
    shares = found.summary.get("importance", {})
    facts.append(("importance", ", ".join(f"{name} {share:.0%}" for name, share in shares.items())))
    facts += [("note", note) for note in found.summary.get("notes", ())]
    for title, text in facts:
        if text:
            yield Text.assemble((f"  {title:<11} ", "dim"), text)


def _table(out: Console, found: Found, rows: int | None) -> Text:
    names = list(dict.fromkeys(name for each in found.trials for name in each.parameters))
    ranked = found.ranked()
    listed: list[list[str | Text]] = []
    for each in ranked[:rows]:
        value = found.engine.value(each)
        listed.append([
            str(each.number), coloured(word(each), each.state),
            "" if value is None else number(value), str(each.last_step) if each.curve else "",
            *(plain(each.parameters[name]) if name in each.parameters else "" for name in names),
            each.cause,
        ])  # fmt: skip
    titles = ("TRIAL", "STATE", found.sweep.metric.upper(), "STEP", *names, "WHY")
    made = table(out, titles, listed, goes_first=("STEP", "WHY"))
    if rows is not None and len(ranked) > rows:
        made.append(f"\n… {len(ranked) - rows} more: --all")
    return made
