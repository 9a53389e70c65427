"""``shell``: a terminal on a GPU of the cluster, in a run's worker, or on an SSH node."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.cluster import runs
from causeway.cluster.connection import Cluster
from causeway.cluster.runs import Run, Worker
from causeway.cluster.terminal import execute
from causeway.commands.describing import check_worker, names_of_workers, short, state_of
from causeway.errors import CausewayError, InputError, Problem, UnreachableError

_RUNTIME = "/causeway/runtime.py"
_ENDED = ("done", "failed", "timed-out", "stopped")


def open_shell(options: Mapping[str, Any], *, allow_secrets: bool, yes: bool, as_json: bool) -> int:
    """Start a run that waits for its user, and open a terminal in it. It ends with the terminal, or when
    idle.

    ``options``: fields of its job. ``as_json``: open no terminal; print where it runs once it does.
    """
    from causeway.commands.submit import submit_detached

    if not as_json and not _at_terminal():  # check before it takes a GPU
        hint = "for a single command: causeway run -- COMMAND"
        raise InputError([Problem("causeway shell", "", "standard input is not a terminal", hint)])
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    job = {"name": "shell", "launcher": "none", "restarts": 0, "run": WAITS, **options}
    cluster, namespace, name = submit_detached(out, job, allow_secrets=allow_secrets, yes=yes)
    if as_json:
        run, worker = running(out, cluster, namespace, name, None)
        print(
            json.dumps(
                {"run": run.name, "namespace": namespace, "worker": short(worker), "node": worker.node}
            )
        )
        return 0
    return _enter(out, cluster, namespace, name, None, (), as_json=False)


def enter(name: str, worker: str | None, group: str | None, command: Sequence[str], *, as_json: bool) -> int:
    """Open a terminal or run a command in ``worker`` of a run, by default in the first that is running.

    ``as_json``: the command's output goes to stderr, and its result to stdout.
    """
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    cluster = Cluster()
    return _enter(out, cluster, cluster.namespace(group), name, worker, command, as_json=as_json)


def log_in(node: str, command: Sequence[str]) -> int:
    """Run ``ssh`` to an SSH node of the spec, under the caller's login."""
    cluster = Cluster()
    nodes = {name: hosts for name, hosts in cluster.offer.ssh_nodes.items() if hosts}
    hosts = {host.partition(".")[0]: host for found in nodes.values() for host in found}
    host = hosts.get(node) or next(iter(nodes.get(node, ())), None)
    if host is None:
        hint = f"there are {', '.join(sorted({*nodes, *hosts}))}" if nodes else "the cluster has none"
        raise InputError([Problem("--node", node, "not an SSH node", hint)])
    try:
        os.execvp("ssh", ["ssh", f"{cluster.person}@{host}", *command])  # noqa: S606
    except OSError as error:
        raise CausewayError(f"ssh cannot be started: {error}") from None


WAITS = "until [ -e /causeway/left ]; do sleep 1; done"
"""The command of a shell's run: the runtime writes that file when the user leaves (``runtime.converse``)."""


def _enter(
    out: Console,
    cluster: Cluster,
    namespace: str,
    name: str,
    worker: str | None,
    command: Sequence[str],
    *,
    as_json: bool,
) -> int:
    run, found = running(out, cluster, namespace, name, worker)
    terminal = not command and _at_terminal()
    if not command and not terminal:
        raise InputError(
            [Problem("causeway shell", "", "standard input is not a terminal", "write a command after `--`")]
        )
    if terminal:
        out.print(Text(f"{name}, {short(found)} on {found.node}; exit or Ctrl-D leaves", style="dim"))
    words = ["python3", _RUNTIME, "--shell" if terminal else "--exec", *command]
    try:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            code = execute(cluster, namespace, found.name, words, terminal=terminal)
    except UnreachableError as error:
        raise UnreachableError(f"{error}; causeway shell {run.name} attaches again") from None
    if as_json:
        said = {"run": run.name, "namespace": namespace, "worker": short(found), "node": found.node}
        print(json.dumps({**said, "exit": code}))
    return code


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def running(
    out: Console, cluster: Cluster, namespace: str, name: str, worker: str | None
) -> tuple[Run, Worker]:
    """Wait until a worker runs; return the run and the worker. Raises CausewayError if it never will."""
    last = ""
    while True:
        run = runs.find(cluster, namespace, name, placed=False)
        if worker is not None:
            check_worker(worker, names_of_workers(run))
        found = [each for each in run.workers if worker in (None, short(each))]
        here = [each for each in found if each.state == "running"]
        if here:
            return run, here[0]
        if run.state in _ENDED or (run.state == "running" and not found):
            there = ", ".join(short(each) for each in run.workers) or "none"
            what = f"{worker} is not running" if worker else "no worker runs"
            why = f" ({run.reason or run.waits_for})" if run.reason or run.waits_for else ""
            raise CausewayError(f"{state_of(run)}{why}: {what}; there are: {there}; causeway why {name}")
        said = f"{run.state}: {run.waits_for}" if run.waits_for else run.state
        if said != last:
            out.print(Text(said, style="dim"))
            last = said
        time.sleep(1)
