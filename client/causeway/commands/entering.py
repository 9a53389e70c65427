"""``shell`` on machines without a cluster: a terminal on leased GPUs, or beside a run's worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.commands.machines import start
from causeway.errors import CausewayError, InputError, Problem, UnreachableError
from causeway.jobfile import load
from causeway.machines import runs
from causeway.machines.ssh import Host
from causeway.machines.state import ENDED, Worker

_WAITS = 'until [ -e "$(dirname "$CAUSEWAY_CODE")/left" ]; do sleep 1; done'
"""The command of a shell's run: the runtime writes that file when the user leaves (``runtime.converse``)."""


def open_shell(options: Mapping[str, Any], *, allow_secrets: bool) -> int:
    """Start a run that waits for its user, and open a terminal in it. It ends with the terminal, or when
    idle.

    ``options``: fields of its job.
    """
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    _need_terminal()
    loaded = load(None, {"name": "shell", "launcher": "none", "run": _WAITS, **options}, {})
    name, _ = start(out, loaded, allow_secrets=allow_secrets)
    return enter(name, None, (), ())


def enter(name: str, worker: str | None, on: Sequence[str], command: Sequence[str]) -> int:
    """Open a terminal or run a command in a worker of a run, by default the first."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    if not command:
        _need_terminal()
    found = running(name, worker, on)
    words = ["--exec", *command] if command else ["--shell"]
    if not command:
        gpus = f", GPUs {', '.join(map(str, found.gpus))}" if found.gpus else ""
        out.print(Text(f"{name}, {found.name} on {found.host}{gpus}; exit or Ctrl-D leaves", style="dim"))
    try:
        return Host(found.host).enter(name, found.name, words, terminal=not command)
    except UnreachableError as error:
        raise UnreachableError(f"{error}; causeway shell {name} attaches again") from None


def _need_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            [
                Problem(
                    "causeway shell",
                    "",
                    "standard input or output is not a terminal",
                    "name a run, and a command after `--`",
                )
            ]
        )


def running(name: str, worker: str | None, on: Sequence[str]) -> Worker:
    """Wait until the worker runs, and return it. Raises CausewayError if it never will."""
    while True:
        run = runs.find(name, on)
        found = [each for each in run.workers if worker in (None, each.name)]
        here = [each for each in found if each.state == "running"]
        if here:
            return here[0]
        if run.state in ENDED or not found or run.state == "unknown":
            there = ", ".join(each.name for each in run.workers)
            why = f" ({run.reason})" if run.reason else ""
            raise CausewayError(f"{name} {run.state}{why}: no worker {worker or ''} runs; there are: {there}")
        time.sleep(0.5)
