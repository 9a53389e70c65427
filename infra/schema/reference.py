"""Generates a JSON Schema and a manual of the language, with each field's meaning and update policy.

The docstrings under the fields are the only description of a field; they are parsed from the source on
demand, so that a normal start does not spend time on them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from infra.schema.base import Part, Update, policy_of
from infra.schema.cluster import Spec
from infra.schema.formatting import hints, item_of, models, plain, spelled, type_words

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The version that editors' YAML language servers support."""


_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
"""Pydantic's bounds, as metadata of types with a validator → JSON Schema's. Bounds of sizes and durations,
which are written as text, are left out."""

_NUMBER = re.compile(r"[1-9]\d*(\.\d+)?")


@cache
def docs_of(part: type[BaseModel]) -> dict[str, str]:
    """Each field's docstring, as one line."""
    tree = ast.parse(inspect.getsource(part)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, doc in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(doc.value.value).split())
    return found


def parts(root: type[BaseModel] = Spec) -> Iterator[type[BaseModel]]:
    """Every part of the language, first the whole spec, without duplicates, in the order of use."""
    seen: list[type[BaseModel]] = [root]
    for part in seen:
        yield part
        for annotation in hints(part).values():
            seen += [child for child in _models(annotation) if child not in seen]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def described(part: type[BaseModel], field: str) -> str:
    """A field's meaning, and what changing it does to a live cluster."""
    policy = policy_of(part, field)
    because = f" ({policy.because})" if policy.because else ""
    match policy.update:
        case Update.NEVER:
            change = "Never changes after the first apply"
        case Update.REPLACES:
            change = "A change replaces what it made"
        case _:
            change = f"A change is applied {policy.update}"
    return f"{docs_of(part).get(field, '')} {change}{because}."


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a spec, for completion and hover in editors."""
    schema = Spec.model_json_schema(mode="validation", schema_generator=GenerateJsonSchema)
    by_name = {part.__name__: part for part in parts()}
    for name, definition in [("Spec", schema), *schema.get("$defs", {}).items()]:
        part = by_name.get(name)
        if part is not None and issubclass(part, Part):
            for field, entry in definition.get("properties", {}).items():
                entry["description"] = described(part, field)
    # A file that extends another may leave out required fields.
    whole = {"required": schema.pop("required")}
    schema |= {"if": {"not": {"required": ["extends"]}}, "then": whole}
    return {"$schema": DIALECT, "title": "Causeway spec", **_numbers_too(schema)}


def _numbers_too(value: Any) -> Any:
    """Add number forms: choices that consist of digits may be written without quotes; and JSON Schema's
    names for bounds of numbers."""
    if isinstance(value, list):
        return [_numbers_too(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    fixed = {key: _numbers_too(entry) for key, entry in value.items()}
    for word, bound in _BOUNDS.items():
        limit = fixed.pop(word, None)
        if isinstance(limit, int | float) and fixed.get("type") in ("integer", "number"):
            fixed[bound] = limit
    choices = fixed.get("enum", [fixed["const"]] if isinstance(fixed.get("const"), str) else [])
    numbers = [
        json.loads(choice) for choice in choices if isinstance(choice, str) and _NUMBER.fullmatch(choice)
    ]
    if numbers:
        fixed.pop("const", None)
        fixed.pop("type", None)
        fixed["enum"] = [*choices, *numbers]
    return fixed


EXAMPLE = """\
# yaml-language-server: $schema=spec.schema.json
version: 1
name: lab
domain: lab.internal
supernet: 10.0.0.0/8
sites:
  rack-a:
    kind: physical
    cidr: 10.200.0.0/22
    gateway: {addresses: [198.51.100.10]}
    nodes:
      gw-01: {address: 10.200.0.2, cpus: 8, memory: 16 GiB, roles: [site-gateway]}
      titan-01:
        address: 10.200.0.11
        cpus: 32
        memory: 128 GiB
        gpus: {model: titan-x-pascal, count: 4}
  us-west-2: {kind: aws, primary: true}
  us-east-1: {kind: aws, overflow: 1, endpoints: [s3, ecr]}
images:
  cpu: {ubuntu: 24.04}
  gpu: {ubuntu: 22.04, gpu: {driver: 580}}
pools:
  cpu:
    image: cpu
    instance_types: [m6i.xlarge, m5.xlarge]
    market: spot
    regions: {us-west-2: {min: 1, max: 10}}
  gpu:
    image: gpu
    instance_types: [g5.xlarge, {type: g5.2xlarge, weight: 2}]
    market: {kind: mixed, base: 1, on_demand_percent: 25}
    regions: {us-west-2: {max: 8}, us-east-1: {max: 8}}
    labels: {team: vision}
access:
  groups: {staff: {}}
  users:
    ada:
      groups: [staff]
      ssh_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp ada"]
"""
"""An example spec with most features; a test checks that it is valid."""

_HEAD = """\
<!-- Made by `invoke docs` from infra/schema; changes here are lost. -->

# The spec

