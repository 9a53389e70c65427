"""Prints the first failure of a run."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from causeway.job import Code


_CURES = (
    (re.compile(r"OOMKilled"), "request more memory with `memory:`"),
    (
        re.compile(r"ImportError|ModuleNotFoundError|No module named|finding module specification"),
        "it would fail again: install the missing package (`python:`), or use another `image:`",
    ),
    (re.compile(r"code is not what was submitted|can't be unpacked"), "submit it again: causeway run"),
)
"""Pattern of a reason → the fix."""
_MODULE = re.compile(r"No module named '?(?P<name>\w[\w.]*)")
_NO_TORCH = (
    "torchrun starts `python …` on more than one GPU, and the image has no PyTorch: set `launcher: none`,"
    " or use another `image:`"
)

_NO_TORCH_HERE = (
    "torchrun starts `python …` on more than one GPU, and this Python has no PyTorch: pip install torch,"
    " or set `launcher: none`"
)


def show_failure(
    out: Console, first: Mapping[str, Any], code: Code | Literal[False] = False, *, here: bool = False
) -> None:
    """``first``: the runtime's record of the worker that failed first, with ``role`` and ``rank``.

    ``code``: the shipped files, usually those of the current folder. ``here``: it ran on this machine,
    without an image.
    """
    process = f", rank {first['process']}" if "process" in first else ""
    how = first.get("signal") or f"exit code {first.get('exit', '?')}"
    at = f" at {time.strftime('%H:%M:%S', time.localtime(first['at']))}" if "at" in first else ""
    out.print(f"first to fail: {first['role']}-{first['rank']}{process}{at}, {how}")
    reason = first.get("reason")
    if reason and reason != "Error":
        out.print(Text(f"  {reason}", style="bold"))
    for line in first.get("lines", ()):
        out.print(Text(f"  {line}"))
    cures = (text for said, text in _CURES if said.search(str(reason or "")))
    cure = _cure_of_import(str(reason or ""), code, here=here) or next(cures, "")
    if cure:
        out.print(f"  {cure}", style="yellow")


def _cure_of_import(reason: str, code: Code | Literal[False], *, here: bool) -> str:
    """Return the fix for a module that was not found; empty if it has to be installed."""
    found = _MODULE.search(reason)
    if found is None:
        return ""
    if found["name"].startswith("torch") and "torch.distributed.run" in reason:
        return _NO_TORCH_HERE if here else _NO_TORCH
    if code is not False:
        from causeway.code.imports import why_not_found

        if said := why_not_found(found["name"], Path(), code):
            return said
    # A package may have another name than its module: none is guessed.
    return (
        f"install the package that has {found['name']} into this Python, or list it in `python:`"
        if here
        else ""
    )
