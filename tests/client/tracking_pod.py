"""A run's pod for tests of tracking: the sidecar as a process, and programs with MLflow's own client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client.mlflow_server import PYTHON
from ports import reserved

from causeway.tracking.record import Place, Record


class Pod:
    """A pod's folder, its sidecar, and programs in it."""

    def __init__(
        self,
        folder: Path,
        port: int,
        aws: str,
        url: str,
        name: str,
        uid: str,
        more: Mapping[str, str],
        *,
        token: str = "a-token",
        bucket: str = "work",
    ) -> None:
        self.folder = folder
        self._aws = aws
        self._address = f"http://127.0.0.1:{port}"
        (folder / "output").mkdir(parents=True)
        (folder / "results").mkdir()
        (folder / "token").write_text(f"{token}\n")
        record = Record(
            url, "user-ada", name, "vision", "worker-0",
            {"job.gpus.count": "2", "set.lr": "1e-3"}, {"mlflow.user": "ada", "causeway.person": "ada"},
            {"rack-a": Place("v100", 2.0, 2.0)},
        )  # fmt: skip
        self._sidecars = {
            "CAUSEWAY_KEPT": f"s3://{bucket}/runs/user-ada/{name}", "CAUSEWAY_ROLE": "worker",
            "CAUSEWAY_TRACKING": record.text(), "CAUSEWAY_TRACKING_PORT": str(port),
            "CAUSEWAY_TRACKING_TOKEN": str(folder / "token"), "MLFLOW_RUN_ID": uid, **more,
        }  # fmt: skip
        self.programs = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "MLFLOW_TRACKING_URI": self._address,
            "MLFLOW_RUN_ID": uid, "MLFLOW_EXPERIMENT_NAME": "vision", "MLFLOW_DISABLE_TELEMETRY": "true",
        }  # fmt: skip
        self.sidecar: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2] / "client"),
            "AWS_ENDPOINT_URL": self._aws, "AWS_DEFAULT_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x", **self._sidecars,
        }  # fmt: skip
        with (self.folder / "sidecar.log").open("ab") as log:
            self.sidecar = subprocess.Popen(
                [sys.executable, "-m", "causeway.keep", str(self.folder)], env=env, stderr=log
            )

    def kill(self) -> None:
        assert self.sidecar is not None
        self.sidecar.kill()
        self.sidecar.wait()

    def begin(self, program: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PYTHON, "-c", textwrap.dedent(program)], env={**self.programs, **more}, cwd=self.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, program: str, **more: str) -> str:
        said, _ = (process := self.begin(program, **more)).communicate(timeout=300)
        assert process.returncode == 0, said + self.said()
        return said

    def end(self, code: int = 0, **more: Any) -> None:
        """As the runtime notes it, and the kubelet asks then."""
        said = {"role": "worker", "rank": 0, "at": time.time(), "exit": code, "lines": [], **more}
        (self.folder / "output/ended.json").write_text(json.dumps(said))
        assert self.sidecar is not None
        self.sidecar.send_signal(signal.SIGTERM)
        assert self.sidecar.wait(120) == 0, self.said()

    def said(self) -> str:
        return (self.folder / "sidecar.log").read_text()


@contextmanager
def pod(folder: Path, aws: str, url: str, name: str, uid: str | None = None, **more: str) -> Iterator[Pod]:
    with reserved(1) as (port,):
        made = Pod(folder, port, aws, url, name, uid or f"uid-of-{name}", more)
        made.start()
        try:
            yield made
        finally:
            if made.sidecar is not None:
                made.sidecar.kill()
                made.sidecar.wait()
