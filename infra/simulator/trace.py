"""Traces: what work came when, as JSON lines.

One job a line; keys that are left out have the value given here::

    {"submit": 86400,          seconds from the trace's beginning
     "name": "sweep-7",        unique
     "pods": 1600,             how many pods it has (1)
     "gpus": 1,                GPUs of one pod (0)
     "cpu": 4000,              millicores of one pod (1000)
     "memory": 15000,          MiB of one pod (2048)
     "seconds": 5400,          how long one pod computes, all restarts left out
     "gang": true,             whether its pods are useful only together (false)
     "across": false,          whether such a job may run at several sites (false)
     "priority": 0,            of its pods; higher first (0)
     "labels": {…},            labels that its nodes must have ({})
     "checkpoint": 900,        seconds between saves; 0 for a job that starts over (0). One that saves also
                               does so when it is asked to leave
     "user": "ada"}            its namespace is ``user-ada``

With Kueue in front, every job begins as a whole, whether it is a gang or not.

A first line ``{"world": {…}}`` may say what the world was like (`conditions.Conditions`). Lines are in
order of submission. Files that end in ``.gz`` are packed.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from infra.autoscaler.observed.snapshot import GPU, Owner, Shape, Toleration
from infra.errors import UsageError
from infra.simulator.conditions import Conditions

GPU_TAINT = Toleration(key=GPU, operator="Exists")
"""Set by Kubernetes on pods that request GPUs (the ExtendedResourceToleration admission plugin)."""


class Job(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a trace; see the module."""

    submit: float
    name: str
    seconds: float
    pods: int = 1
    gpus: int = 0
    cpu: int = 1000
    memory: int = 2048
    gang: bool = False
    across: bool = False
    priority: int = 0
    labels: Mapping[str, str] = {}
    checkpoint: float = 0
    user: str = "somebody"

    @property
    def namespace(self) -> str:
        return f"user-{self.user}"

    @property
    def shape(self) -> Shape:
        """The shape of its pods. A new object each time: `Shapes` shares equal ones."""
        asked = {"cpu": self.cpu, "memory": self.memory << 20, GPU: self.gpus, "pods": 1}
        return Shape(
            namespace=self.namespace,
            requests=tuple(sorted((name, amount) for name, amount in asked.items() if amount)),
            priority=self.priority,
            selector=tuple(sorted(self.labels.items())),
            tolerations=(GPU_TAINT,) if self.gpus else (),
        )

    @property
    def owner(self) -> Owner:
        """The Job object."""
        return Owner("Job", self.name, f"job-{self.name}")

    @property
    def gang_key(self) -> str | None:
        """The key of its gang; None if it is not one."""
        return f"Job/{self.namespace}/{self.name}" if self.gang and self.pods > 1 else None


_SHOWN: Final = 20
"""Maximum wrong lines that are reported individually."""
_YEARS: Final = 10 * 365 * 86400.0
"""Maximum seconds of a trace or a job."""
_LARGEST: Final = 2**31
"""Maximum of a job's numbers."""
_PODS: Final = 1_000_000
"""Maximum pods of a trace."""


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """A first line of a trace."""

    world: Conditions


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, and the conditions."""

    jobs: tuple[Job, ...]
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def seconds(self) -> float:
        """The time of the last submission."""
        return self.jobs[-1].submit if self.jobs else 0.0


def read(path: Path) -> Trace:
    """Read a trace file. Raises UsageError, which says what is wrong with which line."""
    try:
        packed = path.read_bytes()
        text = gzip.decompress(packed) if path.suffix == ".gz" else packed
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {why}; give the file of a trace (docs/autoscaler.md)") from error
    return parse(text.splitlines(), str(path))


def parse(lines: Iterable[bytes | str], where: str = "trace") -> Trace:
    """Parse the lines of a trace. Raises UsageError, which says what is wrong with each invalid line."""
    conditions = Conditions()
    jobs = list[Job]()
    names = set[str]()
    wrong = list[str]()
    decoder = msgspec.json.Decoder(Job)
    for number, line in enumerate(lines, 1):
        raw = line.encode() if isinstance(line, str) else line
        if not raw.strip():
            continue
        try:
            if number == 1 and raw.lstrip().startswith(b'{"world"'):
                conditions = msgspec.json.decode(raw, type=Header).world
                continue
            job = decoder.decode(raw)
            _check(job, names)
        except (msgspec.MsgspecError, ValueError) as error:
            wrong.append(f"{where}:{number}: {error}")
            continue
        names.add(job.name)
        jobs.append(job)
    if not wrong and (pods := sum(job.pods for job in jobs)) > _PODS:
        wrong.append(f"{where}: its jobs have {pods} pods; {_PODS} are the most")
    if wrong:
        more = [f"and {len(wrong) - _SHOWN} lines more"] if len(wrong) > _SHOWN else []
        raise UsageError("\n".join((*wrong[:_SHOWN], *more)))
    jobs.sort(key=lambda job: job.submit)
    return Trace(tuple(jobs), conditions)


def _check(job: Job, names: set[str]) -> None:
    if job.name in names:
        raise ValueError(f"the job {job.name} is listed twice")
    if job.pods < 1 or job.seconds <= 0 or min(job.submit, job.gpus, job.cpu, job.memory) < 0:
        raise ValueError(f"the job {job.name} has fewer than one pod, no time to run, or a number below zero")
    if not max(job.submit, job.seconds, job.checkpoint) <= _YEARS:
        raise ValueError(f"the job {job.name} begins, runs or saves after more than ten years")
    if max(job.pods, job.gpus, job.cpu, job.memory, abs(job.priority)) > _LARGEST:
        raise ValueError(f"the job {job.name} has a number above {_LARGEST}")
