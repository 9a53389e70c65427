"""Chooses the launcher that starts the processes of a worker, and builds its command from the job's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from causeway.errors import InputError, Problem

Launcher = Literal["none", "torchrun", "tensorflow"]

_PYTHON = re.compile(
    r"(?P<before>(?:[A-Za-z_]\w*=\S*\s+)*(?:exec\s+)?)"
    r"(?P<python>(?:\S*/)?python(?:3(?:\.\d+)?)?)\s+"
    r"(?P<flags>(?:-[uBEsSOqI]+\s+|-[WX]\s*\S+\s+)*)"
    r"(?P<program>-m\s+\S+|[^-\s]\S*)"
    r"(?P<arguments>(?:\s.*)?)",
    re.DOTALL,
)
"""A line that starts a Python program: variables, ``python``, its flags, a module or a file, arguments."""

_STARTS_PROCESSES = re.compile(
    r"\b(torchrun|accelerate|deepspeed|torch\.distributed\.(run|launch)|horovodrun|mpirun)\b"
)
"""Programs that start the processes of a worker themselves."""


@dataclass(frozen=True)
class Launch:
    """How the workers of a role are started."""

    launcher: Launcher
    script: str
    """A shell script; ``$CAUSEWAY_RANK``, ``$MASTER_ADDR`` and ``$MASTER_PORT`` are set where it runs."""
    why: str = ""
    """What it starts, and why; empty if there is only one process, and no other choice."""
    note: str = ""
    """What the user should know about the choice."""


def choose(asked: str, run: str, *, gpus: int, nodes: int, image_launcher: str | None = "torchrun") -> Launch:
    """Choose the launcher of one role.

    ``gpus``: number of GPUs of a worker, which is the number of ``torchrun``'s processes (one without GPUs).
    ``image_launcher``: the framework of the image; None if unknown. Raises InputError if ``torchrun`` was
    requested and the command is not a Python program.
    """
    processes = max(gpus, 1)
    if asked == "tensorflow":
        return Launch("tensorflow", run, "TF_CONFIG lists the workers, as the job requests")
    if asked == "auto" and image_launcher == "tensorflow":
        return Launch("tensorflow", run, "TF_CONFIG lists the workers: the image is for TensorFlow")
    if processes * nodes == 1 and asked != "torchrun":
        return Launch("none", run)
    if asked == "none":
        return Launch("none", run, "one process per worker, as the job requests")
    if asked == "auto" and (image_launcher == "none" or (image_launcher is None and not gpus)):
        return Launch("none", run, "one process per worker: the image is not known to be for PyTorch")
    if asked == "auto" and _STARTS_PROCESSES.search(run):
        return Launch("none", run, "the command starts its processes itself")
    script = under_torchrun(run, processes=processes, nodes=nodes)
    if script is None and asked == "auto":
        note = "its last line is not `python …`, so it runs once per worker, without torchrun"
        return Launch("none", run, note=note)
    if script is None:
        hint = "make `python …` its last line, or start torchrun in it and set launcher: none"
        raise InputError([Problem("launcher", "run", "torchrun cannot start this command", hint)])
    many = f"{processes} processes per worker, one per GPU" if gpus > 1 else "one process per worker"
    other = "" if asked == "torchrun" else "; `launcher: none` runs the command as it is"
    return Launch("torchrun", script, f"{many}{other}")


def under_torchrun(run: str, *, processes: int, nodes: int) -> str | None:
    """Return the command with its last line, ``python …``, run by torchrun. None if the last line is not of
    that form."""
    lines = run.rstrip().split("\n")
    start = len(lines) - 1
    while start > 0 and lines[start - 1].endswith("\\"):
        start -= 1
    match = _PYTHON.fullmatch("\n".join(lines[start:]))
    if match is None:
        return None
    # Shell operators: only a part of the line should run under torchrun.
    if re.search(r"[|;&]|\$\(|`", re.sub(r"'[^']*'|\"[^\"]*\"|\d?>&\d", "", match["arguments"])):
        return None
    # With underscores: before 2.0 torchrun accepted only these, and it still does.
    where = (
        "--standalone"
        if nodes == 1
        else f"--nnodes={nodes} --node_rank=$CAUSEWAY_RANK"
        " --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"
    )
    flags = match["flags"] or ""
    # torchrun adds `python -u` itself; other flags have to reach the program's interpreter.
    kept = f"--no_python {match['python']} {flags}" if flags.replace("-u", "").strip() else ""
    program = re.sub(r"-m\s+", "-m ", match["program"])
    launched = (
        f"{match['before']}{match['python']} -m torch.distributed.run {where} --nproc_per_node={processes} "
        f"{kept}{program}{match['arguments']}"
    )
    return "\n".join([*lines[:start], launched])
