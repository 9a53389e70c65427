"""The workers of a run: what each role starts, independent of where the run is placed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from causeway.checkpoints import Policy
from causeway.errors import InputError, Problem
from causeway.job import Gpus, Job, tasks_of
from causeway.launch import Launch, choose

PORT = 29500
"""Port on which the first worker waits for the others: torchrun's default."""


@dataclass(frozen=True)
class Workers:
    """All workers of one role."""

    role: str
    count: int
    launch: Launch
    gpus: Gpus
    """GPUs of one worker."""
    cpus: float | None
    memory: int | None
    """In bytes. None, here and above: the share that goes with the GPUs."""


def workers_of(job: Job, *, image_launcher: str | None = "torchrun") -> tuple[Workers, ...]:
    """Return the roles of a job, in its order. ``image_launcher``: the framework of the image; None if
    unknown."""
    if not job.roles:
        launch = choose(
            job.launcher, job.run, gpus=job.gpus.count, nodes=job.nodes, image_launcher=image_launcher
        )
        return (Workers("worker", job.nodes, launch, job.gpus, job.cpus, job.memory),)
    if job.launcher == "torchrun":
        hint = "write nodes: in place of roles:, or launcher: tensorflow"
        raise InputError([Problem("launcher", "roles", "all workers of torchrun have the same role", hint)])
    asked = "tensorflow" if job.launcher == "auto" else job.launcher
    return tuple(
        Workers(
            name,
            role.count,
            choose(asked, role.run or job.run, gpus=0, nodes=role.count),
            role.gpus or job.gpus,
            role.cpus or job.cpus,
            role.memory or job.memory,
        )
        for name, role in job.roles.items()
    )


def ends_with(workers: Sequence[Workers]) -> str:
    """Return the role whose end ends the run: the chief, else the workers. The others are stopped then."""
    roles = [each.role for each in workers]
    return next((role for role in ("chief", "worker") if role in roles), roles[0])


def policy_of(job: Job, workers: Sequence[Workers]) -> Policy:
    """Return which checkpoints of a run are kept, and who writes them: its first worker, or all if they write
    parts."""
    wanted = job.checkpoints
    names = [f"{each.role}-{rank}" for each in workers for rank in range(each.count)]
    writers = names if wanted.sharded else [f"{ends_with(workers)}-0"]
    if wanted.sync is False:
        writers = []
    return Policy(tuple(writers), wanted.keep, wanted.metric, wanted.goal == "maximize", wanted.sync or None)


def ends_when_stalled(job: Job, each: Workers, workers: Sequence[Workers]) -> dict[str, str]:
    """Return variables that make the runtime end a program that stalls. The first rank reports, and the
    others wait for it."""
    return {"CAUSEWAY_STALL": str(job.stall)} if job.stall and each.role == ends_with(workers) else {}


def ends_when_idle(job: Job, each: Workers, workers: Sequence[Workers]) -> dict[str, str]:
    """Return variables that make the runtime end an idle worker. Workers without GPUs wait beside roles with
    GPUs."""
    some = any(other.gpus.count for other in workers)
    return {"CAUSEWAY_IDLE": str(job.idle)} if job.idle and (each.gpus.count or not some) else {}


def variables(
    run: str, job: Job, each: Workers, hosts: Mapping[str, Sequence[str]], folders: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment that all workers of a role share; the runtime adds what differs.

    ``hosts``: role → ``host:port`` of its workers. ``folders``: ``CODE``, ``RESULTS``, ``CHECKPOINTS``,
    ``LOGS``, ``METRICS``, ``USAGE`` → their paths; on this machine some differ from worker to worker.
    """
    return {
        "CAUSEWAY_RUN": run,
        "CAUSEWAY_ROLE": each.role,
        "CAUSEWAY_NODES": str(each.count),
        "CAUSEWAY_GPUS": str(each.gpus.count),
        "CAUSEWAY_LAUNCHER": each.launch.launcher,
        "CAUSEWAY_HOSTS": json.dumps(hosts, separators=(",", ":")),
        "CAUSEWAY_KEEP": str(job.checkpoints.keep),
        **({} if job.seed is None else {"CAUSEWAY_SEED": str(job.seed)}),
        **({} if job.array is None else {"CAUSEWAY_ARRAY_TASK": str(tasks_of(job.array)[0])}),
        **({"CAUSEWAY_SHARDED": "1"} if job.checkpoints.sharded else {}),
        **{f"CAUSEWAY_{name}": path for name, path in folders.items()},
    }
