"""``board``: TensorBoard over the event files of runs, in the cluster or on this machine."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from causeway import board as tensorboard
from causeway.cluster import boards, runs
from causeway.cluster.boards import Board
from causeway.cluster.connection import Cluster
from causeway.cluster.forwarding import forward, listening
from causeway.cluster.store import Store
from causeway.commands.files import first_worker
from causeway.errors import CausewayError
from causeway.job import Job
from causeway.local import find_here, runs_here
from causeway.places import Place
from causeway.workers import ends_with, workers_of

LAST = 10
"""Number of newest runs that are shown by default."""
_TRY = 3.0
"""Seconds to find out whether this machine is in the VPN."""


def board(names: Sequence[str], group: str | None, *, port: int, detach: bool, as_json: bool) -> int:
    """Start the board of a namespace, or open the existing one if it shows the same runs.

    If its name cannot be reached, it is forwarded to a local port until Ctrl-C.
    """
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    cluster, namespace, wanted = _wanted(names, group)
    if cluster.offer.tools is None:
        raise CausewayError("this cluster has no image with TensorBoard; its spec needs `research.tools`")
    found = boards.find(cluster, namespace)
    if found is None or found.has_ended or found.runs != wanted:
        found = boards.start(cluster, namespace, wanted)
    url = found.url(found.host, tensorboard.PORT)
    if as_json:
        print(json.dumps({"url": url, "namespace": namespace, "runs": [*wanted]}))
    if detach:
        out.print(Text(f"{url} shows {', '.join(wanted)}when it has started"))
        return 0
    pod = _ready(out, cluster, found)
    if _answers(found.host):
        out.print(Text(f"{url} shows {', '.join(wanted)}; causeway board --stop ends it"))
        return 0
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    forward(
        cluster,
        f"/api/v1/namespaces/{namespace}/pods/{pod}",
        tensorboard.PORT,
        port,
        opened=lambda: out.print(
            Text(
                f"{found.url('localhost', port)} shows {', '.join(wanted)} until Ctrl-C; the board continues"
            )
        ),
        failed=lambda text: err.print(f"error: {text}", markup=False),
    )
    return 0


def stop(group: str | None, *, as_json: bool) -> int:
    """Delete the board of a namespace."""
    cluster = Cluster()
    namespace = cluster.namespace(group)
    changed = boards.stop(cluster, namespace)
    if as_json:
        print(json.dumps({"namespace": namespace, "changed": changed}))
    else:
        print(f"the board of {namespace} is stopped" if changed else f"{namespace} has no board")
    return 0


def copied(names: Sequence[str], group: str | None, *, port: int) -> int:
    """Run TensorBoard locally over a copy of the cluster's runs, until Ctrl-C."""
    _need_tensorboard()
    cluster, namespace, wanted = _wanted(names, group)
    with tempfile.TemporaryDirectory(prefix="causeway-board-") as scratch:
        folder, store = Path(scratch), Store(cluster, namespace)
        followers = {
            run: tensorboard.Remote(store.of_run(run), first, folder / "runs" / run, folder / "metrics" / run)
            for run, first in wanted.items()
        }

        def renew() -> None:
            store = Store(cluster, namespace)
            for run, each in followers.items():
                each.renew(store.of_run(run))

        return _serve([*followers.values()], folder / "runs", [*wanted], port, renew)


def here(names: Sequence[str], *, port: int) -> int:
    """Run TensorBoard locally over runs of this machine, until Ctrl-C."""
    _need_tensorboard()
    found = [find_here(name) for name in names or [path.name for path in runs_here()[:LAST]]]
    if not found:
        raise CausewayError("this machine has no runs; causeway run --local -- python train.py")
    with tempfile.TemporaryDirectory(prefix="causeway-board-") as scratch:
        root = Path(scratch)
        followers = [
            tensorboard.Here(_events(path, job), path / "workers", root / path.name) for path, job in found
        ]
        return _serve(followers, root, [path.name for path, _ in found], port)


def _events(folder: Path, job: Job) -> Mapping[str, Path]:
    """Return path in TensorBoard → folder of event files, for a run."""
    workers = workers_of(job)
    first = f"{ends_with(workers)}-0"
    places = [Place(folder, each.role, rank) for each in workers for rank in range(each.count)]
    return {"." if place.name == first else place.name: place.events for place in places}


def _wanted(names: Sequence[str], group: str | None) -> tuple[Cluster, str, dict[str, str]]:
    """Return the cluster, the namespace, and run → its first worker."""
    cluster = Cluster()
    namespace = cluster.namespace(group)
    found = (
        [runs.find(cluster, namespace, name, placed=False) for name in dict.fromkeys(names)]
        if names
        else runs.runs(cluster, namespace)[:LAST]
    )
    if not found:
        raise CausewayError(f"{namespace} has no runs; causeway run -- python train.py")
    return cluster, namespace, {run.name: first_worker(run) for run in found}


def _ready(out: Console, cluster: Cluster, board: Board) -> str:
    """Wait for the board's pod and return it. Raises CausewayError if the board fails first."""
    last = ""
    while True:
        if pod := boards.ready_pod(cluster, board):
            return pod
        found = boards.find(cluster, board.namespace)
        if found is None or found.uid != board.uid or found.has_ended:
            raise CausewayError(
                f"the board has ended; kubectl -n {board.namespace} describe job {boards.NAME}"
            )
        said = boards.waits_for(cluster, board)
        if said != last:
            out.print(Text(f"starting: {said}", style="dim"))
            last = said
        time.sleep(1)


def _answers(host: str) -> bool:
    try:
        socket.create_connection((host, tensorboard.PORT), _TRY).close()
    except OSError:
        return False
    return True


def _need_tensorboard() -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise CausewayError(
            "TensorBoard is not installed on this machine; pip install 'causeway-client[board]'"
        )


def _serve(
    followers: Sequence[tensorboard.Follower],
    folder: Path,
    names: Sequence[str],
    port: int,
    renew: Callable[[], None] | None = None,
) -> int:
    listening(port).close()  # TensorBoard would report less
    folder.mkdir(parents=True, exist_ok=True)
    out = Console(highlight=False, soft_wrap=True)
    out.print(Text(f"http://localhost:{port}/ shows {', '.join(names)} until Ctrl-C"))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    words = tensorboard.command(folder, port)
    return tensorboard.serve(followers, words, stopped, renew=renew)
