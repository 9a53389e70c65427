"""Reads a job: a YAML file, overridden by options of the command line, with ``--set`` for its command or its
fields."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from causeway import __version__
from causeway.errors import InputError, Problem
from causeway.job import LABEL, Job, joined, tasks_of
from causeway.jobyaml import BOOL, NULL, Keys, compose, parse
from causeway.placeholders import expected, filled, names
from causeway.search import checks
from causeway.search.command import ALL, texts
from causeway.search.fields import FloatRange, IntRange, LogRange, Sweep
from causeway.search.space import dimensions
from causeway.search.trials import Parameters
from causeway.units import exact_size

_SUFFIXES = (".yaml", ".yml")
_COMMAND = "a command goes after `--`: causeway run -- python train.py"
"""The hint if the user named the program in place of the job file."""
_AFTER_DASHES = "the command"
"""The place of a command that follows ``--``."""
_SHORT = {"code": "path", "tracking": "record"}
"""Nested field → the field that its short form sets, unless that is ``count``."""
_PARTS = re.compile(r"gpus|code|tracking|roles\.\w+(\.gpus)?")
"""Dotted fields that have a short form."""
TEXT = re.compile(
    r"name|image|python|priority|group|array|on(\.\d+)?|code\.path|code\.(in|ex)clude\.\d+"
    r"|(roles\.\w+\.)?(run(\.\d+)?|gpus\.model)|where\.sites\.\d+|env\..+|secrets\..+"
    r"|checkpoints\.(metric|path|volume)|tracking\.experiment|sweep\.metric"
)
"""Dotted fields that are text, whatever the value looks like."""
_TEXT_OF_NULL = re.compile(r"env\..+|.+\.\d+")
"""Those among them for which nothing is not the default, so that ``null`` is text, too."""
_BRANCHES = re.compile(r"function-.*\(\)|literal\[.*\]|\[key\]|Code|bool|form:.*")
"""Components of pydantic's locations that name a type rather than a field."""
_FORMS: Mapping[str, type[BaseModel]] = {
    "form:log": LogRange, "form:int": IntRange, "form:float": FloatRange,
}  # fmt: skip


@dataclass(frozen=True)
class LoadedJob:
    """A job, the folder that its paths are relative to, and the values filled into its command."""

    job: Job
    folder: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    """Dotted field → where it was written: ``job.yaml:7``, ``--gpus``."""

    def placed(self, problem: Problem) -> Problem:
        """Return a problem with the place of its field, or of the nearest enclosing field."""
        name = problem.field
        while name and name not in self.places:
            name = name.rpartition(".")[0]
        return replace(problem, where=self.places.get(name, problem.where))

    @property
    def tasks(self) -> list[str]:
        """Return the tasks of an array; empty if it is not one."""
        return [str(task) for task in tasks_of(self.job.array)] if self.job.array else []

    def one_task(self) -> None:
        """Raise InputError if the job is an array of several runs."""
        if len(self.tasks) > 1:
            what = f"{self.job.array} is several runs, which need a cluster"
            raise InputError([self.placed(Problem("", "array", what, "choose one: --array 1"))])


_NO_SWEEP = "write sweep: {parameters: …, metric: …, trials: …}; causeway run runs the job without a search"


def load(
    path: Path | None,
    options: Mapping[str, Any],
    parameters: Mapping[str, str],
    *,
    folder: Path | None = None,
    alone: bool = False,
    search: bool = False,
) -> LoadedJob:
    """Load the job of a file, or from options alone. Raises InputError with all problems.

    ``options``: field → value, dotted for nested fields: ``{"gpus": 4, "env.SEED": "1"}``; they override the
    file. ``parameters``: name → value for ``{name}`` in the command. A name that is not in the command and is
    a dotted field sets that field, with its value parsed as YAML. ``alone``: load a single run, even if the
    file defines a sweep. ``search``: a file without a sweep is an error.
    """
    values, lines, problems = _read(path) if path else ({}, {}, [])
    folder = path.parent if path else folder or Path()
    origins: dict[Keys, str] = {}
    for dotted, value in options.items():
        keys = tuple(dotted.split(".", 1))
        origins[keys] = f"--{keys[0]}" if keys[0] != "run" else _AFTER_DASHES
        _put(values, keys, value)
    parameters = dict(parameters)
    if not alone:
        _narrow(values, parameters, origins)
    for dotted in [name for name in parameters if _is_field(name) and not _in_commands(values, name)]:
        keys = tuple(dotted.split("."))
        origins[keys] = f"--set {dotted}"
        _put(values, keys, _given(parameters.pop(dotted), keys))
    values.setdefault("name", _label_of(folder))
    found = [*_sweep_problems(values)]
    try:
        job = Job.model_validate(values)
    except ValidationError as error:
        found += _problems(error)
    else:
        found += _across(job)
    problems += [
        replace(each, where=_where(tuple(each.field.split(".")), path, lines, origins)) for each in found
    ]
    if problems:
        raise InputError(sorted(problems, key=_order))
    places = {".".join(keys): f"{path}:{line}" for keys, line in lines.items()}
    places |= {".".join(keys): option for keys, option in origins.items()}
    if search and job.sweep is None:  # placeholders without a value would only hide it
        raise InputError([Problem(str(path), "sweep", "is missing", _NO_SWEEP)])
    return _filled(LoadedJob(job, folder, places=places), parameters, alone=alone)


