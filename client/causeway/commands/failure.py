"""Prints the first failure of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

_CURES = {
    "OOMKilled": "more memory is asked for with `memory:`",
    78: "it would fail again: install what is missing (`python:`), or use another `image:`",
}


def show_failure(out: Console, first: Mapping[str, Any]) -> None:
    """``first``: what the runtime wrote down of the worker that failed first, with ``role`` and ``rank``."""
    process = f", rank {first['process']}" if "process" in first else ""
    how = first.get("signal") or f"exit code {first.get('exit', '?')}"
    at = f" at {time.strftime('%H:%M:%S', time.localtime(first['at']))}" if "at" in first else ""
    out.print(f"first to fail: {first['role']}-{first['rank']}{process}{at}, {how}")
    reason = first.get("reason")
    if reason and reason != "Error":
        out.print(Text(f"  {reason}", style="bold"))
    for line in first.get("lines", ()):
        out.print(Text(f"  {line}"))
    cure = _CURES.get(str(reason)) or _CURES.get(first.get("exit", 0))
    if cure:
        out.print(f"  {cure}", style="yellow")
