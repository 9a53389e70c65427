"""Reads a job: a YAML file, options of the command line over it, ``--set`` into its command or its fields."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from causeway.errors import InputError, Problem
from causeway.job import LABEL, Job, joined
from causeway.placeholders import filled, names
from causeway.search import checks
from causeway.search.command import ALL, texts
from causeway.search.fields import FloatRange, IntRange, LogRange, Sweep
from causeway.search.space import dimensions
from causeway.search.trials import Parameters

_SUFFIXES = (".yaml", ".yml")
_COMMAND = "a command goes after `--`: causeway run -- python train.py"
"""A hint for a person who named the program where the job file goes."""
_SHORT = {"code": "path", "tracking": "record"}
"""Part → the field that it is written short as, where that is not ``count``."""
_PARTS = re.compile(r"gpus|code|tracking|roles\.\w+(\.gpus)?")
"""Dotted fields that may be written short."""
_BRANCHES = re.compile(r"function-.*\(\)|literal\[.*\]|\[key\]|Code|bool|form:.*")
"""Parts of pydantic's locations that name a type rather than a field."""
_FORMS: Mapping[str, type[BaseModel]] = {
    "form:log": LogRange, "form:int": IntRange, "form:float": FloatRange,
}  # fmt: skip


@dataclass(frozen=True)
class LoadedJob:
    """A job, the folder that its paths are relative to, and what was filled into its command."""

    job: Job
    folder: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    """Dotted field → where it was written: ``job.yaml:7``, ``--gpus``."""

    def placed(self, problem: Problem) -> Problem:
        """A problem with where its field, or the part that the field is in, was written."""
        name = problem.field
        while name and name not in self.places:
            name = name.rpartition(".")[0]
        return replace(problem, where=self.places.get(name, problem.where))


def load(
    path: Path | None,
    options: Mapping[str, Any],
    parameters: Mapping[str, str],
    *,
    folder: Path | None = None,
) -> LoadedJob:
    """The job of a file, or of options alone.

    ``options``: field → value, dotted for fields of parts: ``{"gpus": 4, "env.SEED": "1"}``; they win.
    ``parameters``: name → what takes the place of ``{name}`` in the command; of one that is not in it and is
    a field, dotted, its value as YAML.
    Raises InputError with all problems.
    """
    values, lines = _read(path) if path else ({}, {})
    folder = path.parent if path else folder or Path()
    origins: dict[tuple[str, ...], str] = {}
    for dotted, value in options.items():
        keys = tuple(dotted.split(".", 1))
        origins[keys] = f"--{keys[0]}" if keys[0] != "run" else "the command"
        _put(values, keys, value)
    parameters = dict(parameters)
    _narrow(values, parameters, origins)
    for dotted in [name for name in parameters if _is_field(name) and not _in_commands(values, name)]:
        keys = tuple(dotted.split("."))
        origins[keys] = f"--set {dotted}"
        _put(values, keys, _yaml(parameters.pop(dotted)))
    values.setdefault("name", _label_of(folder))
    problems = list(_sweep_problems(values, path, lines, origins))
    try:
        job = Job.model_validate(values)
    except ValidationError as error:
        problems += _problems(error, path, lines, origins)
    if problems:
        raise InputError(sorted(problems, key=_order))
    places = {".".join(keys): f"{path}:{line}" for keys, line in lines.items()}
    places |= {".".join(keys): option for keys, option in origins.items()}
    return replace(_filled(job, folder, parameters), places=places)


