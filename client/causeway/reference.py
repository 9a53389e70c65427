"""Generates the reference of job files, docs/job.md, and a JSON Schema for editors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema

from causeway.job import Job
from causeway.search.fields import Stop
from causeway.units import exact_duration

_DIALECT = "http://json-schema.org/draft-07/schema#"
"""The draft that YAML language servers of editors support."""

_HEAD = """\
# Job files

A job file describes what `causeway run` runs. One field is required, `run`; with a command after `--` no file
is needed. Unknown fields are errors. Sizes have a unit (`40 GiB`), durations too (`90m`, or
`[days-]hours:minutes:seconds`). Text needs no quotes: `image: 1.50` and `env: {A: 0123, B: on}` are read as
written.

Editors complete and check it by its first line, once [job.schema.json](job.schema.json), which is in `docs/`
of a checkout of Causeway, is beside it:

```yaml
# yaml-language-server: $schema=job.schema.json
name: resnet
run: python train.py --lr {lr}
gpus: 8
python: requirements.txt
```

`--set lr=1e-3` replaces `{lr}` in the command; without a value, `{lr}` is an error. `{--lr}` becomes
`--lr 1e-3`, or nothing without a value.
"""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a job file."""
    schema = Job.model_json_schema(mode="validation", by_alias=True, schema_generator=GenerateJsonSchema)
    schema["required"] = ["run"]  # a folder always has a name
    for name, definition in [("Job", schema), *schema["$defs"].items()]:
        definition.pop("title", None)
        for field, entry in definition.get("properties", {}).items():
            entry.pop("title", None)
            if entry.get("default", 0) in (None, [], {}):
                del entry["default"]
            if entry.get("format") == "duration" and "default" in entry:
                entry["default"] = exact_duration(entry["default"])
            if short := _SHORT.get((name, field)):
                definition["properties"][field] = {
                    "anyOf": [
                        short,
                        *entry.pop("anyOf", [{k: entry.pop(k) for k in ("$ref",) if k in entry}]),
                    ],
                    **entry,
                }
    schema["properties"]["run"] = {
        "description": schema["properties"]["run"]["description"],
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": ["string", "number", "boolean", "null"]}},
        ],
    }
    roles = schema["properties"]["roles"]
    roles["additionalProperties"] = {"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/Role"}]}
    return {"$schema": _DIALECT, "title": "Causeway job", **schema}


_COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 0}
_SHORT: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("Job", "gpus"): _COUNT,
    ("Job", "code"): {"type": "string"},
    ("Job", "tracking"): {"type": "boolean"},
    ("Role", "gpus"): _COUNT,
    ("Sweep", "stop"): {"enum": [*get_args(Stop.model_fields["rule"].annotation)]},
}
"""Nested fields that have a short form."""


_KINDS: Mapping[str, str] = {
    "integer": "number",
    "number": "number",
    "object": "fields",
    "string": "text",
    "array": "list",
    "boolean": "`true`, `false`",
    "size": "size",
    "duration": "duration",
}


def markdown() -> str:
    """Return docs/job.md."""
    schema = json_schema()
    where = {
        "Checkpoints": "checkpoints", "Code": "code", "Gpus": "gpus", "Role": "roles", "Sweep": "sweep",
        "LogRange": "sweep.parameters: log", "IntRange": "sweep.parameters: int",
        "FloatRange": "sweep.parameters: float", "Stop": "sweep.stop", "Tracking": "tracking",
        "Where": "where",
    }  # fmt: skip
    described = {name: part for name, part in schema["$defs"].items() if "properties" in part}
    parts = [("", schema), *sorted(described.items(), key=lambda each: [*where].index(each[0]))]
    sections = []
    for name, part in parts:
        title = f"\n## `{where[name]}`\n\n" if name else "\n## Fields\n\n"
        rows = [_row(field, entry, part) for field, entry in part["properties"].items()]
        sections.append(
            title + "\n".join(["| Field | Value | Default | |", "|---|---|---|---|", *rows]) + "\n"
        )
    return _HEAD + "".join(sections)


def _row(field: str, entry: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    required = field in part.get("required", ())
    default = entry.get("default")
    short = not isinstance(default, dict) or field in ("code", "gpus", "tracking")
    shown = "**required**" if required else "" if default is None or not short else f"`{_plain(default)}`"
    meaning = " ".join(entry.get("description", "").split())
    return f"| `{field}` | {' or '.join(_values(entry))} | {shown} | {meaning} |"


def _plain(default: object) -> str:
    if isinstance(default, dict):
        # A nested field: its first field is the one that the short form sets.
        default = next(iter(default.values()))
    return json.dumps(default).strip('"')


def _values(entry: Mapping[str, Any]) -> Iterator[str]:
    if "anyOf" in entry:
        for each in entry["anyOf"]:
            if each.get("type") != "null":
                yield from _values(each)
    elif "$ref" in entry:
        yield "fields"
    elif "allOf" in entry:
        yield from _values(entry["allOf"][0])
    elif "enum" in entry:
        yield ", ".join(f"`{value}`" for value in entry["enum"])
    elif "const" in entry:
        yield f"`{json.dumps(entry['const'])}`"
    else:
        yield _KINDS[str(entry.get("format", entry["type"]))]


def texts() -> Mapping[Path, str]:
    """Return path → text of every generated file."""
    return {
        Path("docs/job.md"): markdown(),
        Path("docs/job.schema.json"): json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
    }
