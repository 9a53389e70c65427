"""The fields of a job file. Each docstring is the field's entry in docs/job.md."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from causeway import __version__
from causeway.errors import CausewayError
from causeway.part import Part
from causeway.search.fields import Sweep
from causeway.units import DURATION, SIZE, exact_duration, exact_size, parse_duration, parse_size

_YEAR = 365 * 86400
_NOT_FOR_CHECKPOINTS = ("causeway", "dev", "proc", "sys", "var")
"""Folders of a container that have another purpose."""
LABEL = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = (
    "CAUSEWAY_", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE", "TF_CONFIG",
    "MLFLOW_RUN_ID",
)  # fmt: skip
"""Environment variables that Causeway sets: names or prefixes."""


def _label(text: str) -> str:
    if not LABEL.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a name: lower-case letters, digits and '-', at most 42, a letter first"
        )
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of an environment variable")
    if any(text == name or (name.endswith("_") and text.startswith(name)) for name in RESERVED):
        raise ValueError(f"{text} is set by Causeway")
    return text


def is_machine(text: str) -> bool:
    """Whether ssh accepts the text as one host name, and not as an option or as two words."""
    return bool(text) and not text.startswith("-") and not any(map(str.isspace, text))


def _machine(text: str) -> str:
    if not is_machine(text):
        raise ValueError(f"{text!r} is not a machine name: titan-01, ada@titan-01")
    return text


def _machines(value: object) -> object:
    """Split ``titan-01,titan-02`` into a list."""
    return value.split(",") if isinstance(value, str) else value


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _text(value: object) -> object:
    """Convert numbers and booleans to the text that a program gets. Values of a file are kept as they are
    written."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _within_a_year(seconds: int) -> int:
    if not 0 < seconds <= _YEAR:
        raise ValueError(
            f"{exact_duration(seconds)} is not more than 0s, and at most {exact_duration(_YEAR)}"
        )
    return seconds


def tasks_of(array: str) -> list[int]:
    """Parse an array as sbatch writes it: ``1-16``, ``0,4,7``, ``0-30:10``. Raises ValueError."""
    found: dict[int, None] = {}
    for part in array.split(","):
        match = _TASKS.fullmatch(part.strip())
        if match is None and "%" in part:
            raise ValueError(
                f"{array} has a limit; leave it out, as the quota limits how many run, or write a "
                "`sweep:` with `sampler: grid` and `parallel:`"
            )
        if match is None:
            raise ValueError(f"{array!r} has no tasks; write 1-16, 0,4,7 or 0-30:10")
        first, last, step = (int(each) if each else None for each in match.groups())
        assert first is not None
        found.update(dict.fromkeys(range(first, (first if last is None else last) + 1, step or 1)))
    if not 0 < len(found) <= MOST_TASKS:
        raise ValueError(f"{array} has {len(found)} tasks, but 1 to {MOST_TASKS} are allowed")
    return [*found]


def _array(text: str) -> str:
    tasks_of(text)
    return text


