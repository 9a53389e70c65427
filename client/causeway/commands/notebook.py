"""``notebook``: JupyterLab in the cluster or on a machine reached over ssh, at a local port; or on this
machine.

JupyterLab listens on the loopback address and requires a random token. It exits when no kernel has run
anything for ``idle``: a kernel that computes counts as use, an open page does not.
"""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.errors import CausewayError, InputError, Problem
from causeway.job import Job, recorded
from causeway.units import parse_duration

_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below the ports that Linux uses for outgoing connections."""
_TRY = 0.5
_BEGINS = 0.05
_LOOK = 3.0
"""Seconds between two polls of the page, of a starting process, and of the run."""
_NO_JUPYTER = "jupyterlab is not installed here: use an --image that has it, or --python with jupyterlab"
_SCRIPT = """\
has='import importlib.util, sys; sys.exit(importlib.util.find_spec("jupyterlab") is None)'
if ! python3 -c "$has"; then echo "{missing}"; exit 78; fi
root="$HOME"
if [ ! -d "$root" ] || [ "$root" = "$(dirname "$CAUSEWAY_CODE")" ]; then root="$CAUSEWAY_RESULTS"; fi
exec python3 -m jupyterlab --no-browser --allow-root --ip=127.0.0.1 --ServerApp.root_dir="$root" \
 --ServerApp.shutdown_no_activity_timeout={idle} --TerminalManager.cull_inactive_timeout={idle} \
 --MappingKernelManager.cull_idle_timeout={idle} --MappingKernelManager.cull_connected=True \
 --MappingKernelManager.cull_interval={every}
"""
"""In pods whose home is not persistent, notebooks are stored as results, which are kept."""


@dataclass(frozen=True)
class Notebook:
    """A run with JupyterLab."""

    run: str
    port: int
    """The port that JupyterLab listens on."""
    token: str
    local: bool = False

    def command(self, verb: str) -> str:
        """Return the command that the user would type."""
        return f"causeway {verb} {'--local ' if self.local else ''}{self.run}"


def fields(options: Mapping[str, Any], idle: str) -> dict[str, Any]:
    """Return the job fields of a new notebook. Raises InputError if ``idle`` is not a duration."""
    try:
        seconds = parse_duration(idle)
    except ValueError as error:
        raise InputError([Problem("--idle", "", str(error))]) from None
    script = _SCRIPT.format(missing=_NO_JUPYTER, idle=seconds, every=min(60, seconds))
    return {
        "name": "notebook",
        "launcher": "none",
        "run": script,
        "tracking": False,
        "env.JUPYTER_TOKEN": secrets.token_urlsafe(24),
        "env.JUPYTER_PORT": str(_FIRST_PORT + secrets.randbelow(_PORTS)),
        "env.JUPYTER_PORT_RETRIES": "0",
        **options,
    }


def of_run(run: str, job: Job, *, local: bool = False) -> Notebook:
    """Return the notebook of a run. Raises CausewayError if the run is not one."""
    try:
        return Notebook(run, int(job.env["JUPYTER_PORT"]), job.env["JUPYTER_TOKEN"], local)
    except (KeyError, ValueError):
        raise CausewayError(f"{run} is not a notebook; causeway notebook starts one") from None


def start_in_cluster(
    options: Mapping[str, Any],
    idle: str,
    *,
    port: int,
    detach: bool,
    browser: bool,
    allow_secrets: bool,
    yes: bool,
) -> int:
    """Start a notebook in the cluster."""
    from causeway.commands.submit import submit_detached

    out = Console(stderr=True, highlight=False, soft_wrap=True)
    job = {**fields(options, idle), "restarts": 0}
    _, _, name = submit_detached(out, job, allow_secrets=allow_secrets, yes=yes)
    if detach:
        return _detached(out, Notebook(name, 0, ""))
    return open_in_cluster(name, options.get("group"), port=port, browser=browser)


def open_in_cluster(name: str, group: str | None, *, port: int, browser: bool) -> int:
    """Open an existing notebook through the cluster's API, until Ctrl-C or its end."""
    from causeway.cluster import runs
    from causeway.cluster.connection import Cluster
    from causeway.cluster.forwarding import forward
    from causeway.commands.shell import running

    out = Console(stderr=True, highlight=False, soft_wrap=True)
    cluster = Cluster()
    namespace = cluster.namespace(group)
    run, worker = running(out, cluster, namespace, name, None)
    there = of_run(name, recorded(run.job, name))
    pod = f"/api/v1/namespaces/{namespace}/pods/{worker.name}"
    return _show(
        out,
        there,
        port,
        browser=browser,
        state=lambda: runs.find(cluster, namespace, name, placed=False).state,
        serve=lambda opened, failed: forward(cluster, pod, there.port, port, opened=opened, failed=failed),
    )