def _read(path: Path) -> tuple[dict[str, Any], dict[Keys, int], list[Problem]]:
    """Return the values of a file, the line of each by its keys, and what is wrong with its syntax."""
    try:
        found = parse(path.read_text(encoding="utf-8"), _is_text)
    except FileNotFoundError:
        raise InputError([Problem(str(path), "", "no such file", _COMMAND)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem(str(path), "", f"cannot be read: {error}")]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        hint = "check the indentation, and quote text that has ': ' in it"
        hint = hint if path.suffix in _SUFFIXES else _COMMAND
        raise InputError(
            [Problem(where, "", f"not YAML: {getattr(error, 'problem', error)}", hint)]
        ) from None
    problems = [
        Problem(f"{path}:{each.line}", ".".join(each.keys), each.what, each.hint) for each in found.faults
    ]
    if not isinstance(found.value, dict):
        hint = "it starts like this: run: python train.py" if path.suffix in _SUFFIXES else _COMMAND
        raise InputError([*problems, Problem(f"{path}:1", "", "not a mapping of fields", hint)])
    return found.value, found.lines, problems


def _is_text(keys: Keys, tag: str) -> bool:
    """Whether a value is kept as text although it looks like a number, a boolean or null."""
    dotted = ".".join(keys)
    if tag == NULL and not _TEXT_OF_NULL.fullmatch(dotted):
        return False
    return TEXT.fullmatch(dotted) is not None or (dotted == "code" and tag != BOOL)


def _put(values: dict[str, Any], keys: Keys, value: Any) -> None:
    """Set a field. A nested field in its short form, ``gpus: 4``, is expanded first. A short value for a
    nested field sets only that field of it: ``--gpus 4`` keeps the model."""
    *outer, last = keys
    for depth, key in enumerate(outer, 1):
        inner = values.get(key)
        if not isinstance(inner, dict):
            short = {} if inner is None else {_short_of(keys[:depth]): inner}
            inner = values[key] = short
        values = inner
    is_short = isinstance(value, str | int) and not (last == "code" and value is False)
    if is_short and isinstance(values.get(last), dict) and _PARTS.fullmatch(".".join(keys)):
        values[last] = {**values[last], _short_of(keys): value}
    else:
        values[last] = value


def _short_of(keys: Keys) -> str:
    """Return the field that the short form of a nested field sets."""
    return _SHORT.get(keys[-1], "count")


def _is_field(dotted: str) -> bool:
    return dotted.partition(".")[0] in Job.model_fields


def _commands(values: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted field → command."""
    roles = values.get("roles")
    parts = {f"roles.{name}.": part for name, part in roles.items()} if isinstance(roles, dict) else {}
    return {
        f"{prefix}run": str(joined(part["run"]))
        for prefix, part in {"": values, **parts}.items()
        if isinstance(part, dict) and "run" in part
    }


def _in_commands(values: Mapping[str, Any], name: str) -> bool:
    """Whether a command contains ``{name}`` or ``{--name}``."""
    return any(name in set().union(*names(command)) for command in _commands(values).values())


def _narrow(values: Mapping[str, Any], parameters: dict[str, str], origins: dict[Keys, str]) -> None:
    """Apply ``--set`` to a parameter of the sweep: it keeps only that value, with the parameters of that
    choice."""
    sweep = values.get("sweep")
    space = sweep.get("parameters") if isinstance(sweep, dict) else None
    if not isinstance(space, dict):
        return
    for name in [name for name in parameters if name in space]:
        text = parameters.pop(name)
        choices = space[name] if isinstance(space[name], list) else []
        branches = [each for each in choices if isinstance(each, dict) and text in each]
        space[name] = branches or [_given(text, ("sweep", "parameters", name, "0"))]
        origins["sweep", "parameters", name] = f"--set {name}"


def _sweep_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield problems between fields of a sweep. Problems within a field are reported by the model."""
    if "sweep" not in values:
        return
    try:
        sweep = Sweep.model_validate(values["sweep"])
    except ValidationError:
        return
    yield from checks.problems(sweep, _commands(values))


def _across(job: Job) -> Iterator[Problem]:
    """Yield problems between fields. The model does not check them, as it also reads runs that were
    submitted earlier."""
    memories = {
        f"roles.{name}.memory" if role.memory else "memory": role.memory or job.memory
        for name, role in job.roles.items()
    } or {"memory": job.memory}
    for field_, memory in memories.items():
        if job.shm and memory and job.shm > memory:
            what = f"{exact_size(job.shm)} is more than {field_}, {exact_size(memory)}, which it is a part of"
            yield Problem("", "shm", what)
    if job.array and job.sweep:
        yield Problem("", "array", "a search cannot have an array", "leave out `array` or `sweep`")
    volume = job.checkpoints.volume
    if volume and not job.mounts.get(volume, True):
        yield Problem("", "checkpoints.volume", f"mounts excludes {volume}", f"remove mounts.{volume}")


def check_shared_code(loaded: LoadedJob, *, contained: bool = False) -> None:
    """Raise InputError if the checkpoint path does not suit workers that share the code folder, as they do
    without a cluster. ``contained``: they run in a container, with another root."""
    job, path = loaded.job, loaded.job.checkpoints.path or "."
    count = sum(role.count for role in job.roles.values()) or job.nodes
    what = ""
    if path.startswith("/"):
        what = (
            ""
            if contained
            else "it exists only in a container; use a folder of the code, such as `checkpoints`"
        )
    elif path != "." and job.checkpoints.sharded and count > 1:
        what = "all workers write to it, and each writes a part; let them write below $CAUSEWAY_CHECKPOINTS"
    if what:
        raise InputError([loaded.placed(Problem("job", "checkpoints.path", what))])


def _given(text: str, keys: Keys) -> Any:
    """Parse a value of ``--set`` as if it were in the file. Text that is not YAML is kept, as is text for a
    text field, unless it is quoted. Raises InputError."""
    dotted = ".".join(keys)
    try:
        node = compose(text)
        tag = NULL if node is None else node.tag
        if TEXT.fullmatch(dotted):
            if tag == NULL:
                return text if _is_text(keys, tag) else None
            is_quoted = isinstance(node, yaml.ScalarNode) and node.style
            is_list = isinstance(node, yaml.SequenceNode) and keys[-1] in ("run", "on")
            if not (is_quoted or is_list):
                return text
        found = parse(text, _is_text, keys)
    except yaml.YAMLError:
        return text
    if found.faults:
        faults = [Problem(f"--set {dotted}", ".".join(each.keys), each.what) for each in found.faults]
        raise InputError(faults)
    return found.value


def _label_of(folder: Path) -> str:
    """Turn a folder's name into a job name: ``My_Model`` → ``my-model``."""
    text = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:40].strip("-")
    return text if LABEL.fullmatch(text) else "run"


def _problems(error: ValidationError) -> Iterator[Problem]:
    """Yield the problems of a validation error, without places."""
    seen = set()
    for each in error.errors(include_url=False):
        branches = len(each["loc"]) > 1 and each["type"] in ("literal_error", "bool_type")
        keys = tuple(str(part) for part in each["loc"] if not _BRANCHES.fullmatch(str(part)))
        if branches and keys == ("code",):
            continue  # the other variant of `code` reports the problem
        what, hint = _what(each, keys), ""
        if each["type"] == "extra_forbidden":
            hint = _near(keys, _FORMS.get(str(each["loc"][-2])) if keys[1:] else None)
        elif keys == ("version",) and isinstance(each["input"], int) and each["input"] > 1:
            hint = f"causeway {__version__} knows version 1: pip install --upgrade causeway-client"
        elif each["type"] == "missing" and keys == ("run",):
            hint = "set it in the file, or write the command after `--`"
        problem = Problem("", ".".join(keys), what, hint)
        if problem not in seen:
            seen.add(problem)
            yield problem


_WORDS: Mapping[str, str] = {
    "string_type": "not text",
    "string_too_short": "empty",
    "string_too_long": "longer than {max_length} characters",
    "int_type": "not a whole number",
    "int_parsing": "not a whole number",
    "int_from_float": "not a whole number",
    "int_parsing_size": "not a number",
    "float_type": "not a number",
    "float_parsing": "not a number",
    "finite_number": "not a finite number",
    "bool_type": "neither true nor false",
    "bool_parsing": "neither true nor false",
    "literal_error": "not {expected}",
    "greater_than": "not more than {gt}",
    "greater_than_equal": "less than {ge}",
    "less_than": "not less than {lt}",
    "less_than_equal": "more than {le}",
    "tuple_type": "not a list",
    "list_type": "not a list",
    "dict_type": "not a mapping of fields",
    "model_type": "not a mapping of fields",
    "too_short": "shorter than {min_length}",
    "too_long": "longer than {max_length}",
}
"""Kind of pydantic's error → what is wrong with the value."""
_FORMS_OF: Mapping[tuple[Keys, str], str] = {
    (("run",), "string_type"): "neither text nor a list of words",
    (("gpus",), "model_type"): "neither a number nor a mapping of fields",
    (("on",), "tuple_type"): "neither text nor a list of machines",
}
"""The same for fields that have two forms."""


def _what(each: ErrorDetails, keys: Keys) -> str:
    """Describe what is wrong in our own words."""
    kind, value = each["type"], each["input"]
    if kind in ("extra_forbidden", "missing"):
        return "unknown field" if kind == "extra_forbidden" else "is missing"
    if kind == "value_error":
        return each["msg"].removeprefix("Value error, ")
    if value is None:
        return "is empty"
    words = _WORDS.get(kind, "not a value of this field").format_map(each.get("ctx", {}))
    words = _FORMS_OF.get((keys[-1:], kind), words)
    if isinstance(value, dict | list | tuple):
        return words
    return f"{value!r} is {words}" if isinstance(value, str) else f"{json.dumps(value)} is {words}"


def _where(
    keys: Keys,
    path: Path | None,
    lines: Mapping[Keys, int],
    origins: Mapping[Keys, str],
) -> str:
    for length in range(len(keys), 0, -1):
        if keys[:length] in origins:
            return origins[keys[:length]]
        if keys[:length] in lines:
            return f"{path}:{lines[keys[:length]]}"
    return f"{path}:1" if path else "causeway run"


def _near(keys: Keys, form: type[BaseModel] | None) -> str:
    """Suggest a similar field, or form of a parameter, for an unknown field."""
    part: type[BaseModel] = form or Job
    for key in keys[:-1] if form is None else ():
        info = next((f for name, f in part.model_fields.items() if (f.alias or name) == key), None)
        inner = next(_models(info.annotation), None) if info else None
        if inner is None:
            break
        part = inner
    names = [info.alias or name for name, info in part.model_fields.items()]
    found = difflib.get_close_matches(keys[-1], names, n=1)
    return f"did you mean {found[0]}?" if found else "fields are " + ", ".join(sorted(names))


def _meant(name: str, known: Collection[str]) -> str:
    """Suggest a similar placeholder for a name of ``--set``; empty if none is similar."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {found[0]}?" if found else ""


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _order(problem: Problem) -> tuple[str, int]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (problem.where, 0)


def _filled(loaded: LoadedJob, parameters: Mapping[str, str], *, alone: bool) -> LoadedJob:
    """Replace ``{name}`` in the job's commands. Raises InputError if a value or its placeholder is
    missing."""
    job = loaded.job
    commands = {
        "run": job.run,
        **{f"roles.{name}.run": role.run for name, role in job.roles.items() if role.run},
    }
    places = [names(command) for command in commands.values()]
    known = frozenset[str]().union(*(each.values | each.options for each in places))
    sweep = None if alone else job.sweep
    problems = [
        Problem(
            "--set",
            name,
            "neither in the command nor a field",
            _meant(name, known) or f"write {{{name}}} where the value goes: {job.run}",
        )
        for name in parameters
        if name not in known
    ]
    # For a sweep, placeholders were checked together with the parameters.
    missing = (
        {} if sweep else {dotted: expected(command) - {*parameters} for dotted, command in commands.items()}
    )
    literally = "--set {0}='{{{0}}}'" if loaded.places.get("run") == _AFTER_DASHES else "write \\{{{0}}}"
    hint = f"set its value with --set {{0}}=…; for the literal text {{{{{{0}}}}}}, {literally}"
    problems += [
        loaded.placed(Problem("causeway run", dotted, f"{{{name}}} has no value", hint.format(name)))
        for dotted, lacking in missing.items()
        for name in sorted(lacking)
    ]
    if problems:
        raise InputError(problems)
    swept = {each.name for each in dimensions(sweep.parameters)} if sweep else set()
    left = frozenset[str]().union(*(each.values for each in places)) - swept - {*parameters, ALL}
    notes = [f"{{{name}}} is not replaced: --set {name}=… is missing" for name in sorted(left) if parameters]
    notes += checks.notes(sweep) if sweep else ()
    result = _with_commands(job, parameters, partly=sweep is not None)
    return replace(loaded, job=result, parameters=dict(parameters), notes=tuple(notes))


def of_trial(job: Job, parameters: Parameters) -> Job:
    """Return the job of one trial of its sweep: with its parameters in the commands, and without the
    sweep."""
    return _with_commands(job, texts(parameters)).model_copy(update={"sweep": None})


def _with_commands(job: Job, values: Mapping[str, str], *, partly: bool = False) -> Job:
    roles = {
        name: role.model_copy(update={"run": filled(role.run, values, partly=partly)}) if role.run else role
        for name, role in job.roles.items()
    }
    return job.model_copy(update={"run": filled(job.run, values, partly=partly), "roles": roles})
