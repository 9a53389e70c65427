"""What checkpoints cost a run: the time from its admission until it trains again, and how much slower it is
while they are copied.

Real Kueue, JobSet and the embedded AWS, all on this machine; the worker is a process of the tests' stand-in
for a kubelet.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measure import BenchmarkError

REPOSITORY: Final = Path(__file__).parents[1]
_MIB: Final = 1024
"""Of the checkpoint that is resumed from."""
_SAVED: Final = 64
"""MiB of each that a training loop writes."""
_EVERY, _LASTS, _TURNS = 10, 40, 2
"""Seconds between two of them, and of a loop; loops with and without copying, by turns."""
_STEPS, _BAR = 10_000, 0.02

_RESUMES: Final = f"""
import causeway, os, pathlib, time
resume = os.environ.get("CAUSEWAY_RESUME")
if resume:
    model = pathlib.Path(resume, "model").read_bytes()
    print("trains again", time.time(), len(model) >> 20, flush=True)
    raise SystemExit
with causeway.checkpoint(1) as folder:
    with (folder / "model").open("wb") as file:
        for _ in range({_MIB}):
            file.write(os.urandom(1 << 20))
while not causeway.should_stop():
    time.sleep(0.1)
"""

_TRAINS: Final = f"""
import os
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import causeway, time
import numpy
rows, weights = numpy.random.default_rng(0).normal(size=(64, 256)), numpy.zeros((256, 256))
state = os.urandom({_SAVED} << 20)
begun, steps, saved = time.monotonic(), 0, 0
while (now := time.monotonic() - begun) < {_LASTS}:
    for _ in range(100):
        weights += 1e-6 * rows.T @ (rows - rows @ weights)
    steps += 100
    if now >= saved * {_EVERY}:
        saved += 1
        with causeway.checkpoint(steps) as folder:
            (folder / "model").write_bytes(state)
print("took", {_STEPS} * time.process_time() / steps, flush=True)
"""


def figures(scratch: Path) -> Iterator[tuple[str, float, str]]:
    """What was measured, seconds, and the bar. BenchmarkError where no API server is."""
    if "KUBEBUILDER_ASSETS" not in os.environ or "CAUSEWAY_CHARTS" not in os.environ:
        raise BenchmarkError("KUBEBUILDER_ASSETS and CAUSEWAY_CHARTS have to name an API server and charts")
    from client.jobset_world import worlds  # tests/client

    scratch.joinpath("world").mkdir()
    folder = scratch / "project"
    folder.mkdir()
    with worlds(scratch / "world", queues=True) as world:
        env = {**os.environ, **world.environment("ada"), "HOME": str(scratch)}
        ada = _Shell(folder, {**env, "PYTHONPATH": str(REPOSITORY / "client")})
        yield f"From admission to training again, with a checkpoint of {_MIB} MiB", _resumed(world, ada), ""
        apart, beside = _steps(ada)
        what = f"{_STEPS:,} steps of training, with a checkpoint of {_SAVED} MiB in {_EVERY} s; CPU time"
        yield what, apart, ""
        yield "The same while each is copied", beside, f"{apart * (1 + _BAR):.2f} s"


class _Shell:
    """Ada's."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self._env = env

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "causeway", *arguments],
            cwd=self.folder, env=self._env, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            raise BenchmarkError(f"causeway {' '.join(arguments)}: {done.stderr[-500:]}")
        return done.stdout

    def job(self, text: str, **fields: Any) -> str:
        """A run of a program; its name."""
        (self.folder / "train.py").write_text(text, encoding="utf-8")
        job = {"name": "bench", "run": "python3 train.py", "gpus": 0, "cpus": 1, "grace": "10m", **fields}
        (self.folder / "job.yaml").write_text(json.dumps(job), encoding="utf-8")
        return str(json.loads(self("run", "-d", "--json", "job.yaml"))["run"])

    def said(self, run: str, pattern: str) -> re.Match[str]:
        """What the run's output says, once it does."""
        from client.pods import wait  # tests/client

        found: re.Match[str] = wait(lambda: re.search(pattern, self("logs", run)), 600)
        return found


def _resumed(world: Any, ada: _Shell) -> float:
    """Seconds."""
    from client.pods import wait  # tests/client

    run = ada.job(_RESUMES)
    wait(lambda: json.loads(ada("checkpoints", run, "--json")), 600)
    ada("stop", run)
    wait(lambda: json.loads(ada("why", run, "--json"))["state"] == "stopped", 600)
    ada("resume", run)
    found = ada.said(run, r"trains again ([\d.]+) (\d+)")
    if int(found[2]) != _MIB:
        raise BenchmarkError(f"it has {found[2]} MiB")
    workloads = world.admin.call("GET", "/apis/kueue.x-k8s.io/v1beta2/namespaces/user-ada/workloads")["items"]
    (workload,) = (each for each in workloads if each["metadata"]["ownerReferences"][0]["name"] == run)
    (admitted,) = (each for each in workload["status"]["conditions"] if each["type"] == "Admitted")
    return float(found[1]) - datetime.fromisoformat(admitted["lastTransitionTime"]).timestamp()


def _steps(ada: _Shell) -> tuple[float, float]:
    """Seconds of a processor that steps take: without copying, and with it. On a machine with other work it
    is these that can be compared."""
    took: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_TURNS):
        for copied, found in took.items():
            run = ada.job(_TRAINS, **({} if copied else {"checkpoints": {"sync": False}}))
            found.append(float(ada.said(run, r"took ([\d.]+)")[1]))
    return median(took[False]), median(took[True])
