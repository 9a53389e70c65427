"""``ui``: forwards MLflow to a port of this machine while the command runs. ``env``: settings for
notebooks."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
import webbrowser
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from typing import Any

from rich.console import Console

from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.forwarding import listening
from causeway.cluster.mlflow import Mlflow, refused
from causeway.cluster.store import Store
from causeway.errors import CausewayError
from causeway.local import runs_root
from causeway.tracking import here
from causeway.tracking.forwarding import AWAY, Forwarded
from causeway.tracking.sending import AwayError
from causeway.tracking.tracked import send_left

_PATIENCE = 60.0
"""Seconds to wait for the beginning of an answer."""
_IDLE = 2.0
"""Seconds after which a connection is not reused: servers close idle ones after five (uvicorn)."""

_HINT = "; pip install 'causeway-client[tracking]'"


def ui(run: str | None, group: str | None, port: int, *, browser: bool) -> int:
    """Forward until Ctrl-C. Raises CausewayError if the cluster refuses it or has no MLflow, InputError if
    the port is in use."""
    out = Console(highlight=False, soft_wrap=True)
    cluster = Cluster()
    namespace = cluster.namespace(group)
    mlflow = Mlflow(cluster, namespace)
    try:
        # a refusal is an error now, not in the browser
        mlflow.call("POST", "experiments/search", {"max_results": 1})
        _send_left(out, cluster, namespace, mlflow)
        page = mlflow.page_of(run) if run else ""
    except RefusedError as error:
        raise refused(error) from None
    with listening(port) as listener, _Pages(listener, mlflow) as pages:
        address = f"http://localhost:{pages.server_address[1]}"
        url = f"{address}/#/{page}?workspace={namespace}"
        out.print(f"{url} shows MLflow until Ctrl-C")
        out.print(f"  in a notebook: MLFLOW_TRACKING_URI={address}", style="dim")
        sys.stdout.flush()
        if browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        try:
            pages.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def ui_local(run: str | None, port: int) -> int:
    """Replace this process by MLflow's server over the records of this machine's runs. Raises CausewayError
    if there are none, or without MLflow."""
    from causeway import local_recording as recording

    own = recording.is_possible()
    if own and (left := recording.waiting(runs_root(), run)):
        print(f"recording {len(left)} run{'s' * (len(left) != 1)}", flush=True)
        recording.catch_up(left)
    database = here.newest(runs_root(), run)
    if database is None:
        raise CausewayError(
            "MLflow has no runs of this machine" + (f": {run}" if run else "") + ("" if own else _HINT)
        )
    words = here.server(database, port, own=own)
    # None of its job runners is used, and each would be a process.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    print(f"http://localhost:{port} shows runs of this machine ({database}) until Ctrl-C", flush=True)
    try:
        os.execvp(words[0], words)  # noqa: S606
    except FileNotFoundError:
        raise CausewayError(f"mlflow not found on PATH{_HINT}") from None


def env(group: str | None) -> int:
    """Print the variables that MLflow's client reads, for a shell. The token is valid for an hour."""
    cluster = Cluster()
    namespace = cluster.namespace(group)
    mlflow = Mlflow(cluster, namespace)
    try:
        token = mlflow.token()
    except RefusedError as error:
        raise refused(error) from None
    values = {
        "MLFLOW_TRACKING_URI": mlflow.tracking.url,
        "MLFLOW_TRACKING_TOKEN": token,
        "MLFLOW_WORKSPACE": namespace,
    }
    for name, value in values.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _send_left(out: Console, cluster: Cluster, namespace: str, mlflow: Mlflow) -> None:
    """Send what runs left in the store while MLflow was away."""
    try:
        sent = send_left(Store(cluster, namespace).runs, mlflow.server, out.print)
    except (AwayError, CausewayError) as error:
        out.print(f"unsent values of runs cannot be sent now: {error}", style="yellow", markup=False)
        return
    if sent:
        out.print(f"sent what {sent} starts of runs had left: MLflow was away when they ended")


class _Pages(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: Any, mlflow: Mlflow) -> None:
        super().__init__(listener.getsockname()[:2], _Page, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.mlflow = mlflow


class _Page(Forwarded):
    server: _Pages
    _connection: HTTPConnection | None = None
    """Kept open briefly while the browser keeps its own connection."""
    _good_until = 0.0

    def do_any(self) -> None:
        if not self._is_ours():
            self.refuse("only pages of this address may send requests", 403, "PERMISSION_DENIED")
            return
        mlflow = self.server.mlflow
        if self._connection is not None and time.monotonic() > self._good_until:
            self._let_go()
        try:
            if self._connection is None:
                self._connection = mlflow.connect(_PATIENCE)
            found = self.ask(self._connection, self.path, None, mlflow.server.headers)
        except (*AWAY, CausewayError) as error:
            self._let_go()
            self.refuse(f"MLflow does not answer: {error}")
            return
        self.pass_back(found)
        self._good_until = time.monotonic() + _IDLE

    def _is_ours(self) -> bool:
        """Whether the request comes from our page or from a program. Requests are made with the user's
        rights, so other sites' pages must not make them (nor a page that reaches this address by another
        name)."""
        port = self.server.server_address[1]
        ours = {f"{name}:{port}" for name in ("localhost", "127.0.0.1")}
        origin = self.headers.get("Origin")
        return self.headers.get("Host") in ours and (origin is None or origin.removeprefix("http://") in ours)

    def _let_go(self) -> None:
        """Close the server's end."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def finish(self) -> None:
        self._let_go()
        super().finish()
