"""What a lab's MLflow takes and shows: ours as it is rendered, on PostgreSQL and with the cluster's rights,
beside a plain one on SQLite.

Both are MLflow's own server with one worker, asked by the same threads; pages are looked at by Chromium, ours
as `causeway ui` passes them on. All on this machine.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from benchmarks.measure import BenchmarkError, call

REPOSITORY: Final = Path(__file__).parents[1]
RUNS: Final = 100
STEPS: Final = 1_000
METRICS: Final = 10
_BATCH: Final = 1_000
"""Points of a request: MLflow's own limit."""
_THREADS: Final = 4
_LOOKS: Final = 5
_SEARCHES: Final = 20
_NAMESPACE: Final = "user-ada"

Figure: TypeAlias = tuple[str, float]


class _Server:
    """An MLflow, and what its callers have to say of themselves."""

    def __init__(self, address: str, headers: dict[str, str]) -> None:
        self.where = urlsplit(address).netloc
        self.headers = headers

    def call(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection(self.where, timeout=300)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **self.headers})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise BenchmarkError(f"{path}: HTTP {answer.status}: {text[:300]!r}")
        return json.loads(text)


def figures(scratch: Path) -> Iterator[Figure]:
    """What was measured, and its seconds. BenchmarkError where a program is missing."""
    from client.mlflow_server import PYTHON, Mlflow
    from ports import reserved
    from render.kubernetes.tracking_world import tracked

    if not PYTHON.exists():
        raise BenchmarkError("no MLflow: `make setup-kubernetes` makes .venv-mlflow")
    (scratch / "ours").mkdir()
    with tracked(scratch / "ours") as world:
        token = world.token(world.plane.somebody("ada"), _NAMESPACE)
        headers = {"Authorization": f"Bearer {token}", "X-MLFLOW-WORKSPACE": _NAMESPACE}
        yield from _of("ours, PostgreSQL", _Server(world.address, headers))
    (scratch / "plain").mkdir()
    with reserved(1) as (port,):
        plain = Mlflow(scratch / "plain", port, None)
        plain.start()
        try:
            yield from _of("plain, SQLite", _Server(plain.address, {}))
        finally:
            plain.kill()


def _of(name: str, server: _Server) -> Iterator[Figure]:
    experiment = server.call("POST", "/api/2.0/mlflow/experiments/create", {"name": "bench"})["experiment_id"]
    start = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as together:
        runs = [*together.map(lambda number: _log(server, experiment, number), range(RUNS))]
    yield f"MLflow: {RUNS} runs log {METRICS * STEPS:,} metrics each; {name}", time.perf_counter() - start
    yield (
        f"MLflow: the ten best of {RUNS} runs, by a metric and a parameter; {name}",
        _searched(server, experiment),
    )
    for page, path in (
        ("the list of runs, until it is", f"/#/experiments/{experiment}"),
        ("a run's charts, until they are", f"/#/experiments/{experiment}/runs/{runs[-1]}/model-metrics"),
    ):
        yield f"MLflow: {page} painted; {name}", _painted(server, path)


def _log(server: _Server, experiment: str, number: int) -> str:
    chance = random.Random(number)
    begun = int(time.time() * 1000)
    made = server.call(
        "POST",
        "/api/2.0/mlflow/runs/create",
        {"experiment_id": experiment, "start_time": begun, "run_name": f"bench-{number}"},
    )
    run = str(made["run"]["info"]["run_id"])
    points = [
        {
            "key": f"metric-{metric}",
            "value": chance.random() / (step + 1),
            "timestamp": begun + step,
            "step": step,
        }
        for step in range(STEPS)
        for metric in range(METRICS)
    ]
    parameter = {"run_id": run, "key": "lr", "value": f"{10 ** -(1 + number % 4):g}"}
    server.call("POST", "/api/2.0/mlflow/runs/log-parameter", parameter)
    for at in range(0, len(points), _BATCH):
        batch = {"run_id": run, "metrics": points[at : at + _BATCH]}
        server.call("POST", "/api/2.0/mlflow/runs/log-batch", batch)
    return run


def _searched(server: _Server, experiment: str) -> float:
    """Seconds of a search as a person asks for it; the median of several."""
    wanted = {
        "experiment_ids": [experiment],
        "filter": "params.lr = '0.01' AND metrics.`metric-0` < 1",
        "order_by": ["metrics.`metric-1` ASC"],
        "max_results": 10,
    }

    def search() -> None:
        found = server.call("POST", "/api/2.0/mlflow/runs/search", wanted)["runs"]
        if len(found) != 10:
            raise BenchmarkError(f"a search finds {len(found)} runs")

    return call(search, _SEARCHES).seconds


def _painted(server: _Server, path: str) -> float:
    """Seconds until a browser has painted the largest part of a page; the median of several looks, each by
    one that has nothing of it yet."""
    from browsing import chromium

    from causeway.tracking.forwarding import Forwarded

    class Page(Forwarded):
        def do_any(self) -> None:
            connection = HTTPConnection(server.where, timeout=60)
            self.pass_back(self.ask(connection, self.path, None, server.headers))
            connection.close()

    seconds = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        for _ in range(_LOOKS):
            with chromium() as browser:
                browser.get(f"http://127.0.0.1:{pages.server_port}{path}")
                seconds.append(float(browser.execute_async_script(_LARGEST)) / 1000)
        pages.shutdown()
    return median(seconds)


_LARGEST: Final = """
const done = arguments[0];
let last = 0;
new PerformanceObserver(list => { for (const each of list.getEntries()) last = each.startTime; })
  .observe({type: "largest-contentful-paint", buffered: true});
setTimeout(() => done(last), 8000);
"""
"""Largest Contentful Paint, W3C: the time of the last one within eight seconds."""
