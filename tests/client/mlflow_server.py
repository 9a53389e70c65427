"""A real MLflow server, of the virtual environment that ``make setup-client`` makes. Who may see what is the
cluster's: here it asks for no token, and notes those that come (``Watched``)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from ports import reserved

ROOT = Path(__file__).parents[2]
WORKSPACE = "user-ada"
PYTHON = ROOT / ".venv-mlflow/bin/python"

needs_mlflow = pytest.mark.skipif(
    not PYTHON.exists(), reason="no MLflow: `make setup-client` makes .venv-mlflow"
)


class Mlflow:
    """One server, which may be killed and started again at its port with what it had."""

    def __init__(self, folder: Path, port: int, workspace: str | None = WORKSPACE) -> None:
        """``workspace``: None for a server that has none."""
        self._workspace = workspace
        self.folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"http://127.0.0.1:{port}"

    def start(self) -> None:
        command = [
            str(PYTHON), "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={self._port}", "--workers=1",
            *(["--enable-workspaces"] if self._workspace else []),
            f"--backend-store-uri=sqlite:///{self.folder}/mlflow.db",
            f"--artifacts-destination={self.folder}/artifacts",
        ]  # fmt: skip
        env = {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}", "HOME": str(self.folder)}
        env |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + 300
        while time.monotonic() < until:
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            if self.is_there():
                return
            time.sleep(0.3)
        raise AssertionError((self.folder / "server.log").read_text())

    def is_there(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"{self.address}/health", timeout=5):
                return True
        except (URLError, OSError):
            return False

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def call(self, method: str, call: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        version = "3.0" if call == "workspaces" else "2.0"
        request = Request(f"{self.address}/api/{version}/mlflow/{call}", data, method=method)
        request.add_header("Content-Type", "application/json")
        if self._workspace and call != "workspaces":
            request.add_header("X-MLFLOW-WORKSPACE", self._workspace)
        with urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def runs(self, experiment: str) -> list[Any]:
        """All of an experiment; none of one that does not exist."""
        by_name = f"experiments/get-by-name?experiment_name={quote(experiment)}"
        try:
            experiment_id = self.call("GET", by_name)["experiment"]["experiment_id"]
        except HTTPError as error:
            if error.code == 404:
                return []
            raise
        query = {"experiment_ids": [experiment_id]}
        runs: list[Any] = self.call("POST", "runs/search", query).get("runs", [])
        return runs

    def history(self, run: str, metric: str) -> list[tuple[int, float]]:
        """(step, value) of a metric, in the order in which they are kept."""
        metrics: list[Any] = []
        token = ""
        while True:
            page = self.call(
                "GET", f"metrics/get-history?run_id={run}&metric_key={metric}&max_results=1000{token}"
            )
            metrics += page.get("metrics", [])
            if not page.get("next_page_token"):
                return [(int(metric.get("step", 0)), metric["value"]) for metric in metrics]
            token = f"&page_token={page['next_page_token']}"


@contextmanager
def mlflow(folder: Path) -> Iterator[Mlflow]:
    """One that runs."""
    folder.mkdir()
    with reserved(1) as (port,):
        server = Mlflow(folder, port)
        try:
            server.start()
            server.call("POST", "workspaces", {"name": WORKSPACE})
            yield server
        finally:
            server.kill()


def tags(run: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["data"].get("tags", ())}


def parameters(run: Any) -> dict[str, str]:
    return {each["key"]: each["value"] for each in run["data"].get("params", ())}