`environments/<env>.yaml` says what a cluster is. It is YAML 1.2 with one difference: a scalar is the text
that was written, and the type of the field decides what it means, so `no`, `022` and `1.20` need no quotes.
Keys that are not in this manual are errors. `extends: base.yaml` starts from another file: mappings merge key
by key, all else replaces what the base had, and `null` takes it away. Where there is nothing to take away, a
field with `null` or without a value has its default, and a named entry without one is an error: `{}` is an
entry with nothing but defaults. `invoke spec --resolved` shows the result and where each value comes from;
`invoke validate` checks it.

```yaml
{example}```

## Values

| Written as | Example | |
|---|---|---|
| address | `10.8.0.11` | IPv4 |
| block | `10.8.0.0/20` | IPv4, without host bits |
| date | `2027-03-31` | |
| domain | `lab.internal` | in lower case, without the last dot |
| duration | `10m` | a whole number of `s`, `m`, `h` or `d` |
| file mode | `0750` | octal |
| name | `us-west-2` | lower-case letters, digits, single hyphens; a letter first; up to 40 characters |
| path | `/data` | absolute |
| size | `500 GiB` | a whole number of `MiB`, `GiB` or `TiB` |
| text | `no` | whatever was written |
| true or false | `true` | |
| version | `1.36` | major and minor |
| whole number | `22` | decimal digits |

A list or a mapping that is left out is empty, unless its default says otherwise.

## What a change does

| When changed | On a live cluster |
|---|---|
| in place | Applied without touching anything that runs. |
| rolling | New nodes start with it; it reaches running ones a few at a time. |
| replaces | What the field made is destroyed and recreated. `invoke plan` says so first. |
| never | `invoke plan` refuses it (`UPD001`) and says what to do instead. |

To add or take out a whole entry (a site, a pool, a user) is never a change of what others have.
"""

_BARE_SCALAR = {"WeightedType": "type", "Market": "kind"}
"""Parts that may be written as a scalar, and the field that the scalar sets."""


def markdown() -> str:
    """The manual of the language, ``docs/spec.md``: a section per part, a row per field."""
    sections = (_section(part, places) for part, places in _places().items())
    return "\n".join([_HEAD.replace("{example}", EXAMPLE), *sections])


def _section(part: type[BaseModel], places: Sequence[str]) -> str:
    doc = inspect.cleandoc(part.__doc__ or "").replace("``", "`")
    lines = [f"## {part.__name__}", "", doc, ""]
    if places:
        lines += [f"Path: {', '.join(f'`{place}`' for place in places)}.", ""]
    if field := _BARE_SCALAR.get(part.__name__):
        lines += [f"A single value is short for a mapping with only `{field}`.", ""]
    lines += ["| Field | Type | Default | Meaning | When changed |", "|---|---|---|---|---|"]
    for field in part.model_fields:
        policy = policy_of(part, field)
        cells = (
            f"`{field}`",
            _type(part, field),
            _default(part, field),
            docs_of(part)[field].replace("``", "`"),
            f"{policy.update}: {policy.because}" if policy.because else str(policy.update),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _type(part: type[BaseModel], field: str) -> str:
    """``whole number, 1 to 16``."""
    words = type_words(hints(part)[field])
    marks = part.model_fields[field].metadata
    low = next((mark.ge for mark in marks if isinstance(mark, Ge)), None)
    high = next((mark.le for mark in marks if isinstance(mark, Le)), None)
    above = next((mark.gt for mark in marks if isinstance(mark, Gt)), None)
    least = next((mark.min_length for mark in marks if isinstance(mark, MinLen)), None)
    most = next((mark.max_length for mark in marks if isinstance(mark, MaxLen)), None)
    unit = _spelled(part, field)
    if low is not None and high is not None:
        words += f", {unit(low)} to {unit(high)}"
    elif low is not None:
        words += f", at least {unit(low)}"
    elif above is not None:
        words += f", above {unit(above)}"
    what = "characters" if words.startswith("text") else "entries"
    if least is not None and most is not None:
        words += f", {least} to {most} {what}"
    elif least is not None:
        words += f", at least {least} {what if least > 1 else 'entry'}"
    elif most is not None:
        words += f", at most {most} {what}"
    return words


def _spelled(part: type[BaseModel], field: str) -> Callable[[Any], str]:
    return lambda value: spelled(hints(part)[field], value) if isinstance(value, int) else str(value)


def _default(part: type[BaseModel], field: str) -> str:
    info = part.model_fields[field]
    if info.is_required():
        return "**required**"
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ({}, (), ""):
        return ""
    return f"`{spelled(hints(part)[field], plain(value))}`"


def _places() -> dict[type[BaseModel], list[str]]:
    """Each part with the paths at which it is used, in the order of the manual."""
    found: dict[type[BaseModel], list[str]] = {Spec: []}

    def walk(part: type[BaseModel], path: str) -> None:
        for field, annotation in hints(part).items():
            here = f"{path}.{field}" if path else field
            for suffix, inner in (
                ("", annotation),
                (".<name>", item_of(annotation, dict)),
                ("[]", item_of(annotation, tuple)),
            ):
                for child in models(inner) if inner is not None else ():
                    found.setdefault(child, []).append(here + suffix)
                    walk(child, here + suffix)

    walk(Spec, "")
    return found