def start_on(
    options: Mapping[str, Any],
    idle: str,
    *,
    port: int,
    detach: bool,
    browser: bool,
    allow_secrets: bool,
) -> int:
    """Start a notebook on a machine reached over ssh."""
    from causeway.commands.machines import start
    from causeway.jobfile import load

    out = Console(stderr=True, highlight=False, soft_wrap=True)
    name, _ = start(out, load(None, fields(options, idle), {}), allow_secrets=allow_secrets)
    if detach:
        return _detached(out, Notebook(name, 0, ""))
    return open_on(name, (), port=port, browser=browser)


def open_on(name: str, on: Sequence[str], *, port: int, browser: bool) -> int:
    """Open an existing notebook over ssh, until Ctrl-C or its end."""
    from causeway.cluster.forwarding import serve
    from causeway.commands.entering import running
    from causeway.machines import runs
    from causeway.machines.ssh import Host

    out = Console(stderr=True, highlight=False, soft_wrap=True)
    worker = running(name, None, on)
    there = of_run(name, runs.job_of(runs.find(name, on))[0])
    host = Host(worker.host)
    return _show(
        out,
        there,
        port,
        browser=browser,
        state=lambda: runs.find(name, on).state,
        serve=lambda opened, failed: serve(
            lambda: host.connect(there.port), port, opened=opened, failed=failed
        ),
    )


def start_here(
    options: Mapping[str, Any], idle: str, *, port: int, detach: bool, browser: bool, allow_secrets: bool
) -> int:
    """Start a notebook on this machine, which outlives this process."""
    from causeway.commands.run import submitted_here
    from causeway.jobfile import load
    from causeway.local import is_running
    from causeway.local_process import launch

    out = Console(stderr=True, highlight=False, soft_wrap=True)
    folder, job, _ = submitted_here(out, load(None, fields(options, idle), {}), allow_secrets=allow_secrets)
    process = launch(folder)
    while process.poll() is None and not is_running(folder):
        time.sleep(_BEGINS)
    if detach:
        return _detached(out, of_run(folder.name, job, local=True))
    return open_here(folder.name, port=port, browser=browser)


def open_here(name: str, *, port: int, browser: bool) -> int:
    """Open a notebook of this machine, until Ctrl-C or its end."""
    from causeway.cluster.forwarding import serve
    from causeway.local import find_here, record_of, state_here

    folder, job = find_here(name)
    there = of_run(name, job, local=True)

    def state() -> str:
        return state_here(folder, record_of(folder))

    if (now := state()) != "running":
        raise CausewayError(f"{name} {now}; {there.command('why')}")
    return _show(
        Console(stderr=True, highlight=False, soft_wrap=True),
        there,
        port,
        browser=browser,
        state=state,
        serve=lambda opened, failed: serve(
            lambda: socket.create_connection(("127.0.0.1", there.port)), port, opened=opened, failed=failed
        ),
    )


def _detached(out: Console, there: Notebook) -> int:
    out.print(f"  {there.command('notebook')} opens it; {there.command('stop')}")
    return 0


_Serve = Callable[[Callable[[], None], Callable[[str], None]], None]


def _show(
    out: Console, there: Notebook, port: int, *, browser: bool, state: Callable[[], str], serve: _Serve
) -> int:
    """Show a notebook; return the exit code. Raises CausewayError if it failed."""
    answers, ended = threading.Event(), threading.Event()
    last: list[str] = []
    url = f"http://localhost:{port}/lab?token={there.token}"

    def watch() -> None:
        """Print the URL once it answers, and close the connection when the run ends."""
        looked = time.monotonic()
        while True:
            time.sleep(_LOOK if answers.is_set() else _TRY)
            if not answers.is_set() and _answers(port, there.token):
                answers.set()
                out.print(Text(f"{url} until Ctrl-C; {there.run} continues"))
                if browser:
                    webbrowser.open(url)
            if time.monotonic() - looked < _LOOK:
                continue
            looked = time.monotonic()
            try:
                last[:] = [state()]
            except CausewayError:
                continue  # temporarily unreachable
            if last[0] not in ("starting", "running", "unknown"):
                ended.set()
                ident = threading.main_thread().ident
                assert ident is not None
                signal.pthread_kill(ident, signal.SIGINT)  # it is waiting for connections
                return

    def failed(text: str) -> None:
        if answers.is_set():  # until then, each of our polls fails
            out.print(f"error: {text}", markup=False)

    with suppress(KeyboardInterrupt):
        serve(threading.Thread(target=watch, daemon=True).start, failed)
    if not ended.is_set():
        out.print(f"{there.run} continues: {there.command('notebook')}; {there.command('stop')}")
        return 0
    if last[0] not in ("done", "stopped"):
        raise CausewayError(f"{there.run} {last[0]}; {there.command('why')}")
    out.print(f"{there.run} {last[0]}")
    return 0


def _answers(port: int, token: str) -> bool:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/status", headers={"Authorization": f"token {token}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError, ValueError):
        return False