Label = Annotated[str, AfterValidator(_label)]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(exact_size, return_type=str, when_used="json"),
    Field(gt=0),
    WithJsonSchema({"type": "string", "format": "size", "pattern": SIZE.pattern}),
]
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(exact_duration, return_type=str, when_used="json"),
    AfterValidator(_within_a_year),
    WithJsonSchema({"type": "string", "format": "duration", "pattern": DURATION.pattern}),
]
Sync = Annotated[
    int | Literal[False],
    BeforeValidator(lambda value: value if value is False else parse_duration(value)),
    PlainSerializer(lambda value: value and exact_duration(value), when_used="json"),
    AfterValidator(lambda value: value if value is False else _within_a_year(value)),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "duration", "pattern": DURATION.pattern}, {"const": False}]}
    ),
]
Count = Annotated[int, Field(ge=1, le=10_000)]
_TASKS = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?")
MOST_TASKS = 1_000
Cpus = Annotated[float, Field(gt=0, le=1024)]
Text = Annotated[
    str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean", "null"]})
]
Variable = Annotated[str, AfterValidator(_variable)]
Machines = Annotated[
    tuple[Annotated[str, AfterValidator(_machine)], ...],
    BeforeValidator(_machines),
    AfterValidator(_once),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class Code(Part):
    """Which files are shipped."""

    path: str = "."
    """The folder, relative to the job file."""
    include: tuple[str, ...] = Field(default=(), strict=False)
    """Only these, as patterns of a `.gitignore`. One without wildcards is shipped even if git ignores it."""
    exclude: tuple[str, ...] = Field(default=(), strict=False)
    """Not these, as patterns of a `.gitignore`, besides those of `.causewayignore`."""
    limit: Size | None = None
    """Maximum size of the code, before compression. Default: the cluster's, or 256 MiB."""


class Gpus(Part):
    """The GPUs of one worker."""

    count: Annotated[int, Field(ge=0, le=64)] = 1
    """How many."""
    model: str | None = None
    """A model of the cluster: `titan-x-pascal`. Default: any that the priority allows."""
    memory: Size | None = None
    """The least memory of each."""
    class_: Annotated[Literal["old", "standard", "new"] | None, Field(alias="class")] = None
    """A class of the cluster's GPUs."""
    interconnect: Literal["nvlink", "nvswitch", "efa"] | None = None
    """What connects them: `nvlink` or `nvswitch` within a machine, `efa` between machines. `efa` gives a
    worker the adapters that go with its GPUs; NCCL uses them if the image has its plugin: docs/efa.md."""


def _gpus(value: Any) -> Any:
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Role(Part):
    """One kind of worker, where a run has several."""

    count: Count = 1
    """Number of workers, one pod each."""
    run: str | None = None
    """Its command. Default: the job's."""
    gpus: Annotated[Gpus | None, BeforeValidator(_gpus)] = None
    """Its GPUs: a number, or which. Default: the job's."""
    cpus: Cpus | None = None
    """Its processors."""
    memory: Size | None = None
    """Its memory."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _checkpoints_path(text: str) -> str:
    path = PurePosixPath(text)
    if ".." in path.parts or text.startswith("~") or path in (PurePosixPath(), PurePosixPath("/")):
        raise ValueError(f"{text!r} is not a folder: `out/checkpoints` of the code, or /checkpoints")
    if path.is_absolute() and path.parts[1] in _NOT_FOR_CHECKPOINTS:
        raise ValueError(f"/{path.parts[1]} cannot be used for checkpoints; write /checkpoints")
    return str(path)


class Checkpoints(Part):
    """Which checkpoints are kept, and where."""

    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of newest checkpoints to keep."""
    metric: str | None = None
    """Also keep the best by this metric of `causeway.report` at the checkpoint's step."""
    goal: Literal["minimize", "maximize"] = "minimize"
    """Which values of the metric are better."""
    sharded: bool = False
    """Each worker writes a part, and a checkpoint is complete when all have. Default: only those of the first
    worker are used."""
    path: Annotated[str, AfterValidator(_checkpoints_path)] | None = None
    """Where the program writes them if it does not read `$CAUSEWAY_CHECKPOINTS`: a folder of the code,
    `out/checkpoints`, or of the container, `/checkpoints`."""
    sync: Sync | None = None
    """How often the newest is copied: `10m`; `false`: never, and a restart starts from the beginning.
    Default: each as soon as it is complete. The last one is copied at the end in any case."""
    volume: Label | None = None
    """A mount of the cluster that they are copied to, instead of the bucket."""


class Tracking(Part):
    """What MLflow has of the run."""

    record: bool = True
    """Whether it is recorded at all. Also written `tracking: false`."""
    experiment: Annotated[str, Field(min_length=1, max_length=250)] | None = None
    """The experiment that it is in. Default: the job's `name`."""


def _tracking(value: Any) -> Any:
    return {"record": value} if isinstance(value, bool) else value


class Where(Part):
    """Restricts where the run may go."""

    sites: tuple[str, ...] = Field(default=(), strict=False)
    """Only these sites. Default: all."""
    near: Literal["host", "rack", "zone", "site"] | None = None
    """All workers within one of these. Default: as near to each other as there is room, within one site."""
    spot: bool = True
    """Whether spot instances will do."""


def _code(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


def joined(value: Any) -> Any:
    """Quote a list of words as a command; any other value is returned unchanged."""
    import shlex

    if isinstance(value, list) and all(isinstance(word, str | int | float) for word in value):
        return shlex.join(str(_text(word)) for word in value)
    return value


class Job(Part):
    """A job file."""

    version: Literal[1] = 1
    """The version of this language."""
    name: Label
    """Name of the runs: `resnet` gives `resnet-1`, `resnet-2`. Default: the folder's name."""
    run: Annotated[str, BeforeValidator(joined), Field(min_length=1)]
    """The command: a shell script of one or more lines, or a list of words. Also what follows `--`.
    `bash -eo pipefail` runs it, or `sh -e` without bash: the first line that fails ends it, and unset
    variables are empty."""
    code: Annotated[Code | Literal[False], BeforeValidator(_code)] = Code()
    """The folder that is shipped, relative to the job file; `false` for none."""
    image: str | None = None
    """An image of the cluster by name, or a reference. Default: the cluster's default."""
    python: str | None = None
    """`requirements.txt`, `pyproject.toml` or `uv.lock`, of the code: packages that the image lacks are
    installed once, and kept."""
    gpus: Annotated[Gpus, BeforeValidator(_gpus)] = Gpus()
    """GPUs of one worker: a number, or fields."""
    nodes: Count = 1
    """Number of workers, one pod each."""
    cpus: Cpus | None = None
    """Processors of one worker. Default: the share that goes with its GPUs."""
    memory: Size | None = None
    """Memory of one worker. Default: the share that goes with its GPUs."""
    shm: Size | None = None
    """Shared memory at `/dev/shm`, a part of `memory`. Default: half of it."""
    launcher: Literal["auto", "none", "torchrun", "tensorflow"] = "auto"
    """Starts the processes of a worker. `auto`: `torchrun` if the run has more than one GPU, its command ends
    with a line `python …`, and the cluster does not declare another framework for its image. The plan shows
    the launcher, and why."""
    priority: Label | None = None
    """Priority class of the cluster. Default: the cluster's default."""
    group: Label | None = None
    """Use this group's queue and namespace. Default: your own."""
    time: Duration = 86400
    """Maximum run time, in total over restarts."""
    where: Where = Where()
    """Restricts where it may run."""
    on: Machines = Field(default=(), strict=False)
    """Machines to run on over ssh, without a cluster: a list, or `titan-01,titan-02`. `--on` and `--local`
    override it, `--set on=[]` is for the cluster."""
    env: dict[Variable, Text] = Field(default_factory=dict)
    """Environment variables."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    """Value of `$CAUSEWAY_SEED`, for random generators. Default: a random number, chosen when the run is
    submitted."""
    secrets: dict[Label, Variable] = Field(default_factory=dict)
    """Secret of the namespace → an environment variable; the secret has a key of the variable's name."""
    roles: dict[Literal["chief", "worker", "ps", "evaluator"], Role] = Field(default_factory=dict)
    """Workers with different roles, instead of `nodes`: a number, or fields."""
    mounts: dict[Label, bool] = Field(default_factory=dict)
    """Mounts of the cluster, by name: `false` leaves one out, `true` adds one that not all sites have, and
    restricts the run to those that do. Default: those that all sites have."""
    restarts: Annotated[int, Field(ge=0, le=100)] = 3
    """Maximum number of restarts after failures of the program. Preemption and lost machines do not count."""
    checkpoints: Checkpoints = Checkpoints()
    """Which checkpoints are kept: those that the program writes below `$CAUSEWAY_CHECKPOINTS`."""
    tracking: Annotated[Tracking, BeforeValidator(_tracking)] = Tracking()
    """What is recorded in MLflow, if the cluster has it: `false` for nothing."""
    stall: Duration | None = None
    """Ends a program that has not called `causeway.report` for this time (if it never calls it: has not
    written a line). Its stacks are in the output; it counts as a failure, and is restarted. Default:
    never."""
    grace: Duration = 120
    """From SIGTERM to SIGKILL."""
    idle: Duration | None = None
    """Ends the run after this time with its GPUs below 5 % (without GPUs: its processors), and no terminal in
    use. It counts as failed and is not restarted. Default: never."""
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(default=(), strict=False)
    """Ports of the workers, reachable from laptops."""
    array: Annotated[str, AfterValidator(_array)] | None = None
    """A run for each of these numbers, in `$CAUSEWAY_ARRAY_TASK`: `1-16`, `0,4,7`, `0-30:10`."""
    sweep: Sweep | None = None
    """A search over parameters of the command, for `causeway sweep`."""

    @field_validator("roles")
    @classmethod
    def _one_way_to_count(cls, roles: dict[str, Role], info: ValidationInfo) -> dict[str, Role]:
        if roles and info.data.get("nodes", 1) != 1:
            raise ValueError("roles and nodes cannot both be set; write roles: {worker: …}")
        return roles


def seeded(job: Job) -> Job:
    """Return the job with a seed, which is drawn if it has none."""
    return job if job.seed is not None else job.model_copy(update={"seed": secrets.randbelow(2**32)})


def written(job: Job) -> dict[str, Any]:
    """Return the job as it would be in a file, without defaults."""
    fields: dict[str, Any] = job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return fields


def recorded(values: Mapping[str, Any], run: str) -> Job:
    """Return the job of a record, as ``written`` gave it. ``run``: whose record, for the message. Raises
    CausewayError if this program does not understand it."""
    try:
        return Job.model_validate(values)
    except ValidationError as error:
        field = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise CausewayError(
            f"the job of {run} was submitted by another version: causeway {__version__} does not understand "
            f"its field {field}; pip install --upgrade causeway-client"
        ) from None


def timed(job: Job, seconds: int | None) -> Job:
    """Return a job with another ``time``; None keeps it."""
    return job if seconds is None else job.model_copy(update={"time": seconds})


def flat(fields: Mapping[str, Any]) -> dict[str, str]:
    """Flatten the fields of ``written`` to dotted names: ``{"gpus.model": "v100"}``. Text stays text, other
    values become JSON."""
    found: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": text for inner, text in flat(value).items()}
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found