def _read(path: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """The values of a file, and the line of each, by its keys."""
    lines: dict[tuple[str, ...], int] = {}
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        twice = list(_note_lines(root, (), lines, path)) if root is not None else []
        values = yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError([Problem(str(path), "", "no such file", _COMMAND)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem(str(path), "", f"can't be read: {error}")]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        hint = "" if path.suffix in _SUFFIXES else _COMMAND
        raise InputError(
            [Problem(where, "", f"not YAML: {getattr(error, 'problem', error)}", hint)]
        ) from None
    if twice:
        raise InputError(twice)
    if not isinstance(values, dict):
        hint = "it begins like this: run: python train.py" if path.suffix in _SUFFIXES else _COMMAND
        raise InputError([Problem(f"{path}:1", "", "not a mapping of fields", hint)])
    return values, lines


def _note_lines(
    node: yaml.Node, keys: tuple[str, ...], lines: dict[tuple[str, ...], int], path: Path
) -> Iterator[Problem]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*keys, str(key.value))
            line = key.start_mark.line + 1
            if inner in lines and key.tag != "tag:yaml.org,2002:merge":
                first = f"it is set in line {lines[inner]}, too"
                yield Problem(f"{path}:{line}", ".".join(inner), "set twice", first)
            lines[inner] = line
            yield from _note_lines(value, inner, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            lines[(*keys, str(index))] = entry.start_mark.line + 1
            yield from _note_lines(entry, (*keys, str(index)), lines, path)


def _put(values: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    """Sets a field. A part that is written short, ``gpus: 4``, is written out first. A value that is short
    for a part sets that field of it, and leaves the others: ``--gpus 4`` keeps their model."""
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


def _short_of(keys: tuple[str, ...]) -> str:
    """The field that a part is written short as."""
    return _SHORT.get(keys[-1], "count")


def _is_field(dotted: str) -> bool:
    return dotted.partition(".")[0] in Job.model_fields


def _commands(values: Mapping[str, Any]) -> dict[str, str]:
    """Dotted field → command."""
    roles = values.get("roles")
    parts = {f"roles.{name}.": part for name, part in roles.items()} if isinstance(roles, dict) else {}
    return {
        f"{prefix}run": str(joined(part["run"]))
        for prefix, part in {"": values, **parts}.items()
        if isinstance(part, dict) and "run" in part
    }


def _in_commands(values: Mapping[str, Any], name: str) -> bool:
    """Whether a command has ``{name}`` or ``{--name}``."""
    return any(name in set().union(*names(command)) for command in _commands(values).values())


def _narrow(
    values: Mapping[str, Any], parameters: dict[str, str], origins: dict[tuple[str, ...], str]
) -> None:
    """``--set`` of a parameter of the sweep leaves it that value alone, with what the choice brings."""
    sweep = values.get("sweep")
    space = sweep.get("parameters") if isinstance(sweep, dict) else None
    if not isinstance(space, dict):
        return
    for name in [name for name in parameters if name in space]:
        value = _yaml(parameters.pop(name))
        choices = space[name] if isinstance(space[name], list) else []
        branches = [each for each in choices if isinstance(each, dict) and value in each]
        space[name] = branches or [value]
        origins["sweep", "parameters", name] = f"--set {name}"


def _sweep_problems(
    values: Mapping[str, Any],
    path: Path | None,
    lines: Mapping[tuple[str, ...], int],
    origins: Mapping[tuple[str, ...], str],
) -> Iterator[Problem]:
    """Those across fields. What is wrong within a field is the model's to say."""
    if "sweep" not in values:
        return
    try:
        sweep = Sweep.model_validate(values["sweep"])
    except ValidationError:
        return
    for each in checks.problems(sweep, _commands(values)):
        yield replace(each, where=_where(tuple(each.field.split(".")), path, lines, origins))


def _yaml(text: str) -> Any:
    """A value as it would be in the file; what is no YAML is itself."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _label_of(folder: Path) -> str:
    """A folder's name as a job's: ``My_Model`` → ``my-model``."""
    text = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:40].strip("-")
    return text if LABEL.fullmatch(text) else "run"


def _problems(
    error: ValidationError,
    path: Path | None,
    lines: Mapping[tuple[str, ...], int],
    origins: Mapping[tuple[str, ...], str],
) -> Iterator[Problem]:
    seen = set()
    for each in error.errors(include_url=False, include_context=False):
        branches = len(each["loc"]) > 1 and each["type"] in ("literal_error", "bool_type")
        keys = tuple(str(part) for part in each["loc"] if not _BRANCHES.fullmatch(str(part)))
        if branches and keys == ("code",):
            continue  # the other branch of `code` says what is wrong
        where = _where(keys, path, lines, origins)
        what, hint = each["msg"].removeprefix("Value error, "), ""
        if each["type"] == "extra_forbidden":
            what, hint = "unknown field", _near(keys, _FORMS.get(str(each["loc"][-2])) if keys[1:] else None)
        elif each["type"] in ("model_type", "dict_type"):
            what = f"{each['input']!r} is not a mapping of fields"
        elif each["type"] == "missing":
            what = "is missing"
            hint = "set it in the file, or write the command after `--`" if keys == ("run",) else ""
        elif not isinstance(each["input"], dict | list) and each["type"] != "value_error":
            what = f"{each['input']!r}: {what[:1].lower()}{what[1:]}"
        problem = Problem(where, ".".join(keys), what, hint)
        if problem not in seen:
            seen.add(problem)
            yield problem


def _where(
    keys: tuple[str, ...],
    path: Path | None,
    lines: Mapping[tuple[str, ...], int],
    origins: Mapping[tuple[str, ...], str],
) -> str:
    for length in range(len(keys), 0, -1):
        if keys[:length] in origins:
            return origins[keys[:length]]
        if keys[:length] in lines:
            return f"{path}:{lines[keys[:length]]}"
    return f"{path}:1" if path else "causeway run"


def _near(keys: tuple[str, ...], form: type[BaseModel] | None) -> str:
    """A hint for an unknown field: one of that part, or form of a parameter, that reads nearly the same."""
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


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _order(problem: Problem) -> tuple[str, int]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (problem.where, 0)


def _filled(job: Job, folder: Path, parameters: Mapping[str, str]) -> LoadedJob:
    """The job with ``{name}`` of its commands replaced."""
    places = [names(command) for command in (job.run, *(role.run for role in job.roles.values())) if command]
    known = frozenset[str]().union(*(each.values | each.options for each in places))
    problems = [
        Problem(
            "--set",
            name,
            "neither in the command nor a field",
            f"write {{{name}}} where the value goes: {job.run}",
        )
        for name in parameters
        if name not in known
    ]
    if problems:
        raise InputError(problems)
    swept = {each.name for each in dimensions(job.sweep.parameters)} if job.sweep else set()
    left = frozenset[str]().union(*(each.values for each in places)) - swept - {*parameters, ALL}
    notes = [f"{{{name}}} stays as it is: it has no --set {name}=…" for name in sorted(left) if parameters]
    notes += checks.notes(job.sweep) if job.sweep else ()
    result = _with_commands(job, parameters, partly=job.sweep is not None)
    return LoadedJob(result, folder, dict(parameters), tuple(notes))


def of_trial(job: Job, parameters: Parameters) -> Job:
    """The job of one trial of its sweep: with its parameters in the commands, and no sweep."""
    return _with_commands(job, texts(parameters)).model_copy(update={"sweep": None})


def _with_commands(job: Job, values: Mapping[str, str], *, partly: bool = False) -> Job:
    roles = {
        name: role.model_copy(update={"run": filled(role.run, values, partly=partly)}) if role.run else role
        for name, role in job.roles.items()
    }
    return job.model_copy(update={"run": filled(job.run, values, partly=partly), "roles": roles})
